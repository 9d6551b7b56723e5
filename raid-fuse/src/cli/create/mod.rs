//! `create`: a new array, planned whole and checked before the first byte is written.

use super::start::parse_uuid;
use super::{amount, exit, members, out};
use clap::builder::NonEmptyStringValueParser;
use raid_core::assembly::{self, Content};
use raid_core::device::{OpenOptions, Shared};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::{self, Level, Params, raid1};
use raid_core::meta::assemble::Candidate;
use raid_core::meta::create::{
    CHUNK_DEFAULT, Creation, NewBitmap, NewLog, NewMember, Request, check_room, create,
};
use raid_core::meta::md0::{self, V0_90};
use raid_core::meta::{self, Format, uuid};
use raid_core::units::Sectors;
use std::process::ExitCode;
use std::time::SystemTime;

mod text;

pub use text::md as describe;

/// The word for a slot without a member.
pub const MISSING: &str = "missing";

/// Chunks of the members a geometry is tried with: each of at most 255 far copies has a row.
const COMPONENT_CHUNKS: u64 = 1 << 8;

const EXAMPLES: &str = "\
Options are those of mdadm. Sizes take K, M, G and T (powers of 1024); --chunk, --size and
--data-offset are in KiB if bare. All members are checked before the first byte is written.

Examples:
  truncate -s 64M d0.img d1.img d2.img d3.img
  raid-fuse create -l 5 -n 4 -c 64 d0.img d1.img d2.img d3.img
  raid-fuse create -l 10 -n 4 -p f2 d0.img d1.img d2.img d3.img
  raid-fuse create -l 1 -n 2 d0.img missing
  raid-fuse create -l 6 -n 5 --dry-run d?.img      (shows the plan and writes nothing)";

/// Arguments of `create`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The members by slot: files, block devices, or the word `missing`
    #[arg(required = true, value_name = "MEMBER", value_parser = NonEmptyStringValueParser::new())]
    members: Vec<String>,
    /// linear, 0, 1, 4, 5, 6 or 10; also raid5, stripe, mirror
    #[arg(long, short, value_parser = parse_level)]
    level: &'static Level,
    /// Number of members, missing ones included
    #[arg(long, short = 'n', value_name = "N")]
    raid_devices: u16,
    /// Chunk: 64 or 64K [default: 512K]
    #[arg(long, short, value_name = "SIZE", value_parser = amount::kib)]
    chunk: Option<Sectors>,
    /// left-symmetric, ls, ra, ...; RAID 10: n2, f2, o2; RAID 0: original, alternate
    #[arg(long, short = 'p', alias = "parity")]
    layout: Option<String>,
    /// Metadata: 1.0 (at the end), 1.1 (at the start), 1.2 (4K from the start), 0.90 (old)
    #[arg(long, short = 'e', default_value = "1.2", value_parser = parse_format)]
    metadata: &'static Format,
    /// Use only so much of each member; 0 or max: as much as fits [default: max]
    #[arg(long, short = 'z', value_name = "SIZE", value_parser = parse_size)]
    size: Option<Size>,
    /// Where data begin on each member [default: mdadm's choice]
    #[arg(long, value_name = "SIZE", value_parser = amount::kib)]
    data_offset: Option<Sectors>,
    /// The array's name, at most 32 bytes
    #[arg(long, short = 'N', default_value = "", hide_default_value = true)]
    name: String,
    /// The host to put before the name
    #[arg(long, value_name = "HOST")]
    homehost: Option<String>,
    /// Id of the array [default: random]
    #[arg(long, short = 'u', value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Id of a member; once for each that is not missing [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    device_uuid: Vec<[u8; 16]>,
    /// Creation time in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..1 << 40))]
    ctime: Option<u64>,
    /// The redundancy is right already: no resync
    #[arg(long)]
    assume_clean: bool,
    /// Write-intent bitmap: internal or none
    #[arg(long, short, default_value = "none", value_parser = parse_bitmap)]
    bitmap: Bitmap,
    /// What one bit of the bitmap stands for [default: 64M, or more for large members]
    #[arg(long, value_name = "SIZE", value_parser = amount::kib)]
    bitmap_chunk: Option<Sectors>,
    /// What keeps redundancy right through a crash: resync, bitmap, journal or ppl
    #[arg(long, short = 'k', value_name = "POLICY", value_parser = parse_policy)]
    consistency_policy: Option<Policy>,
    /// A device that every write goes through first (RAID 4, 5 and 6)
    #[arg(long, value_name = "DEVICE", value_parser = NonEmptyStringValueParser::new())]
    write_journal: Option<String>,
    /// Slots of members to read from only if nothing else has the data
    #[arg(long, short = 'W', value_name = "SLOT", value_delimiter = ',')]
    write_mostly: Vec<u16>,
    /// Overwrite what is there; accept an array of one member
    #[arg(long, short)]
    force: bool,
    /// As with mdadm, where it answers all questions; none is asked here
    #[arg(long = "run", short = 'R')]
    _run: bool,
    /// Show what would be made, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// A member size as typed.
