//! The `raid-bench` command: one subcommand for each kind of measurement.

mod parity;

use clap::{Parser, Subcommand};

/// Measures raid-core, and the same work done by others, on this machine.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Speed of P and Q, beside ISA-L and the bare reading of memory
    Parity(parity::Arguments),
}

fn main() {
    match Arguments::parse().command {
        Command::Parity(arguments) => parity::run(&arguments),
    }
}
