//! Helpers shared by the tests: the kernel guest, md arrays in it, images, patterns, guards.
//!
//! Everything here cleans up after itself, also when a test panics, and only what it made itself.
//!
//! 1. [`requires`]: what a test needs from the machine; skips loudly, fails in CI.
//! 2. [`images`], [`pattern`]: member images, and bytes that say where they belong.
//! 3. [`guards`]: loop devices, mounts and processes that go away with their owner.
//! 4. [`guest`]: a guest with the kernel's own md driver; [`md`]: batches of arrays in it.
//! 5. [`matrix`]: an array of every level and layout the kernel can make.
//! 6. [`ours`], [`power`]: arrays of our own making, and power cuts.
//! 7. [`volume`], [`mount`]: a volume in memory, and real mounts of it.
//! 8. [`cli`]: the command line, run in a folder of members.
//! 9. [`served`]: arrays served by the command; [`redundancy`]: is their parity right?
//! 10. [`fuzz`]: hostile input by the thousand, with time and memory bounded.

pub mod cli;
pub mod fuzz;
pub mod guards;
pub mod guest;
pub mod images;
pub mod matrix;
pub mod md;
pub mod mount;
pub mod ours;
pub mod pattern;
pub mod power;
pub mod redundancy;
pub mod requires;
pub mod served;
pub mod volume;
