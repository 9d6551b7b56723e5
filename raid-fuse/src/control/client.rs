//! Asking the daemon of a mount.

use super::request::{Done, Request, understand};
use super::server::LINE_MAX;
use crate::mountpoint;
use crate::mountpoint::detach;
use crate::rundir;
use raid_core::error::{Error, ErrorKind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Asks the daemon that serves `path`, and waits for its answer.
///
/// # Errors
/// What the daemon refuses, in its words; nothing of ours is mounted there; the daemon cannot be
/// reached.
pub fn ask(path: &Path, request: &Request) -> Result<Done> {
    let stream = connect(path)?;
    let lost = |error| Error::io(format!("asking the daemon of {}", path.display()), error);
    let mut line = serde_json::to_vec(request).expect("strings and numbers can be JSON");
    line.push(b'\n');
    (&stream).write_all(&line).map_err(lost)?;
    let mut answer = Vec::new();
    // The answer may hold a report, which has no fixed limit; the daemon is ours.
    BufReader::new(stream.take(LINE_MAX << 8)).read_until(b'\n', &mut answer).map_err(lost)?;
    match answer.is_empty() {
        false => understand(&answer),
        true => {
            let text = format!("the daemon of {} hung up", path.display());
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

fn connect(path: &Path) -> Result<UnixStream> {
    let point = mountpoint::resolve_mounted(path)?;
    let user = match detach::ours(&point) {
        Ok(entry) => entry.user.unwrap_or(0),
        Err(error) => return Err(error),
    };
    let shown = path.display();
    let Some(record) = rundir::find(&point, user) else {
        let text = format!("the daemon of {shown} keeps no record, so it cannot be asked");
        return Err(Error::new(ErrorKind::Unsupported, text));
    };
    rundir::connect(&point, user).map_err(|error| {
        let who = record.pid;
        let mut told = Error::io(format!("reaching the daemon of {shown} (process {who})"), error);
        if told.kind == ErrorKind::Invalid {
            told = Error::new(
                ErrorKind::Unsupported,
                format!("the daemon of {shown} (process {who}) does not listen: see its log"),
            );
        }
        told
    })
}