#[derive(Clone, Copy)]
enum Size {
    Max,
    Exactly(Sectors),
}

/// A bitmap as typed.
#[derive(Clone, Copy, PartialEq)]
enum Bitmap {
    None,
    Internal,
}

/// A consistency policy as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Resync,
    Bitmap,
    Journal,
    Ppl,
}

type Parsed<T> = std::result::Result<T, String>;

fn parse_level(text: &str) -> Parsed<&'static Level> {
    layout::level_by_name(text).map_err(|error| error.to_string())
}

fn parse_format(text: &str) -> Parsed<&'static Format> {
    let name = if matches!(text, "1" | "default") { "1.2" } else { text };
    meta::format(name).map_err(|error| error.to_string())
}

fn parse_size(text: &str) -> Parsed<Size> {
    match text {
        "max" => Ok(Size::Max),
        _ => amount::kib(text).map(|size| match size.is_empty() {
            true => Size::Max,
            false => Size::Exactly(size),
        }),
    }
}

fn parse_bitmap(text: &str) -> Parsed<Bitmap> {
    match text {
        "none" => Ok(Bitmap::None),
        "internal" => Ok(Bitmap::Internal),
        _ => Err(format!("found `{text}`, expected internal or none")),
    }
}

fn parse_policy(text: &str) -> Parsed<Policy> {
    match text {
        "resync" => Ok(Policy::Resync),
        "bitmap" => Ok(Policy::Bitmap),
        "journal" => Ok(Policy::Journal),
        "ppl" => Ok(Policy::Ppl),
        _ => Err(format!("found `{text}`, expected resync, bitmap, journal or ppl")),
    }
}

/// Checks everything, then writes.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Err(error) = check_words(args) {
        return Ok(exit::misuse(&error));
    }
    let present: Vec<String> = present(args).chain(args.write_journal.as_ref()).cloned().collect();
    let open = match args.dry_run {
        true => OpenOptions::looking(),
        false => OpenOptions::default(),
    };
    check_there(&present)?;
    let devices = members::open(&present, &open, None)?;
    let (creation, zeroed) = plan(args, &devices)?;
    check_content(args, &devices)?;
    if !args.dry_run {
        assembly::make(&creation, &devices)?;
    }
    out::print(&text::made(args, &creation, zeroed))?;
    Ok(ExitCode::SUCCESS)
}

/// The members that are not missing.
fn present(args: &Args) -> impl Iterator<Item = &String> {
    args.members.iter().filter(|member| *member != MISSING)
}

/// A policy needs its means, and none that belongs to another.
fn check_policy(args: &Args) -> Result<()> {
    let (bitmap, journal) = (args.bitmap == Bitmap::Internal, args.write_journal.is_some());
    let fault = match args.consistency_policy {
        Some(Policy::Bitmap) if !bitmap => "--consistency-policy=bitmap needs --bitmap=internal",
        Some(Policy::Journal) if !journal => {
            "--consistency-policy=journal needs a device for it: --write-journal DEVICE"
        }
        Some(Policy::Resync | Policy::Ppl) if bitmap => {
            "a bitmap makes it another policy; leave out --bitmap or --consistency-policy"
        }
        Some(Policy::Resync | Policy::Bitmap | Policy::Ppl) if journal => {
            "a journal makes it another policy; leave out --write-journal or --consistency-policy"
        }
        _ => return Ok(()),
    };
    Err(Error::invalid(fault))
}

