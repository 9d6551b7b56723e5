//! Which array is meant, where members of several are given.

use super::members;
use super::start::parse_uuid;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::{Candidate, Group, groups};
use raid_core::meta::uuid;

/// The array that is meant, by id or by name.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Choice {
    /// Only members of this array
    #[arg(long, short = 'u', value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<[u8; 16]>,
    /// Only members of the array of this name, with or without its host (as `scan` shows it)
    #[arg(long, short = 'N', value_name = "NAME", conflicts_with = "uuid")]
    pub name: Option<String>,
}

impl Choice {
    /// The id of the array that is meant: the one asked for, or the only one there is. Nothing
    /// where no candidate belongs to any array.
    ///
    /// # Errors
    /// `Refused` where several are there and none was chosen, with the command for each.
    pub fn of(&self, candidates: &[Candidate]) -> Result<Option<[u8; 16]>> {
        if self.uuid.is_some() {
            return Ok(self.uuid);
        }
        let all = groups(candidates);
        let called = |group: &&Group| self.name.as_ref().is_none_or(|name| group.is_called(name));
        let found: Vec<&Group> = all.iter().filter(called).collect();
        match (&self.name, found.as_slice()) {
            (_, [only]) => Ok(Some(only.uuid)),
            (None, []) => Ok(None),
            (Some(name), []) => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "no member given is of an array called {name:?}{}",
                    there_are(&all, candidates)
                ),
            )),
            (_, several) => Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "the members given belong to {} arrays{}; choose one:{}",
                    several.len(),
                    self.name.as_ref().map(|n| format!(" called {n:?}")).unwrap_or_default(),
                    commands(several, candidates)
                ),
            )),
        }
    }
}

/// All there are, with the command for each.
fn there_are(groups: &[Group], candidates: &[Candidate]) -> String {
    match groups {
        [] => ", nor of any other".into(),
        some => {
            let some: Vec<&Group> = some.iter().collect();
            format!("; there are:{}", commands(&some, candidates))
        }
    }
}

/// `raid5 "home" of a, b, c`.
pub fn line(group: &Group, candidates: &[Candidate]) -> String {
    let names: Vec<&str> = group.members.iter().map(|&i| candidates[i].name.as_str()).collect();
    format!("{} of {}", group.label(), names.join(", "))
}

/// Each array with its members and the command that was typed, with the choice added.
fn commands(groups: &[&Group], candidates: &[Candidate]) -> String {
    let typed = typed();
    let entry = |group: &&Group| {
        let id = uuid::to_text(&group.uuid);
        let choice = ["--uuid", id.as_str()];
        let words = typed.iter().take(1).map(String::as_str).chain(choice);
        let words = words.chain(typed.iter().skip(1).map(String::as_str));
        let line = line(group, candidates);
        format!("\n  {line}:\n    raid-fuse {}", members::quoted(words))
    };
    groups.iter().map(entry).collect()
}

/// The words behind the program's name, without a choice by name that did not suffice.
fn typed() -> Vec<String> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--name" | "-N" => drop(words.next()),
            text if text.starts_with("--name=") || text.starts_with("-N") => {}
            _ => kept.push(word),
        }
    }
    kept
}
