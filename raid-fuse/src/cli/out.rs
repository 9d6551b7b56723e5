//! What goes to standard output and standard error.

use raid_core::error::{Error, Result};
use std::io::{ErrorKind, Write};

/// Prints `text` to standard output. A reader that went away (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    write(text.as_bytes()).map(drop)
}

/// Writes `bytes` to standard output; false if nobody reads any more.
pub fn write(bytes: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io("standard output", error)),
    }
}

/// Prints `value` as JSON, and nothing else.
pub fn json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::io("making JSON", std::io::Error::other(error)))?;
    print(&format!("{text}\n"))
}

/// Tells people something on standard error.
pub fn note(text: &str) {
    // Who closed standard error does not want to know.
    let _closed = writeln!(std::io::stderr(), "raid-fuse: {text}");
}
