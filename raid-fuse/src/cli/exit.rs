//! Exit codes, in one place: what a script can branch on. [`CODES`] is what `--help` says.

use super::out;
use raid_core::error::{Error, ErrorKind};
use std::process::ExitCode;

/// All exit codes, for `--help`.
pub const CODES: &str = "\
Exit codes of all commands:
   0  done; status: all members are there
   1  failed; status: degraded; check: mismatches; examine, scan: there is no array
   2  too few members to serve the data, or a loss that takes data with it
   3  members are missing and --degraded was not given
   4  refused: needs --force, another name or a choice; nothing is mounted there; check, repair:
      nothing could be compared; status: it could not be found out
   5  somebody else holds a member or the mount point
  64  the command line makes no sense";

/// `status`: fewer members than the array has.
pub const DEGRADED: u8 = 1;
/// `check`: not everything agrees or could be read; `repair`: something was left alone.
pub const MISMATCH: u8 = 1;
/// Too few members to serve the data.
pub const DEAD: u8 = 2;
/// `status`: it could not be found out.
pub const UNKNOWN: u8 = 4;
/// `check`: nothing could be compared.
pub const NOTHING_COMPARED: u8 = 4;

/// The command line makes no sense (`EX_USAGE` of sysexits.h).
pub const USAGE: u8 = 64;

/// The command line could not be understood, or asks for help.
pub fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    match (error.use_stderr(), printed) {
        (false, Ok(())) => ExitCode::SUCCESS,
        (false, Err(_)) => ExitCode::FAILURE,
        (true, _) => ExitCode::from(USAGE),
    }
}

/// As [`usage`], but what was typed may be mdadm's language: then that is said.
pub fn mdadm_or_usage(said: Option<String>, error: &clap::Error) -> ExitCode {
    match said {
        None => usage(error),
        Some(line) => {
            out::note(&line);
            ExitCode::from(USAGE)
        }
    }
}

/// A command failed.
pub fn failure(error: &Error) -> ExitCode {
    out::note(&error.to_string());
    code(error)
}

/// The words of a command were wrong, whatever the members hold.
pub fn misuse(error: &Error) -> ExitCode {
    out::note(&error.to_string());
    ExitCode::from(USAGE)
}

/// A command failed that looks at nothing but its words, save where a file could not be read.
pub fn misuse_or_failure(error: &Error) -> ExitCode {
    let of_words = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported)
        && std::error::Error::source(error).is_none();
    if of_words { misuse(error) } else { failure(error) }
}

/// The code for `error`.
pub fn code(error: &Error) -> ExitCode {
    ExitCode::from(match error.kind {
        ErrorKind::Dead => DEAD,
        ErrorKind::Degraded => 3,
        ErrorKind::Refused => 4,
        ErrorKind::Busy => 5,
        _ => 1,
    })
}
