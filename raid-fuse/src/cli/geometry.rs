//! The geometry a question is about: typed with mdadm's letters, or taken from members.
//!
//! Nothing is written, and members are only looked at. What is impossible for a level is refused
//! with the level's own rule.

use super::amount::{self, Scale};
use raid_core::assembly::{examine, layout_of};
use raid_core::device::{self, OpenOptions};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::{
    self, Layout, Level, Params, check, level_by_name, level_by_number, raid1,
};
use raid_core::meta::Found;
use raid_core::meta::create::CHUNK_DEFAULT;
use raid_core::meta::record::DeviceRole;
use raid_core::units::{SECTOR, Sectors, Slot, SlotSet};
use serde_json::{Value, json};

/// Chunks of a member whose size nobody gave: every small count of far copies divides it.
const CHUNKS_ASSUMED: u64 = 48;

/// Rows of each far copy at least, where nobody gave a size.
const FAR_ROWS_ASSUMED: u64 = 4;

/// A geometry, in mdadm's letters or from members.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Geometry")]
#[group(skip)]
pub struct Args {
    /// Level: linear, 0, 1, 4, 5, 6, 10 (or raid5, stripe, mirror ...)
    #[arg(short, long, value_name = "LEVEL", allow_hyphen_values = true)]
    pub level: Option<String>,

    /// Number of members
    #[arg(short = 'n', long = "raid-devices", value_name = "N")]
    pub raid_devices: Option<u16>,

    /// Chunk: KiB, or with a unit as in 64K [default: 512K]
    #[arg(short, long, value_name = "SIZE")]
    pub chunk: Option<String>,

    /// Layout: left-symmetric, ls, la, n2, f2, o2, original ..., or its number
    #[arg(short = 'p', long, aliases = ["parity", "raid0-layout"], value_name = "LAYOUT")]
    pub layout: Option<String>,

    /// Data on each member: KiB, or with a unit; 8c is 8 chunks [default: 48 chunks]
    #[arg(short = 'z', long, value_name = "SIZE", conflicts_with = "member_sizes")]
    pub size: Option<String>,

    /// Data on each member where they differ, by slot: 3c,6c,6c
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub member_sizes: Vec<String>,

    /// Take the geometry from this member; again for each member of a raid0 or linear
    #[arg(
        long,
        value_name = "MEMBER",
        conflicts_with_all = ["level", "raid_devices", "chunk", "size", "member_sizes"]
    )]
    pub from: Vec<String>,
}

/// A layout with the words for it.
#[derive(Debug)]
pub struct Geometry {
    /// The layout.
    pub layout: Box<dyn Layout>,
    /// Its level.
    pub level: &'static Level,
    /// md's layout word.
    pub word: u32,
    /// Data sectors of each member by slot, as far as they are known.
    pub members: Vec<Sectors>,
    /// True if the size of members was not given.
    pub assumed: bool,
}

impl Args {
    /// True if nothing was given at all.
    pub fn is_empty(&self) -> bool {
        self.level.is_none() && self.from.is_empty()
    }

    /// Builds the layout, or says why there is none.
    pub fn build(&self) -> Result<Geometry> {
        if !self.from.is_empty() {
            return self.members_geometry();
        }
        let name = self.level.as_deref().ok_or_else(|| {
            Error::invalid(
                "which array? Give -l LEVEL -n MEMBERS, as in -l5 -n4, or --from MEMBER to take \
                 it from a member",
            )
        })?;
        let level = level_by_name(name)?;
        let word = (level.parse_layout)(self.layout.as_deref().unwrap_or("default"))?;
        let chunk = self.chunk_of(level)?;
        let members = self.members_of(level, word, chunk)?;
        let component = match level.number {
            -1 | 0 => Sectors::ZERO,
            _ => members.iter().min().copied().unwrap_or_default(),
        };
        let slots = members.len() as u16;
        let params = Params { layout: word, chunk, slots, component, members: members.clone() };
        let layout = (level.make)(&params)?;
        let assumed = self.size.is_none() && self.member_sizes.is_empty();
        Ok(Geometry { layout, level, word, members, assumed })
    }

    fn chunk_of(&self, level: &Level) -> Result<Sectors> {
        let Some(text) = &self.chunk else {
            return Ok(if matches!(level.number, -1 | 1) { Sectors::ZERO } else { CHUNK_DEFAULT });
        };
        if level.number == 1 {
            let message = "raid1 has no chunk: every member holds the whole array; leave out -c";
            return Err(Error::invalid(message));
        }
        let bytes = amount::of("--chunk", text, Scale { bare: 1024, chunk: None })?;
        match bytes.is_multiple_of(SECTOR) && bytes > 0 {
            true => Ok(Sectors::floor_bytes(bytes)),
            false => Err(Error::invalid(format!(
                "--chunk: {text} is {bytes} bytes; a chunk is whole KiB, as in -c 64"
            ))),
        }
    }

