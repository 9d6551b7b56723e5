//! Making a [`Report`]: from a running array, or from superblocks alone.

use super::{Bitmap, Health, IN_SYNC, Member, Report, Resync};
use raid_core::assembly::{layout_of, survives};
use raid_core::device;
use raid_core::engine::{self, JobKind, State, Status};
use raid_core::layout;
use raid_core::meta::assemble::{Assembly, Fate, Seat, SeatState};
use raid_core::meta::examine::{layout_name, printable};
use raid_core::meta::record::{ArrayRecord, MemberRecord};
use raid_core::meta::{md_bitmap, time, uuid};
use raid_core::units::{Sectors, Slot, SlotSet};

/// What a running array does not say itself.
#[derive(Clone, Debug, Default)]
pub struct Background {
    /// Name of the metadata format.
    pub metadata: String,
    /// The bitmap as it was at the start.
    pub bitmap: Option<Bitmap>,
    /// What was told at the start.
    pub warnings: Vec<String>,
}

/// The report of a running array.
pub fn live(status: &Status, background: &Background, dead: bool) -> Report {
    let live = |member: &&engine::Member| member.state != State::Failed;
    let seats = status.members.iter().enumerate();
    let seats = seats.map(|(slot, member)| seated(slot, member.as_ref().filter(live)));
    let extra = status.replacements.iter().enumerate();
    let extra = extra.filter(|(_, m)| m.is_some());
    let extra = extra.map(|(slot, member)| seated(slot, member.as_ref()));
    let mut members: Vec<Member> = seats.chain(extra).collect();
    // A failed device keeps no slot, as in md.
    let failed = status.members.iter().flatten().filter(|member| !live(member));
    let loose = failed.chain(&status.others);
    members.extend(loose.map(|member| Member { slot: None, ..known(member) }));
    let health = match (dead, status.degraded.is_empty()) {
        (true, _) => Health::Dead,
        (false, false) => Health::Degraded,
        (false, true) => Health::Ok,
    };
    let failed = members.iter().filter(|m| m.state == FAULTY).count();
    let rebuilding = members.iter().any(|member| member.state == REBUILDING);
    let counters = status.stats.rows().into_iter().map(|(key, value)| (key.into(), value.into()));
    let mut report = describe(&status.array, members);
    report.health = health;
    report.running = true;
    report.read_only = status.read_only;
    report.size_bytes = Some(status.shape.size.bytes());
    report.failed = failed as u16;
    report.metadata.clone_from(&background.metadata);
    let set = status.bitmap_bits.map_or(0, |(set, _)| set);
    report.bitmap = status.bitmap.as_ref().map(|bitmap| Bitmap { set, ..told(bitmap) });
    if report.bitmap.is_none() && status.read_only {
        // One that cannot be kept is there all the same.
        report.bitmap.clone_from(&background.bitmap);
    }
    let records = status.members.iter().flatten().map(|m| &m.record);
    let journal = status.others.iter().any(|m| m.state == State::Journal);
    report.consistency_policy = policy(&status.array, records, journal).into();
    report.warnings.clone_from(&background.warnings);
    report.warnings.extend(status.trouble.clone());
    report.resync = job(status);
    report.mismatch_cnt = status.mismatches;
    report.frozen = status.frozen;
    report.trouble.clone_from(&status.trouble);
    report.last_sync_action = status.last_job.map_or("none", action).into();
    report.counters = counters.collect();
    report.counters.insert("bitmap_writes".into(), status.bitmap_writes.into());
    report.state = words(&report, status.dirty, rebuilding);
    report
}

/// The job that runs, or the resync that waits.
fn job(status: &Status) -> Option<Resync> {
    if let Some(job) = status.job {
        return Some(Resync {
            running: true,
            action: action(job.kind).into(),
            done_bytes: job.done.bytes(),
            total_bytes: job.total.bytes(),
            speed_bytes: Sectors(job.speed).bytes(),
        });
    }
    let total_bytes = status.array.component.bytes();
    let action = "resync".into();
    let waiting = Resync { running: false, action, done_bytes: 0, total_bytes, speed_bytes: 0 };
    status.unsynced.then_some(waiting)
}

