//! The command line: one file a subcommand, each with its arguments and its `run`.
//!
//! To add a command: write `cli/x.rs` with `Args` and `run`, add `mod x;`, a variant of
//! `Command` and its line in `run`.

mod add;
pub mod amount;
mod assemble;
mod bytes;
mod check;
mod choice;
mod corrupt;
mod create;
mod demo;
mod diff;
mod erase_superblock;
mod examine;
mod exit;
mod fail;
mod grow;
pub(crate) mod members;
mod mount;
mod offline;
mod online;
mod out;
mod re_add;
mod remove;
mod repair;
mod replace;
mod scan;
mod scrub_online;
mod speed;
pub mod start;
mod status;
mod sync_action;
mod unmount;
mod wait;
mod write_mostly;

mod explain_read;
mod explain_write;
mod geometry;
mod info;
mod layout;
mod map;
mod mdadm;
mod meaning;
mod parity;
mod survives;
mod values;
mod what_if;

use clap::{CommandFactory, Parser, Subcommand};
use raid_core::error::Result;
use std::process::ExitCode;

/// Linux md in userspace: create, examine, mount, break and understand RAID arrays.
#[derive(Parser)]
#[command(name = "raid-fuse", version, about, propagate_version = true)]
#[command(after_help = exit::CODES)]
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
    /// Find arrays in files and folders
    Scan(scan::Args),
    /// Show which members would serve, and why
    Assemble(assemble::Args),
    /// Compare the redundancy of an array that is not mounted with its data
    Check(check::Args),
    /// Make the redundancy of an array that is not mounted agree
    Repair(repair::Args),
    /// Take the md superblocks off devices
    EraseSuperblock(erase_superblock::Args),
    /// Destroy data on purpose, to see what notices
    Corrupt(corrupt::Args),
    /// Serve an array as a file in a directory
    Mount(mount::Args),
    /// Tell how an array does
    Status(status::Args),
    /// Take a mount down, when everything is on the members
    #[command(alias = "umount")]
    Unmount(unmount::Args),
    /// Take a new device into a mounted array
    Add(add::Args),
    /// Take a former member back, copying only what it missed
    ReAdd(re_add::Args),
    /// Use a member of a mounted array no more
    Fail(fail::Args),
    /// Let a failed member or a spare leave a mounted array
    Remove(remove::Args),
    /// Fill another device to take over from a member that still serves
    Replace(replace::Args),
    /// Read a member only when no other can be
    WriteMostly(write_mostly::Args),
    /// Wait until no job runs
    Wait(wait::Args),
    /// End a check or repair
    StopJob(sync_action::StopArgs),
    /// What a mounted array does by itself: the kernel's sync_action
    SyncAction(sync_action::Args),
    /// How fast jobs may go
    Speed(speed::Args),
    /// Give a mounted array a write-intent bitmap, or take it away
    Grow(grow::Args),
    /// Copy bytes of an array to standard output, without mounting it
    Cat(bytes::CatArgs),
    /// Copy standard input into an array, without mounting it
    Write(bytes::WriteArgs),
    /// Make an array, fill it, break it, read it back, and explain each step
    Demo(demo::Args),
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
        Err(error) if error.use_stderr() => return exit::mdadm_or_usage(mdadm_said(), &error),
        Err(error) => return exit::usage(&error),
    };
    let failed = match &cli.command {
        command if command.is_lesson() => exit::misuse_or_failure,
        _ => exit::failure,
    };
    run(cli.command).unwrap_or_else(|error| failed(&error))
}

/// The answer to somebody who typed mdadm's words.
fn mdadm_said() -> Option<String> {
    let typed = std::env::args_os().skip(1);
    let typed: Vec<String> = typed.map(|word| word.to_string_lossy().into_owned()).collect();
    mdadm::answer(&typed, &Cli::command())
}

impl Command {
    /// True for those that need no array, only words about one.
    fn is_lesson(&self) -> bool {
        matches!(
            self,
            Command::Layout(_)
                | Command::Map(_)
                | Command::Survives(_)
                | Command::Info(_)
                | Command::ExplainRead(_)
                | Command::ExplainWrite(_)
                | Command::Parity(_)
        )
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Create(args) => create::run(&args),
        Command::Examine(args) => examine::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Unmount(args) => unmount::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Assemble(args) => assemble::run(&args),
        Command::Add(args) => add::run(&args),
        Command::ReAdd(args) => re_add::run(&args),
        Command::Fail(args) => fail::run(&args),
        Command::Remove(args) => remove::run(&args),
        Command::Replace(args) => replace::run(&args),
        Command::WriteMostly(args) => write_mostly::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::StopJob(args) => sync_action::stop(&args),
        Command::SyncAction(args) => sync_action::run(&args),
        Command::Speed(args) => speed::run(&args),
        Command::Grow(args) => grow::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::EraseSuperblock(args) => erase_superblock::run(&args),
        Command::Corrupt(args) => corrupt::run(&args),
        Command::Cat(args) => bytes::cat(&args),
        Command::Write(args) => bytes::write(&args),
        Command::Demo(args) => demo::run(&args),
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
