//! The `raid-fuse` command.

fn main() {}
