//! Small text files of a volume: what they are called, what they say, and what each open handle
//! shows of them.

use fuser::{Errno, ReplyData};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What a text is in the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file that can only be read.
    Fixed,
    /// A file whose owner can write a word to it.
    Writable,
    /// A symbolic link; the text is where it leads.
    Link,
}

/// A small file beside the volume, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// Where it is, from the mount point; folders are parted by slashes and made as needed.
    pub path: String,
    /// What it says.
    pub body: String,
    /// What it is.
    pub kind: Kind,
}

impl Text {
    /// A file that can only be read.
    pub fn fixed(path: impl Into<String>, body: impl Into<String>) -> Text {
        Text { path: path.into(), body: body.into(), kind: Kind::Fixed }
    }

    /// A file that can be written, too.
    pub fn writable(path: impl Into<String>, body: impl Into<String>) -> Text {
        Text { path: path.into(), body: body.into(), kind: Kind::Writable }
    }

    /// A symbolic link to `target`.
    pub fn link(path: impl Into<String>, target: impl Into<String>) -> Text {
        Text { path: path.into(), body: target.into(), kind: Kind::Link }
    }
}

/// The text each open handle shows, made when it was opened.
#[derive(Default)]
pub struct OpenTexts {
    texts: Mutex<HashMap<u64, Arc<String>>>,
}

impl OpenTexts {
    /// `handle` shows `text`.
    pub fn open(&self, handle: u64, text: String) {
        self.texts.lock().insert(handle, Arc::new(text));
    }

    /// `handle` is closed.
    pub fn close(&self, handle: u64) {
        self.texts.lock().remove(&handle);
    }

    /// Answers a read of `size` bytes at `at`.
    pub fn read(&self, handle: u64, at: u64, size: u32, reply: ReplyData) {
        let text = self.texts.lock().get(&handle).cloned();
        let Some(text) = text else { return reply.error(Errno::EBADF) };
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(size as usize).min(text.len());
        reply.data(&text.as_bytes()[start..end]);
    }
}
