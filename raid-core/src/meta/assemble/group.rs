//! Which arrays the candidates belong to, before anything is decided about them.

use super::Candidate;
use crate::meta::{Identity, Sighting, examine, uuid};
use std::collections::BTreeMap;

/// An array of which members were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub uuid: [u8; 16],
    /// Its name, opaque; what the freshest member says.
    pub name: Vec<u8>,
    /// md's level number; what the freshest member says.
    pub level: i32,
    /// Its members, as indices into the candidates, ascending.
    pub members: Vec<usize>,
}

impl Group {
    /// `raid5 "home"`, or `raid5 8a0e18a3:60ce8f4a:169c4bee:917744a6` without a name.
    pub fn title(&self) -> String {
        let level = examine::level_name(self.level);
        match self.name.is_empty() {
            true => format!("{level} {}", uuid::to_text(&self.uuid)),
            false => format!("{level} {:?}", examine::printable(&self.name)),
        }
    }

    /// `raid5 "home"`, or `raid5` without a name: for where its members are named beside it.
    pub fn label(&self) -> String {
        match self.name.is_empty() {
            true => examine::level_name(self.level),
            false => self.title(),
        }
    }

    /// True if the array is called `name`, with or without the host before it.
    pub fn is_called(&self, name: &str) -> bool {
        let own = String::from_utf8_lossy(&self.name);
        !own.is_empty() && (own == name || own.split_once(':').is_some_and(|(_, own)| own == name))
    }
}

/// All arrays of which `candidates` carry a superblock with the right checksum, by id.
pub fn groups(candidates: &[Candidate]) -> Vec<Group> {
    let mut found: BTreeMap<[u8; 16], (u64, Group)> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        for Identity { uuid, name, level, events, .. } in sound(candidate) {
            let none = || (0, Group { uuid, name: Vec::new(), level, members: Vec::new() });
            let (most, group) = found.entry(uuid).or_insert_with(none);
            if group.members.is_empty() || events > *most {
                (*most, group.name, group.level) = (events, name, level);
            }
            if group.members.last() != Some(&index) {
                group.members.push(index);
            }
        }
    }
    found.into_values().map(|(_, group)| group).collect()
}

/// What the superblocks say that can be believed.
pub fn sound(candidate: &Candidate) -> impl Iterator<Item = Identity> + '_ {
    candidate.sightings.iter().map(Sighting::identity).filter(|identity| identity.is_sound)
}
