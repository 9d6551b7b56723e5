//! What the array does and why, as data for people: the plans of writes, and parity in numbers.
//!
//! The plans are those the engine would run ([`crate::plan`]) and the bytes come from the code
//! that serves data ([`crate::code`]), so what is taught is what happens. Where data lies and
//! how it is read is in [`crate::layout::explain`].

mod parity;
mod write;

pub use parity::{Parity, Update, update};
pub use write::{Part, Step, Way, write};