/// A name that cannot be shown is none, and an array has no device here.
fn check_names(args: &Args) -> Result<()> {
    let names = [("--name", Some(&args.name)), ("--homehost", args.homehost.as_ref())];
    for (option, name) in names {
        if let Some(name) = name.filter(|name| name.contains(char::is_control)) {
            return Err(Error::invalid(format!(
                "{option} {name:?} has a control character; give one that can be printed"
            )));
        }
    }
    let is_array = |word: &&String| {
        let rest = word.strip_prefix("/dev/md");
        rest.is_some_and(|rest| rest.starts_with(|c: char| c == '/' || c.is_ascii_digit()))
    };
    let one_more = args.members.len() == usize::from(args.raid_devices) + 1;
    match args.members.first().filter(is_array) {
        Some(array) if one_more => Err(Error::invalid(format!(
            "{array} has to go: arrays have no device here, they are mounted on a directory; the \
             same command without it"
        ))),
        _ => Ok(()),
    }
}

/// What can be wrong without looking at a member.
fn check_words(args: &Args) -> Result<()> {
    check_names(args)?;
    let (given, wanted) = (args.members.len(), usize::from(args.raid_devices));
    if given != wanted {
        return Err(Error::invalid(format!(
            "--raid-devices says {wanted}, but {given} members are given; name all of them, with \
             the word {MISSING} for those that are not there"
        )));
    }
    if args.level.number == 1 && args.chunk.is_some() {
        return Err(Error::invalid(
            "raid1 has no chunks: every member holds all; leave out --chunk",
        ));
    }
    check_policy(args)?;
    let present = present(args).count();
    if present == 0 {
        return Err(Error::invalid("all members are missing; give at least one"));
    }
    if !args.device_uuid.is_empty() && args.device_uuid.len() != present {
        return Err(Error::invalid(format!(
            "--device-uuid is given {} times for {present} members; give one for each, in order",
            args.device_uuid.len()
        )));
    }
    if !args.device_uuid.is_empty() && args.metadata.name == V0_90.name {
        return Err(Error::invalid("metadata 0.90 has no ids of members; leave out --device-uuid"));
    }
    if let Some(slot) = args.write_mostly.iter().find(|slot| **slot >= args.raid_devices) {
        return Err(Error::invalid(format!(
            "--write-mostly {slot} is no slot; the slots are 0 to {}",
            args.raid_devices.saturating_sub(1)
        )));
    }
    if args.bitmap_chunk.is_some() && args.bitmap == Bitmap::None {
        return Err(Error::invalid("--bitmap-chunk needs --bitmap=internal"));
    }
    check_geometry(args)
}

/// Words that no members could make a geometry of, whatever their size.
fn check_geometry(args: &Args) -> Result<()> {
    let level = args.level;
    let layout = (level.parse_layout)(args.layout.as_deref().unwrap_or("default"))?;
    let chunk = match level.number {
        -1 | 1 => args.chunk.unwrap_or_default(),
        _ => args.chunk.unwrap_or(CHUNK_DEFAULT),
    };
    // Any chunk divides it, and every count of far copies fits.
    let component = chunk.max(raid1::UNIT).times(COMPONENT_CHUNKS);
    let members = vec![component; usize::from(args.raid_devices)];
    let slots = args.raid_devices;
    (level.make)(&Params { layout, chunk, slots, component, members }).map(drop)
}

/// A member that is not there, or an empty file, is made by the user, who knows its size.
fn check_there(members: &[String]) -> Result<()> {
    let files = members.iter().filter(|m| !m.contains(':') && !m.starts_with("/dev/"));
    for member in files {
        let what = match std::fs::metadata(member) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist",
            Ok(meta) if meta.is_file() && meta.len() == 0 => "is empty",
            _ => continue,
        };
        return Err(Error::invalid(format!(
            "{member} {what}; check the name, or make a file: truncate -s 64M {member}"
        )));
    }
    Ok(())
}

/// Nothing that is there is overwritten without the user's word.
fn check_content(args: &Args, devices: &[Shared]) -> Result<()> {
    let mut found = Vec::new();
    for device in devices {
        let content = assembly::content(&**device)?;
        if !content.is_empty() {
            let facts = device.facts();
            found.push(Found { name: facts.name.clone(), sectors: facts.sectors, content });
        }
    }
    let unknown = devices.iter().find(|device| assembly::holds_data(&***device));
    match (found.is_empty(), unknown) {
        (true, Some(device)) if !args.force && !args.assume_clean => Err(Error::new(
            ErrorKind::Refused,
            format!(
                "{} holds data, of a kind that is not recognised; nothing was changed\n\
                 to overwrite it all the same: the same command with --force",
                device.facts().name
            ),
        )),
        (true, _) => Ok(()),
        (false, _) if args.force => {
            out::note(&text::overwritten(&found));
            Ok(())
        }
        (false, _) => Err(Error::new(ErrorKind::Refused, text::in_the_way(&found))),
    }
}