    /// Data sectors of each member.
    fn members_of(&self, level: &Level, word: u32, chunk: Sectors) -> Result<Vec<Sectors>> {
        let scale = Scale { bare: 1024, chunk: Some(counted(chunk)) };
        let parse =
            |text: &String| amount::of("member size", text, scale).map(Sectors::floor_bytes);
        if !self.member_sizes.is_empty() {
            let sizes = self.member_sizes.iter().map(parse).collect::<Result<Vec<_>>>()?;
            return match self.raid_devices {
                Some(n) if n as usize != sizes.len() => Err(Error::invalid(format!(
                    "-n says {n} members, but --member-sizes has {}; leave out -n",
                    sizes.len()
                ))),
                _ if sizes.len() > check::SLOTS_MAX as usize => {
                    Err(Error::invalid(format!("{} members are too many", sizes.len())))
                }
                _ => Ok(sizes),
            };
        }
        let count = self.raid_devices.ok_or_else(|| {
            Error::invalid(format!(
                "how many members? Give -n N; {} needs at least {}",
                level.name, level.slots_min
            ))
        })?;
        let far = if level.number == 10 { u64::from(word >> 8 & 0xff) } else { 1 };
        let size = match &self.size {
            Some(text) => parse(text)?,
            None => counted(chunk).times(CHUNKS_ASSUMED.max(far * FAR_ROWS_ASSUMED)),
        };
        Ok(vec![size; count as usize])
    }

    /// The geometry that members agree on; only their own order of raid0 can be overruled.
    fn members_geometry(&self) -> Result<Geometry> {
        let mut records: Vec<(&str, Found)> = Vec::new();
        for name in &self.from {
            records.push((name, record(name)?));
        }
        let (first, newest) = records
            .iter()
            .max_by_key(|(_, found)| found.array.events)
            .expect("--from was given at least once");
        let mut array = newest.array.clone();
        if let Some((name, _)) = records.iter().find(|(_, found)| found.array.uuid != array.uuid) {
            return Err(Error::invalid(format!("{name} and {first} are of different arrays")));
        }
        newest.startable().map_err(|why| Error::new(ErrorKind::Metadata, why))?;
        let level = level_by_number(array.level)?;
        if let Some(text) = &self.layout {
            array.layout = (level.parse_layout)(text)?;
        }
        let mut members = vec![Sectors::ZERO; array.slots as usize];
        for (_, found) in &records {
            if let DeviceRole::Active(slot) = array.role(found.member.number)
                && let Some(member) = members.get_mut(slot.index())
            {
                *member = found.member.data_len;
            }
        }
        if matches!(array.level, -1 | 0) {
            let absent = (0..array.slots).map(Slot).filter(|s| members[s.index()].is_empty());
            let absent: SlotSet = absent.collect();
            if !absent.is_empty() {
                return Err(Error::invalid(format!(
                    "{} is built from the sizes of all members: give --from also for slots \
                     {absent}",
                    level.name
                )));
            }
        } else {
            members = vec![array.component; array.slots as usize];
        }
        let layout = layout_of(&array, &members)?;
        Ok(Geometry { layout, level, word: array.layout, members, assumed: false })
    }
}

/// What `c` counts where the chunk is `chunk`: md's own step of 64 KiB where there is none.
fn counted(chunk: Sectors) -> Sectors {
    if chunk.is_empty() { raid1::UNIT } else { chunk }
}

