//! The command line: one file a subcommand, each with its arguments and its `run`.
//!
//! To add a command: write `cli/x.rs` with `Args` and `run`, add `mod x;`, a variant of
//! [`Command`] and its line in [`run`].

mod create;
mod examine;
mod exit;
mod members;
mod mount;
mod out;
pub mod size;
pub mod start;
mod status;
mod unmount;

mod amount;
mod explain_read;
mod explain_write;
mod geometry;
mod info;
mod layout;
mod map;
mod meaning;
mod parity;
mod print;
mod survives;
mod values;

use clap::{Parser, Subcommand};
use raid_core::error::Result;
use std::process::ExitCode;

/// Linux md in userspace: create, examine, mount, break and understand RAID arrays.
#[derive(Parser)]
#[command(name = "raid-fuse", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a new array of files or disks
    Create(create::Args),
    /// Show the superblocks of members, right or wrong
    Examine(examine::Args),
    /// Serve an array as a file in a directory
    Mount(mount::Args),
    /// Tell how an array does
    Status(status::Args),
    /// Take a mount down, when everything is on the members
    #[command(alias = "umount")]
    Unmount(unmount::Args),
    #[command(visible_alias = "show")]
    Layout(layout::Args),
    Map(map::Args),
    #[command(visible_alias = "pairs")]
    Survives(survives::Args),
    Info(info::Args),
    ExplainRead(explain_read::Args),
    ExplainWrite(explain_write::Args),
    Parity(parity::Args),
}

/// Parses the arguments, runs the command, prints an error once, and says how it ended.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    run(cli.command).unwrap_or_else(|error| exit::failure(&error))
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Create(args) => create::run(&args),
        Command::Examine(args) => examine::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Unmount(args) => unmount::run(&args),
        Command::Layout(args) => layout::run(&args),
        Command::Map(args) => map::run(&args),
        Command::Survives(args) => survives::run(&args),
        Command::Info(args) => info::run(&args),
        Command::ExplainRead(args) => explain_read::run(&args),
        Command::ExplainWrite(args) => explain_write::run(&args),
        Command::Parity(args) => parity::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_make_sense() {
        Cli::command().debug_assert();
    }
}
