//! Linux md in userspace, as a library: no FUSE, no command line, no root.
//!
//! Read the modules bottom to top; each layer uses only those before it.
//!
//! 1. [`units`], [`error`], [`buf`]: sectors, slots, the one error type, memory that moves.
//! 2. [`layout`]: *where*: which member and sector holds each chunk, copy, P and Q. Numbers only.
//! 3. [`code`]: how lost units come back: P and Q, made, updated, solved, checked.
//! 4. [`plan`]: *what*: a request on one stripe as a list of phases. Data only.
//! 5. [`meta`]: md superblocks as bytes and as records, and the decision which members to trust.
//! 6. [`engine`]: *decides*: the one state machine; events in, actions out; no I/O and no clock.
//! 7. [`device`]: members: files, block devices, memory, and filters around them.
//! 8. [`driver`]: *does*: three loops over the engine: the caller's thread, io_uring, virtual time.
//! 9. [`assembly`]: devices become an array: examine, decide, start; or make a new one.
//! 10. [`scrub`]: whether redundancy agrees with data, and who is wrong, without running.
//! 11. [`teach`]: what a write does to its stripes and what parity comes to, for people.
//! 12. [`sim`]: the real engine on virtual time with faults, against a byte-array oracle.

pub mod assembly;
pub mod buf;
pub mod code;
pub mod device;
pub mod driver;
pub mod engine;
pub mod error;
pub mod layout;
pub mod meta;
pub mod plan;
pub mod scrub;
pub mod sim;
pub mod teach;
pub mod time;
pub mod units;
