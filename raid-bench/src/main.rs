//! The `raid-bench` command: one subcommand for each kind of measurement.

mod ceiling;
mod parity;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    /// Mounted arrays beside an empty FUSE file and the array without FUSE, in one run
    Ceiling(ceiling::Arguments),
    /// Serves one mount until standard input ends (used by `ceiling`)
    #[command(hide = true)]
    Serve(ceiling::serve::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Parity(arguments) => {
            parity::run(&arguments);
            Ok(())
        }
        Command::Ceiling(arguments) => ceiling::run(&arguments),
        Command::Serve(arguments) => ceiling::serve::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("raid-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
