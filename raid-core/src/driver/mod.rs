//! What does the work: loops that give the engine's actions to members, threads and clocks.
//!
//! The contract with the engine: every I/O goes to its member, in any order inside a batch; every
//! result comes back; `step` is called with times that never go back and never twice at once.
//!
//! * [`Array`]: the asking thread does the I/O, through the device verbs or its own ring.
//! * [`batch`], [`merge`], [`ring`]: member I/O of a phase as one batch: joined where it touches,
//!   done verb by verb or as one submission to io_uring.
//! * [`virtual_time`](crate::sim): a heap of completions and a seed; nothing sleeps.

mod array;
pub mod batch;
mod clock;
mod direct;
pub mod merge;
mod queue;
pub mod ring;

pub use array::{Array, Options};
