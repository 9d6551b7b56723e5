//! The `raid-fuse` program for the tests: cargo builds it with them, so that it is never old.

fn main() -> std::process::ExitCode {
    raid_fuse::cli::main()
}