/// md's word in `last_sync_action`.
fn action(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Recovery => "recovery",
        other => other.word(),
    }
}

/// The report of an array that is not running.
pub fn offline(assembly: &Assembly, devices: &[device::Shared]) -> Report {
    let mut members: Vec<Member> = Vec::new();
    let mut unusable = SlotSet::new();
    for (slot, seat) in assembly.seats.iter().enumerate() {
        let mut member = vacant(slot);
        if let Some(seat) = seat {
            member = present(&seat.name, &seat.member);
            member.slot = Some(slot as u16);
            member.state = match seat.state {
                SeatState::InSync => IN_SYNC.into(),
                SeatState::Recovering(_) => REBUILDING.into(),
            };
        }
        if member.state != IN_SYNC {
            unusable.insert(Slot(slot as u16));
        }
        members.push(member);
    }
    members.extend(
        assembly
            .spares
            .iter()
            .map(|seat| Member { state: SPARE.into(), ..present(&seat.name, &seat.member) }),
    );
    let rebuilding = members.iter().any(|member| member.state == REBUILDING);
    let mut report = describe(&assembly.array, members);
    report.health = match (unusable.is_empty(), survives(&assembly.array, &unusable)) {
        (true, _) => Health::Ok,
        (false, true) => Health::Degraded,
        (false, false) => Health::Dead,
    };
    let lens: Vec<Sectors> = crate::cli::start::lens(assembly);
    let whole = report.component_bytes.is_some() || report.health == Health::Ok;
    let layout = layout_of(&assembly.array, &lens).ok().filter(|_| whole);
    report.size_bytes = layout.map(|layout| layout.shape().size.bytes());
    report.metadata = assembly.format.name.into();
    report.bitmap = bitmap(assembly, devices);
    let records = assembly.seats.iter().flatten().map(|seat| &seat.member);
    let journal = assembly.journal.is_some();
    report.consistency_policy = policy(&assembly.array, records, journal).into();
    report.resync = assembly.array.resync.map(|at| Resync {
        running: false,
        action: "resync".into(),
        done_bytes: at.bytes(),
        total_bytes: assembly.array.component.bytes(),
        speed_bytes: 0,
    });
    report.warnings = warnings(assembly);
    report.state = words(&report, assembly.dirty, rebuilding);
    report
}

/// The bitmap of an array whose members are `devices`, if it has one that makes sense.
pub fn bitmap(assembly: &Assembly, devices: &[device::Shared]) -> Option<Bitmap> {
    let read = |seat: &Seat| {
        let mut head = vec![0; Sectors(1).len()];
        device::read_at(&**devices.get(seat.candidate)?, seat.member.bitmap_at?, &mut head).ok()?;
        md_bitmap::parse(&head, &assembly.array.uuid).ok()
    };
    let bitmap = assembly.seats.iter().flatten().find_map(read)?;
    Some(told(&bitmap))
}

fn told(bitmap: &md_bitmap::Bitmap) -> Bitmap {
    Bitmap { chunk_bytes: bitmap.chunk_bytes.into(), bits: bitmap.bits(), set: 0 }
}

/// md's consistency policy.
fn policy<'a>(
    array: &ArrayRecord,
    members: impl Iterator<Item = &'a MemberRecord> + Clone,
    journal: bool,
) -> &'static str {
    let any = |test: fn(&MemberRecord) -> bool| members.clone().any(test);
    let (ppl, bitmap) = (any(|m| m.ppl.is_some()), any(|m| m.bitmap_at.is_some()));
    match () {
        () if !array.has_redundancy() => "none",
        () if journal => "journal",
        () if ppl => "ppl",
        () if bitmap => "bitmap",
        () => "resync",
    }
}

/// What was found when the array was put together, devices that were left out among it.
pub fn warnings(assembly: &Assembly) -> Vec<String> {
    let left_out = assembly.verdicts.iter().filter(|verdict| verdict.fate == Fate::Out);
    assembly.warnings.iter().cloned().chain(left_out.map(ToString::to_string)).collect()
}

