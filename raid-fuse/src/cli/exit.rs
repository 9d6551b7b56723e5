//! Exit codes, in one place: what a script can branch on.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; for `status`: all members there |
//! | 1 | failed; for `status`: degraded; for `check`: mismatches |
//! | 2 | too few members to serve the data |
//! | 3 | members are missing and `--degraded` was not given |
//! | 4 | refused: needs `--force` or another name; for `status`: it could not be found out |
//! | 5 | somebody else holds a member or the mount point |
//! | 64 | the command line makes no sense |

use raid_core::error::{Error, ErrorKind};
use std::process::ExitCode;

/// `status`: fewer members than the array has.
pub const DEGRADED: u8 = 1;
/// `check`: not everything agrees or could be read; `repair`: something was left alone.
pub const MISMATCH: u8 = 1;
/// Too few members to serve the data.
pub const DEAD: u8 = 2;
/// `status`: it could not be found out.
pub const UNKNOWN: u8 = 4;

/// The command line could not be understood, or asks for help.
pub fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    match (error.use_stderr(), printed) {
        (false, Ok(())) => ExitCode::SUCCESS,
        (false, Err(_)) => ExitCode::FAILURE,
        (true, _) => ExitCode::from(64),
    }
}

/// A command failed.
pub fn failure(error: &Error) -> ExitCode {
    eprintln!("raid-fuse: {error}");
    ExitCode::from(match error.kind {
        ErrorKind::Dead => DEAD,
        ErrorKind::Degraded => 3,
        ErrorKind::Refused => 4,
        ErrorKind::Busy => 5,
        _ => 1,
    })
}
