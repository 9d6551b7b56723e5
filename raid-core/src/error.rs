//! The one error type: a small stable kind to branch on, and words for people.

use std::fmt;

/// What went wrong, coarse enough to be stable; `raid-fuse` turns it into an exit code or errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ErrorKind {
    /// The request or an option makes no sense for this array: the user must change it.
    Invalid,
    /// Metadata that is damaged, foreign, or of a version or feature we do not know.
    Metadata,
    /// Too few usable members to serve the data.
    Dead,
    /// Enough members, but fewer than the array has: needs the user's word (`--degraded`).
    Degraded,
    /// Something is there that would be overwritten or misused: needs `--force` or another name.
    Refused,
    /// Somebody else holds the member or the mount point.
    Busy,
    /// A member failed to read or write and no redundancy could make up for it.
    Io,
    /// A write to something that is read-only.
    ReadOnly,
    /// This machine lacks what the request needs (no /dev/fuse, no O_DIRECT).
    Unsupported,
}

/// An error with a kind, a sentence for people, and the cause below it if there is one.
#[derive(Debug)]
pub struct Error {
    /// What to branch on.
    pub kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with a sentence: what was found, what is needed, what to type next.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// An operating system error with what was being done to what.
    pub fn io(context: impl fmt::Display, source: std::io::Error) -> Error {
        let kind = match source.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorKind::Refused,
            std::io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            std::io::ErrorKind::NotFound => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error { kind, message: context.to_string(), source: Some(Box::new(source)) }
    }

    /// The same error, told from one layer up.
    pub fn context(self, context: impl fmt::Display) -> Error {
        Error { message: format!("{context}: {}", self.message), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|s| s.as_ref() as _)
    }
}
