//! Standard output of commands: all at once, as text or as JSON, and nothing else.
//!
//! A reader that stops early (`raid-fuse map ... | head`) is no error.

use raid_core::error::{Error, Result};
use serde_json::Value;
use std::io::{self, ErrorKind, Write};

/// Prints `text` as it is.
pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::io("writing the output", e)),
        _ => Ok(()),
    }
}

/// Prints `value`, indented; keys come in the order they were put in.
pub fn json(value: &Value) -> Result<()> {
    text(&format!("{value:#}\n"))
}
