//! The real engine on virtual time: seeded users, members that fail, lie and forget, an oracle.
//!
//! Nothing sleeps and nothing is random but by the seed, so a run is thousands of operations a
//! second and a failing seed replays exactly. Faults stay inside what the level must survive: a
//! set of *doomed* slots is drawn that the layout survives without, and only these may lose
//! reads, writes or themselves. So every complaint is a bug.
//!
//! [`story`] draws at random and goes far; [`exhaustive`] plays short histories and cuts the power
//! at every moment of them.

mod disk;
pub mod exhaustive;
mod life;
mod oracle;
mod rng;
pub mod story;
mod users;
mod verify;
mod world;

pub use disk::Disk;
pub use oracle::Oracle;
pub use rng::Rng;
pub use story::{Report, Story, run};
pub use world::World;
