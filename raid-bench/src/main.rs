//! The `raid-bench` command.

fn main() {}
