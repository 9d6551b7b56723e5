//! What the commands for a mounted array share.

use super::{mount, out};
use crate::control::Request;
use crate::control::client::ask;
use crate::control::members::absolute;
use crate::report::Report;
use raid_core::error::Result;
use std::path::Path;
use std::process::ExitCode;

/// Words that stand for several members.
const GROUPS: &[&str] = &["failed", "faulty", "detached", "missing"];

/// Asks the same for each member, in order, up to the first that is refused.
pub fn each(
    mountpoint: &Path,
    members: &[String],
    request: &dyn Fn(String) -> Request,
) -> Result<ExitCode> {
    for member in members {
        let done = ask(mountpoint, &request(named(member)))?;
        out::print(&format!("{}\n", done.text))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A member as the daemon understands it, which has another folder than we.
pub fn named(member: &str) -> String {
    match GROUPS.contains(&member) {
        true => member.to_string(),
        false => absolute(member),
    }
}

/// How the array does.
pub fn report(mountpoint: &Path) -> Result<Report> {
    mount::read(mountpoint)
}