/// The plan, and whether all members are known to hold zeros.
fn plan(args: &Args, devices: &[Shared]) -> Result<(Creation, bool)> {
    let mut request = request(args, devices)?;
    for device in devices.iter().take(present(args).count()) {
        let facts = device.facts();
        check_room(&request, facts.sectors).map_err(|error| error.context(&facts.name))?;
    }
    // Where the data lie does not depend on what they are.
    request.zeroed = true;
    let hopeful = create(&request)?;
    // A journal holds no data; it comes behind the members.
    let planned = hopeful.members.iter().zip(devices);
    let zeroed = hopeful.array.has_redundancy()
        && !args.assume_clean
        && planned
            .clone()
            .all(|(member, device)| assembly::data_is_zero(&**device, member.member.data_at));
    if zeroed {
        return Ok((hopeful, true));
    }
    request.zeroed = false;
    Ok((create(&request)?, false))
}

fn request(args: &Args, devices: &[Shared]) -> Result<Request> {
    let level = args.level;
    let word = args.layout.as_deref().map(level.parse_layout).transpose()?;
    let mut ids = args.device_uuid.iter().copied();
    let mut left = devices.iter();
    let mut slots = Vec::new();
    for (slot, member) in args.members.iter().enumerate() {
        if member == MISSING {
            slots.push(None);
            continue;
        }
        let device = left.next().expect("every member that is not missing was opened");
        slots.push(Some(NewMember {
            sectors: device.facts().sectors,
            device_uuid: ids.next().map_or_else(members::random_id, Ok)?,
            write_mostly: args.write_mostly.contains(&(slot as u16)),
            failfast: false,
        }));
    }
    let chunk_bytes = args.bitmap_chunk.map(|chunk| {
        u32::try_from(chunk.bytes()).ok().filter(|bytes| bytes.is_power_of_two()).ok_or_else(|| {
            Error::invalid("--bitmap-chunk must be a power of two below 4G, as in 64M")
        })
    });
    let bitmap = NewBitmap { chunk_bytes: chunk_bytes.transpose()? };
    Ok(Request {
        format: args.metadata,
        level: level.number,
        layout: word,
        chunk: args.chunk,
        members: slots,
        name: args.name.clone().into_bytes(),
        homehost: args.homehost.clone().map(String::into_bytes),
        uuid: args.uuid.map_or_else(|| new_id(args), Ok)?,
        ctime: args.ctime.unwrap_or_else(now),
        size: match args.size {
            Some(Size::Exactly(size)) => Some(size),
            Some(Size::Max) | None => None,
        },
        data_at: args.data_offset,
        assume_clean: args.assume_clean,
        zeroed: false,
        bitmap: (args.bitmap == Bitmap::Internal).then_some(bitmap),
        log: log(args, left.next())?,
        force: args.force,
    })
}

/// The log that was asked for; the journal's device comes behind those of the members.
fn log(args: &Args, journal: Option<&Shared>) -> Result<Option<NewLog>> {
    Ok(match journal {
        Some(device) => Some(NewLog::Journal(NewMember {
            sectors: device.facts().sectors,
            device_uuid: members::random_id()?,
            write_mostly: false,
            failfast: false,
        })),
        None => (args.consistency_policy == Some(Policy::Ppl)).then_some(NewLog::Ppl),
    })
}

/// A new id of an array; with 0.90 the host is a part of it, as it has no name to stand in.
fn new_id(args: &Args) -> Result<[u8; 16]> {
    let id = members::random_id()?;
    Ok(match &args.homehost {
        Some(host) if args.metadata.name == V0_90.name => md0::id_with_host(&id, host.as_bytes()),
        _ => id,
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Only for the texts.
fn id_text(id: &[u8; 16]) -> String {
    uuid::to_text(id)
}

/// A member that holds something.
struct Found {
    name: String,
    sectors: Sectors,
    content: Content,
}

impl Found {
    /// What a member of the array that is there would be; looked at once more, as superblocks
    /// are not copied.
    fn candidate(&self) -> Candidate {
        let (name, sectors) = (self.name.clone(), self.sectors);
        let looked = members::look(&name).and_then(|device| assembly::examine(&*device));
        // What cannot be read now is no member either.
        looked.unwrap_or(Candidate { name, sectors, sightings: Vec::new() })
    }
}
