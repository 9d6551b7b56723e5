//! The `raid-fuse` command: parse, run, print the error once, exit.

fn main() -> std::process::ExitCode {
    raid_fuse::cli::main()
}
