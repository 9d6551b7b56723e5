//! Helpers shared by the tests: the kernel guest, md arrays in it, images, patterns, guards.
//!
//! Everything here cleans up after itself, also when a test panics, and only what it made itself.
//!
//! 1. [`requires`]: what a test needs from the machine; skips loudly, fails in CI.
//! 2. [`volume`] and [`mount`]: a volume in memory, and real mounts with a guard.

pub mod guest;
pub mod mount;
pub mod requires;
pub mod volume;
