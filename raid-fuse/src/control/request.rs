//! The language of the control socket: one JSON object a line, each way.
//!
//! `{"cmd":"fail","member":"d2.img"}` is answered by `{"ok":true,"text":"..."}` or by
//! `{"error":{"kind":"busy","text":"..."}}`. Unknown commands and unknown fields are errors, so
//! that a typing mistake never does half of what was meant.

use crate::report::Report;
use raid_core::engine::SyncAction;
use raid_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What can be asked. A `member` is a path, a name without its folder where that is not
/// ambiguous, `slot:N` or `number:N`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Use this member no more; `detached`: those whose file is gone.
    Fail {
        /// Which.
        member: String,
    },
    /// Let a failed member or a spare go; `failed`: all failed ones; `detached` or `missing`:
    /// those whose file is gone.
    Remove {
        /// Which.
        member: String,
    },
    /// Take a new device in.
    Add {
        /// Its path or spec; absolute, because the daemon has no folder of its own.
        member: String,
        /// Whatever it carries.
        #[serde(default)]
        force: bool,
        /// Read it only when no other member can be.
        #[serde(default)]
        write_mostly: bool,
    },
    /// Take a former member back into its slot; `missing`: all that were removed since the mount.
    ReAdd {
        /// Its path or spec, or its name while it is failed.
        member: String,
        /// Read it only when no other member can be.
        #[serde(default)]
        write_mostly: bool,
    },
    /// Fill another device beside this member, to take over from it.
    Replace {
        /// The member that is to go.
        member: String,
        /// The spare, or a new device, that is to come; any spare if not said.
        #[serde(default)]
        with: Option<String>,
        /// Take a new device whatever it carries.
        #[serde(default)]
        force: bool,
    },
    /// Whether a member is read only when no other can be.
    WriteMostly {
        /// Which.
        member: String,
        /// Yes or no.
        on: bool,
    },
    /// What the array does by itself, in the words of md's `sync_action`.
    #[serde(rename = "sync_action")]
    SyncAction {
        /// `idle`, `frozen`, `resync`, `recover`, `check` or `repair`.
        action: String,
    },
    /// Give the array a write-intent bitmap, or take it away.
    Bitmap {
        /// `internal` or `none`.
        place: String,
        /// Bytes for each bit; chosen as mdadm does if not said.
        #[serde(default)]
        chunk: Option<u32>,
    },
    /// How fast jobs may go, in KiB of each member a second; what is not said stays.
    Limits {
        /// What a job takes even while users are active.
        #[serde(default)]
        min: Option<u32>,
        /// What it takes at most.
        #[serde(default)]
        max: Option<u32>,
    },
    /// How the array does.
    Status {},
}

/// The answer to a request that was done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Always true.
    pub ok: bool,
    /// What was done, for people; lines.
    pub text: String,
    /// How the array does, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<Box<Report>>,
}

impl Done {
    /// Done, and this is what was done.
    pub fn say(text: impl Into<String>) -> Done {
        Done { ok: true, text: text.into(), report: None }
    }
}

/// An answer as it is sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Done(Done),
    Failed { error: Failure },
}

#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    kind: String,
    text: String,
}

/// The words for kinds of errors.
const KINDS: [(ErrorKind, &str); 9] = [
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Metadata, "metadata"),
    (ErrorKind::Dead, "dead"),
    (ErrorKind::Degraded, "degraded"),
    (ErrorKind::Refused, "refused"),
    (ErrorKind::Busy, "busy"),
    (ErrorKind::Io, "io"),
    (ErrorKind::ReadOnly, "read-only"),
    (ErrorKind::Unsupported, "unsupported"),
];

/// A request out of a line.
pub fn parse(line: &[u8]) -> Result<Request> {
    serde_json::from_slice(line).map_err(|error| Error::invalid(format!("request: {error}")))
}

/// An answer as a line.
pub fn answer(result: Result<Done>) -> Vec<u8> {
    let answer = match result {
        Ok(done) => Answer::Done(done),
        Err(error) => {
            let kind = KINDS.iter().find(|(kind, _)| *kind == error.kind).map_or("io", |k| k.1);
            Answer::Failed { error: Failure { kind: kind.into(), text: error.to_string() } }
        }
    };
    let mut line = serde_json::to_vec(&answer).expect("strings and numbers can be JSON");
    line.push(b'\n');
    line
}

/// What a line of the daemon says.
pub fn understand(line: &[u8]) -> Result<Done> {
    match serde_json::from_slice(line) {
        Ok(Answer::Done(done)) => Ok(done),
        Ok(Answer::Failed { error }) => {
            let kind = KINDS.iter().find(|(_, word)| *word == error.kind);
            Err(Error::new(kind.map_or(ErrorKind::Io, |kind| kind.0), error.text))
        }
        Err(error) => Err(Error::new(ErrorKind::Io, format!("the daemon's answer: {error}"))),
    }
}

/// A word of md's `sync_action`.
pub fn sync_action(word: &str) -> Result<SyncAction> {
    Ok(match word {
        "idle" => SyncAction::Idle,
        "frozen" => SyncAction::Frozen,
        "resync" | "recover" => SyncAction::Resync,
        "check" => SyncAction::Check,
        "repair" => SyncAction::Repair,
        _ => {
            let expected = "idle, frozen, resync, recover, check or repair";
            return Err(Error::invalid(format!("found `{word}`, expected {expected}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let member = || "a.img".to_string();
        let all = [
            Request::Fail { member: member() },
            Request::Remove { member: member() },
            Request::Add { member: member(), force: true, write_mostly: true },
            Request::ReAdd { member: member(), write_mostly: false },
            Request::Replace { member: member(), with: Some("b".into()), force: false },
            Request::WriteMostly { member: member(), on: false },
            Request::SyncAction { action: "idle".into() },
            Request::Limits { min: Some(1), max: None },
            Request::Status {},
        ];
        for request in all {
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(parse(&line).unwrap(), request, "{}", String::from_utf8_lossy(&line));
        }
        let short = parse(br#"{"cmd":"re-add","member":"d2.img"}"#).unwrap();
        assert_eq!(short, Request::ReAdd { member: "d2.img".into(), write_mostly: false });
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let lines = [
            "",
            "{",
            "null",
            "[]",
            r#"{"cmd":"explode"}"#,
            r#"{"cmd":"fail"}"#,
            r#"{"cmd":"fail","member":7}"#,
            r#"{"cmd":"fail","member":"a","force":true}"#,
            r#"{"cmd":"status","verbose":true}"#,
            r#"{"cmd":"limits","min":-1}"#,
            r#"{"cmd":"limits","min":4294967296}"#,
            r#"{"member":"a"}"#,
            &deep,
        ];
        for line in lines {
            let error = parse(line.as_bytes()).expect_err(&line[..line.len().min(60)]);
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
        assert!(parse(&[0xff, 0xfe, 0]).is_err());
    }

    #[test]
    fn answers_keep_their_kind_and_words() {
        for (kind, _) in KINDS {
            let line = answer(Err(Error::new(kind, "words \"here\"\n")));
            let error = understand(&line).unwrap_err();
            assert_eq!((error.kind, error.to_string().as_str()), (kind, "words \"here\"\n"));
        }
        let line = answer(Ok(Done::say("did it")));
        assert_eq!(line, b"{\"ok\":true,\"text\":\"did it\"}\n");
        assert_eq!(understand(&line).unwrap().text, "did it");
    }
}
