//! An md array as a mountable volume, and the commands around it.

pub mod cli;
pub mod control;
pub mod daemon;
pub mod errno;
pub mod export;
pub mod mounted;
pub mod mountpoint;
mod readiness;
pub mod report;
pub mod rundir;
pub mod unmount;
pub mod volume;
