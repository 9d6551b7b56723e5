//! An md array as a mountable volume, and the commands around it.

pub mod export;