const REBUILDING: &str = "spare rebuilding";
const SPARE: &str = "spare";
const JOURNAL: &str = "journal";
const FAULTY: &str = "faulty";

/// mdadm's words; `clean` never stands for an array that is not whole.
fn words(report: &Report, dirty: bool, rebuilding: bool) -> String {
    let mut words = vec![match (dirty, report.running) {
        (false, _) => "clean",
        (true, true) => "active",
        (true, false) => "dirty",
    }];
    match report.health {
        Health::Ok => {}
        Health::Degraded => words.push("degraded"),
        Health::Dead => words = vec!["FAILED"],
    }
    match report.resync.as_ref().map(|job| (job.running, job.action.as_str())) {
        Some((true, "resync")) => words.push("resyncing"),
        Some((true, "check")) => words.push("checking"),
        Some((true, "repair")) => words.push("repairing"),
        Some((false, _)) => words.push("resync needed"),
        _ => {}
    }
    if rebuilding {
        words.push("recovering");
    }
    if report.read_only {
        words.push("read-only");
    }
    words.join(", ")
}

/// What the array record alone says.
fn describe(array: &ArrayRecord, members: Vec<Member>) -> Report {
    let level = layout::level_by_number(array.level);
    let count = |test: &dyn Fn(&Member) -> bool| members.iter().filter(|m| test(m)).count() as u16;
    Report {
        uuid: uuid::to_text(&array.uuid),
        name: printable(&array.name),
        health: Health::Ok,
        state: String::new(),
        running: false,
        read_only: false,
        level: level.map_or(format!("level {}", array.level), |level| level.name.into()),
        level_number: array.level,
        layout: layout_name(array.level, array.layout),
        layout_number: array.layout,
        metadata: String::new(),
        chunk_bytes: array.chunk.bytes(),
        size_bytes: None,
        component_bytes: (!array.component.is_empty()).then(|| array.component.bytes()),
        slots: array.slots,
        active: count(&|member| member.state == IN_SYNC && !member.replacement),
        working: count(&|member| member.path.is_some() && member.state != FAULTY),
        failed: 0,
        created_seconds: time::seconds(array.ctime),
        updated_seconds: time::seconds(array.utime),
        events: array.events,
        bitmap: None,
        consistency_policy: String::new(),
        resync: None,
        frozen: false,
        trouble: None,
        mismatch_cnt: 0,
        last_sync_action: "none".into(),
        members,
        counters: serde_json::Map::new(),
        warnings: Vec::new(),
    }
}

fn seated(slot: usize, member: Option<&engine::Member>) -> Member {
    match member {
        Some(member) => Member { slot: Some(slot as u16), ..known(member) },
        None => vacant(slot),
    }
}

fn known(member: &engine::Member) -> Member {
    let state = match member.state {
        State::InSync => IN_SYNC,
        State::Recovering(_) => REBUILDING,
        State::Spare => SPARE,
        State::Journal => JOURNAL,
        State::Failed => FAULTY,
    };
    Member {
        state: state.into(),
        errors: member.errors,
        replacement: member.record.replacement,
        joined: Some(member.device.0),
        ..present(&member.name, &member.record)
    }
}

fn present(name: &str, record: &MemberRecord) -> Member {
    Member {
        path: Some(name.into()),
        number: Some(record.number),
        write_mostly: record.write_mostly,
        // Metadata 0.90 gives its members no ids.
        device_uuid: (record.device_uuid != [0; 16]).then(|| uuid::to_text(&record.device_uuid)),
        data_offset_bytes: Some(record.data_at.bytes()),
        ..nobody()
    }
}

fn vacant(slot: usize) -> Member {
    Member { slot: Some(slot as u16), state: "removed".into(), ..nobody() }
}

fn nobody() -> Member {
    Member {
        slot: None,
        path: None,
        number: None,
        state: String::new(),
        write_mostly: false,
        device_uuid: None,
        data_offset_bytes: None,
        errors: 0,
        replacement: false,
        joined: None,
    }
}
