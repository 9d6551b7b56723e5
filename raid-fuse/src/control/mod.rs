//! Managing a running array: what can be asked of it, by whom, and how it is asked.
//!
//! The daemon listens on a Unix socket beside the record of its mount ([`server`]); commands ask
//! through it ([`client`]). One JSON object a line in, one out ([`request`]). What is asked is
//! done by [`Control`], which also serves writes to the files in `md/` of the mount ([`files`]):
//! both ways come to the same verbs, with the same refusals. Members are named as people name
//! them ([`members`]).
//!
//! Promises: only the owner of the mount and root are heard; no input makes the daemon panic; a
//! client that hangs holds up nobody else. Waiting is the client's: no request lasts until a job
//! is done.

mod array;
mod bitmap;
pub mod client;
pub mod files;
pub mod members;
pub mod request;
pub mod server;
mod stores;

pub use array::{Context, Control};
pub use request::{Done, Request};

use raid_core::error::Result;
use std::path::PathBuf;

/// Called with the paths of all members whenever they change.
pub type Watch = Box<dyn Fn(&[PathBuf]) + Send + Sync>;

/// Whoever answers requests.
pub trait Commands: Send + Sync {
    /// Does what is asked; returns when the members durably say so.
    fn perform(&self, request: &Request) -> Result<Done>;

    /// From now on, `watch` hears of members that come and go.
    fn watch(&self, watch: Watch);
}