/// The record of the member `name`.
fn record(name: &str) -> Result<Found> {
    let device = device::open(name, &OpenOptions::looking())?;
    let candidate = examine(&*device)?;
    let mut problem = None;
    for sighting in candidate.sightings {
        match sighting.record {
            Ok(found) => return Ok(found),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    let none = || Error::new(ErrorKind::Metadata, "no md superblock found");
    Err(problem.unwrap_or_else(none).context(name))
}

impl Geometry {
    /// One line: level, members, layout with its number, chunk.
    pub fn title(&self) -> String {
        let shape = self.layout.shape();
        let members = if shape.slots == 1 { "member" } else { "members" };
        let mut title = format!("{}, {} {members}", self.level.name, shape.slots);
        if let Some(name) = self.layout_name() {
            title.push_str(&format!(", {name} (layout {})", word_text(self.level, self.word)));
        }
        if !shape.chunk.is_empty() {
            title.push_str(&format!(", chunk {}", amount::size(shape.chunk.bytes())));
        }
        title
    }

    /// The layout's name; nothing where the level has only one.
    pub fn layout_name(&self) -> Option<String> {
        let name = (self.level.layout_name)(self.word);
        let has_layouts = !self.level.layouts.is_empty() || self.level.number == 10;
        has_layouts.then_some(name)
    }

    /// What a note says where the size of members was not given.
    pub fn note(&self) -> String {
        let Some(size) = self.members.first().filter(|_| self.assumed) else {
            return String::new();
        };
        let chunks = match self.layout.shape().chunk {
            Sectors::ZERO => String::new(),
            chunk => format!(" ({} chunks)", size.div_floor(chunk)),
        };
        let size = amount::size(size.bytes());
        format!("members of {size}{chunks} are assumed; give -z SIZE for others\n")
    }

    /// The geometry for programs.
    pub fn json(&self) -> Value {
        let shape = self.layout.shape();
        json!({
            "level": self.level.name,
            "layout": self.layout_name(),
            "layout_number": self.word,
            "members": shape.slots,
            "chunk_bytes": shape.chunk.bytes(),
            "member_bytes": self.members.iter().map(|size| size.bytes()).collect::<Vec<_>>(),
            "array_bytes": shape.size.bytes(),
            "member_size_assumed": self.assumed,
        })
    }

    /// What `c` counts and a row is high: the chunk, or 64 KiB where there is none.
    pub fn chunk(&self) -> Sectors {
        counted(self.layout.shape().chunk)
    }

    /// The byte of the array or member that `text` stands for.
    pub fn offset(&self, what: &str, text: &str) -> Result<u64> {
        amount::of(what, text, Scale { bare: 1, chunk: Some(self.chunk()) })
    }

    /// The set of `slots`, if the array has them; `what` names the option in messages.
    pub fn slots(&self, what: &str, slots: &[u16]) -> Result<SlotSet> {
        let count = self.layout.shape().slots;
        match slots.iter().find(|&&slot| slot >= count) {
            Some(slot) => Err(Error::invalid(format!(
                "{what}: there is no slot {slot}; {count} members are slots 0 to {}",
                count - 1
            ))),
            None => Ok(slots.iter().copied().map(Slot).collect()),
        }
    }

    /// The geometry of `words` as a shell would split them: for tests.
    #[cfg(test)]
    pub fn of(words: &str) -> Result<Geometry> {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let words = ["x"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words).expect("the words are options").args.build()
    }
}

/// The layout word as documents write it: RAID 10's in hexadecimal.
fn word_text(level: &Level, word: u32) -> String {
    if level.number == 10 { format!("{word:#x}") } else { word.to_string() }
}

/// Slots as numbers, for JSON.
pub fn slot_numbers(set: &SlotSet) -> Vec<u16> {
    set.iter().map(|slot| slot.0).collect()
}

/// True for levels whose pieces are counted alike over the array, so that numbers of chunks
/// mean something (all but linear).
pub fn counts_chunks(layout: &dyn layout::Layout) -> bool {
    layout.shape().level != -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_rule_of_each_level() {
        assert!(Geometry::of("-l0 -n3 -c12").is_ok());
        assert!(Geometry::of("-l5 -n3 -c 4K").is_ok());
        let said = |words| Geometry::of(words).unwrap_err().to_string();
        assert!(said("-l5 -n3 -c12").contains("power of two of at least 4 KiB"));
        assert!(said("-l1 -n2 -c64").contains("raid1 has no chunk"));
        assert!(said("-l0 -n2 -c 100b").contains("whole KiB"));
    }

    #[test]
    fn what_is_missing_or_contradicts_is_told() {
        let said = |words| Geometry::of(words).unwrap_err().to_string();
        assert!(said("").contains("-l LEVEL -n MEMBERS"));
        assert!(said("-l5").contains("how many members"));
        assert!(said("-l0 -n2 --member-sizes 3c,4c,5c").contains("-n says 2 members"));
        assert!(said("-l 7 -n2").contains("known are linear, raid0"));
        assert!(said("-l10 -n3 -p n4").contains("4 copies: that needs at least 4 members, not 3"));
        assert!(said("-l5 -n3 -p f2").contains("raid5 has no layout 'f2'"));
    }

    #[test]
    fn titles_name_the_layout_and_its_number() {
        let title = |words| Geometry::of(words).unwrap().title();
        assert_eq!(title("-l5 -n4"), "raid5, 4 members, left-symmetric (layout 2), chunk 512 KiB");
        assert_eq!(
            title("-l10 -n2 -p f2 -c64"),
            "raid10, 2 members, far=2 (layout 0x201), chunk 64 KiB"
        );
        assert_eq!(title("-l1 -n2"), "raid1, 2 members");
        assert_eq!(title("-l -1 -n1"), "linear, 1 member");
    }

    #[test]
    fn every_printed_layout_name_can_be_typed() {
        for level in layout::LEVELS.iter().filter(|level| !level.layouts.is_empty()) {
            for &(_, word) in level.layouts {
                let name = (level.layout_name)(word);
                assert_eq!((level.parse_layout)(&name).unwrap(), word, "{} {name}", level.name);
            }
        }
    }

    #[test]
    fn any_count_of_far_copies_fits_the_assumed_size() {
        for copies in 2..=64 {
            let words = format!("-l10 -n64 -p f{copies}");
            assert!(Geometry::of(&words).is_ok(), "{words}");
        }
    }
}
