//! One line per case: what mdadm and the kernel did with the same superblocks, or stricter.

use super::*;
use crate::meta::bytes::put;
use crate::meta::md1::packet::{Packet, checksum, field};
use crate::meta::record::DeviceRole;
use crate::meta::{create, enough, format, probe};

/// Sectors of a member: as in the reference runs, a small one with metadata 1.0.
const DEVICE: u64 = 600;

/// An array whose superblocks can be bent, one block per member.
#[derive(Clone)]
struct Images {
    blocks: Vec<Vec<u8>>,
    at: Sectors,
}

/// A clean array of `slots` members at events 10, 4 KiB chunks.
fn array(level: i32, slots: usize) -> Images {
    let new = |slot: usize| create::NewMember {
        sectors: Sectors(DEVICE),
        device_uuid: [slot as u8 + 1; 16],
        write_mostly: false,
        failfast: false,
    };
    let creation = create::create(&create::Request {
        format: format("1.0").unwrap(),
        level,
        layout: None,
        chunk: Some(Sectors(8)),
        members: (0..slots).map(|slot| Some(new(slot))).collect(),
        name: b"test".to_vec(),
        homehost: None,
        uuid: [7; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: true,
        zeroed: false,
        bitmap: None,
        log: None,
        force: true,
    })
    .unwrap();
    let at = creation.members[0].superblock.0;
    let blocks = creation.members.into_iter().map(|planned| planned.superblock.1).collect();
    let mut images = Images { blocks, at };
    images.all(field::EVENTS, &10u64.to_le_bytes());
    images
}

/// A RAID 5 of three members and a journal, with these events.
fn journaled(events: &[u64]) -> Images {
    let mut images = array(5, 4);
    images.all(field::RAID_DISKS, &[3]).all(field::FEATURES, &0x200u32.to_le_bytes());
    (0..4).for_each(|member| {
        images.calls(member, 3, 0xfffd);
    });
    images.events(events);
    images
}

/// A RAID 5 of three members with partial parity behind the superblocks.
fn with_ppl(bend: impl Fn(&mut Images) -> &mut Images) -> Images {
    let mut images = array(5, 3);
    images.all(field::FEATURES, &0x800u32.to_le_bytes()).all(field::BITMAP_OFFSET, &[8, 0, 8, 0]);
    bend(&mut images);
    images
}

impl Images {
    fn patch(&mut self, member: usize, at: usize, bytes: &[u8]) -> &mut Images {
        let block = &mut self.blocks[member];
        put(block, at, bytes);
        let sum = checksum(&block[..Packet::new(block).used()]);
        put(block, field::CHECKSUM, &sum.to_le_bytes());
        self
    }

    fn all(&mut self, at: usize, bytes: &[u8]) -> &mut Images {
        for member in 0..self.blocks.len() {
            self.patch(member, at, bytes);
        }
        self
    }

    fn events(&mut self, events: &[u64]) -> &mut Images {
        for (member, events) in events.iter().enumerate() {
            self.patch(member, field::EVENTS, &events.to_le_bytes());
        }
        self
    }

    /// `member`'s map calls device `number` this.
    fn calls(&mut self, member: usize, number: usize, role: u16) -> &mut Images {
        self.patch(member, field::ROLES + 2 * number, &role.to_le_bytes())
    }

    fn dirty(&mut self, from: u64) -> &mut Images {
        self.all(field::RESYNC_OFFSET, &from.to_le_bytes())
    }

    fn recovering(&mut self, member: usize, at: u64) -> &mut Images {
        self.patch(member, field::FEATURES, &2u32.to_le_bytes());
        self.patch(member, field::RECOVERY_OFFSET, &at.to_le_bytes())
    }

    fn candidate(&self, member: usize) -> Candidate {
        let mut read = |at: Sectors, buffer: &mut [u8]| {
            buffer.fill(0);
            for (k, chunk) in buffer.chunks_mut(512).enumerate() {
                let from = (at.0 + k as u64).checked_sub(self.at.0).map(|n| n as usize * 512);
                let bytes = from.and_then(|from| self.blocks[member].get(from..from + 512));
                chunk.copy_from_slice(bytes.unwrap_or(&[0; 512]));
            }
            Ok(())
        };
        let sightings = probe(Sectors(DEVICE), &mut read).unwrap();
        Candidate { name: format!("d{member}"), sectors: Sectors(DEVICE), sightings }
    }

    fn candidates(&self, omit: &[usize]) -> Vec<Candidate> {
        let members = (0..self.blocks.len()).filter(|member| !omit.contains(member));
        members.map(|member| self.candidate(member)).collect()
    }

    fn assemble(&self, omit: &[usize], options: &str) -> Result<Assembly, Refusal> {
        run(&self.candidates(omit), options)
    }

    /// The outcome in one line, the same whatever the order of the candidates.
    fn outcome(&self, omit: &[usize], options: &str) -> String {
        let mut candidates = self.candidates(omit);
        let first = line(run(&candidates, options));
        for _ in 0..candidates.len() {
            candidates.rotate_left(1);
            assert_eq!(line(run(&candidates, options)), first, "the order must not matter");
        }
        candidates.reverse();
        assert_eq!(line(run(&candidates, options)), first, "the order must not matter");
        first
    }
}

fn run(candidates: &[Candidate], options: &str) -> Result<Assembly, Refusal> {
    let has = |word: &str| options.split(' ').any(|option| option == word);
    let options = Options {
        uuid: None,
        degraded: has("degraded"),
        read_only: has("read-only"),
        overlay: has("overlay"),
        force: has("force"),
    };
    assemble(candidates, &options, &survives)
}

fn survives(array: &ArrayRecord, missing: &SlotSet) -> bool {
    let present = (0..array.slots).map(Slot).filter(|slot| !missing.contains(*slot)).collect();
    enough(array.level, array.layout, array.slots, &present)
}

/// `[UU_]`, `r` for rebuilding, then what is special; or the kind of refusal.
fn line(result: Result<Assembly, Refusal>) -> String {
    let assembly = match result {
        Ok(assembly) => assembly,
        Err(refusal) => return format!("{:?}", refusal.kind),
    };
    let mark = |seat: &Option<Seat>| match seat.as_ref().map(|seat| seat.state) {
        None => '_',
        Some(SeatState::InSync) => 'U',
        Some(SeatState::Recovering(_)) => 'r',
    };
    let marks: String = assembly.seats.iter().map(mark).collect();
    let flags = [
        (assembly.journal.is_some(), " journal"),
        (assembly.dirty, " dirty"),
        (assembly.read_only, " read-only"),
        (!assembly.forced.is_empty(), " forced"),
        (!assembly.spares.is_empty(), " spare"),
    ];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
    format!("[{marks}]{flags}")
}

macro_rules! cases {
    ($($name:ident: $array:expr, $omit:expr, $options:expr => $outcome:expr;)*) => {
        $(#[test]
        fn $name() {
            #[allow(unused_mut)]
            let mut images = $array;
            assert_eq!(images.outcome(&$omit, $options), $outcome);
        })*
    };
}

/// Applies `f` to a fresh array.
fn bent(level: i32, slots: usize, f: impl for<'a> Fn(&'a mut Images) -> &'a mut Images) -> Images {
    let mut images = array(level, slots);
    f(&mut images);
    images
}

/// The power went when only the device that is to fill slot 1 had been told so.
fn newcomer() -> Images {
    let mut images = array(5, 4);
    images.all(field::RAID_DISKS, &[3]).events(&[9, 1, 9, 10]).calls(3, 3, 1).calls(3, 1, FAULTY);
    [0, 2].into_iter().for_each(|member| {
        images.calls(member, 1, FAULTY).calls(member, 3, SPARE);
    });
    images.recovering(3, 0);
    images
}

/// The power went when only one member had been told that device 2 is to replace it.
fn relief() -> Images {
    let mut images = array(1, 3);
    images.all(field::RAID_DISKS, &[2]).events(&[10, 9, 9]).calls(0, 2, 0);
    images.calls(1, 2, SPARE).calls(2, 2, SPARE);
    images
}

const SPARE: u16 = 0xffff;
const FAULTY: u16 = 0xfffe;

cases! {
    all_there: array(5, 3), [], "" => "[UUU]";
    one_event_behind_is_fresh: bent(5, 3, |a| a.events(&[10, 10, 9])), [], "" => "[UUU]";
    two_events_behind_is_stale: bent(5, 3, |a| a.events(&[10, 10, 8])), [], "" => "Degraded";
    stale_stays_out: bent(5, 3, |a| a.events(&[10, 10, 8])), [], "degraded" => "[UU_]";
    a_newcomer_told_first_does_not_make_the_others_strangers:
        newcomer(), [], "degraded" => "[UrU]";
    a_replacement_told_last_waits_as_a_spare: relief(), [], "" => "[UU] spare";
    behind_and_stale: bent(5, 3, |a| a.events(&[10, 9, 8])), [], "degraded" => "[UU_]";
    two_stale_is_dead: bent(5, 3, |a| a.events(&[10, 8, 7])), [], "degraded" => "Dead";
    force_takes_the_newest_stale:
        bent(5, 3, |a| a.events(&[10, 8, 7])), [], "force" => "[UU_] read-only forced";
    force_on_an_overlay_may_write:
        bent(5, 3, |a| a.events(&[10, 8, 7])), [], "force overlay" => "[UU_] forced";
    the_freshest_map_decides_for_one_behind: bent(5, 3, |a| {
        a.events(&[10, 10, 9]).calls(0, 2, FAULTY).calls(1, 2, FAULTY)
    }), [], "degraded" => "[UU_]";
    called_failed_with_equal_events_is_out: bent(5, 3, |a| {
        a.calls(0, 2, FAULTY).calls(1, 2, FAULTY)
    }), [], "degraded" => "[UU_]";
    the_first_is_called_failed_with_equal_events: bent(5, 3, |a| {
        a.calls(1, 0, FAULTY).calls(2, 0, FAULTY)
    }), [], "degraded" => "[_UU]";
    older_says_the_freshest_failed: bent(5, 3, |a| {
        a.events(&[10, 10, 9]).calls(2, 0, FAULTY).calls(2, 1, 1)
    }), [], "" => "Degraded";
    dirty_all_there: bent(5, 3, |a| a.dirty(0)), [], "" => "[UUU] dirty";
    dirty_and_one_missing: bent(5, 3, |a| a.dirty(0)), [2], "degraded" => "Refused";
    dirty_and_one_missing_to_read:
        bent(5, 3, |a| a.dirty(0)), [2], "degraded read-only" => "[UU_] dirty read-only";
    dirty_and_one_missing_forced: bent(5, 3, |a| a.dirty(0)), [2], "force" => "[UU_]";
    resync_stopped_half_way: bent(5, 3, |a| a.dirty(200)), [], "" => "[UUU] dirty";
    raid6_dirty_one_missing: bent(6, 4, |a| a.dirty(0)), [3], "degraded" => "Refused";
    raid6_dirty_one_missing_forced: bent(6, 4, |a| a.dirty(0)), [3], "force" => "[UUU_] dirty";
    raid6_clean_two_missing: array(6, 4), [2, 3], "degraded" => "[UU__]";
    raid6_three_missing: array(6, 4), [1, 2, 3], "force" => "Dead";
    raid1_dirty_one_of_two: bent(1, 2, |a| a.dirty(0)), [1], "degraded" => "[U_] dirty";
    raid1_dirty_two_of_three: bent(1, 3, |a| a.dirty(0)), [1], "degraded" => "[U_U] dirty";
    raid10_dirty_three_of_four: bent(10, 4, |a| a.dirty(0)), [1], "degraded" => "[U_UU] dirty";
    raid4_dirty_parity_missing: bent(4, 3, |a| a.dirty(0)), [2], "degraded" => "Refused";
    raid4_dirty_data_missing: bent(4, 3, |a| a.dirty(0)), [0], "degraded" => "Refused";
    one_missing_unasked: array(5, 3), [1], "" => "Degraded";
    one_missing_asked: array(5, 3), [1], "degraded" => "[U_U]";
    one_missing_as_recorded: bent(5, 3, |a| {
        a.calls(0, 2, SPARE).calls(1, 2, SPARE)
    }), [2], "" => "Degraded";
    recovering_and_clean: bent(5, 3, |a| a.recovering(2, 256)), [], "" => "[UUr]";
    recovering_and_dirty:
        bent(5, 3, |a| a.dirty(0).recovering(2, 256)), [], "" => "Refused";
    recovering_counts_as_missing:
        bent(5, 3, |a| a.recovering(2, 256)), [0], "degraded" => "Dead";
    other_layout: bent(5, 3, |a| a.patch(1, field::LAYOUT, &[3])), [], "degraded" => "Metadata";
    other_uuid: bent(5, 3, |a| a.patch(1, field::UUID, &[3])), [], "degraded" => "Refused";
    other_size: bent(5, 3, |a| a.patch(1, field::SIZE, &[0x30, 2])), [], "degraded" => "Metadata";
    other_raid_disks:
        bent(5, 3, |a| a.patch(1, field::RAID_DISKS, &[4])), [], "degraded" => "Metadata";
    data_shorter_than_the_component: bent(5, 3, |a| {
        a.patch(1, field::DATA_SIZE, &400u64.to_le_bytes())
    }), [], "degraded" => "[U_U]";
    raid0_needs_all: array(0, 3), [1], "degraded force" => "Dead";
    raid1_lives_with_one: array(1, 3), [0, 1], "degraded" => "[__U]";
    split_brain_with_equal_events: bent(1, 2, |a| {
        a.calls(0, 1, FAULTY).calls(1, 0, FAULTY)
    }), [], "degraded force" => "Refused";
    split_brain_with_unequal_events: bent(1, 2, |a| {
        a.events(&[40, 10]).calls(0, 1, SPARE).calls(1, 0, FAULTY)
    }), [], "degraded force" => "Refused";
    half_of_a_split_brain: bent(1, 2, |a| {
        a.calls(0, 1, FAULTY).calls(1, 0, FAULTY)
    }), [1], "degraded" => "[U_]";
    everybody_calls_the_next_failed: bent(1, 3, |a| {
        a.calls(0, 1, FAULTY).calls(1, 2, FAULTY).calls(2, 0, FAULTY)
    }), [], "degraded" => "Refused";
    a_spare_waits: bent(1, 3, |a| {
        a.all(field::RAID_DISKS, &[2]);
        a.calls(0, 2, SPARE).calls(1, 2, SPARE).calls(2, 2, SPARE)
    }), [], "" => "[UU] spare";
    a_missing_journal_is_refused: bent(5, 3, |a| {
        a.all(field::FEATURES, &0x200u32.to_le_bytes())
    }), [], "read-only" => "Refused";
    a_missing_journal_forced: bent(5, 3, |a| {
        a.all(field::FEATURES, &0x200u32.to_le_bytes())
    }), [], "force" => "[UUU] read-only";
    a_journal_serves: journaled(&[10, 10, 10, 10]), [], "" => "[UUU] journal";
    a_journal_one_event_behind_serves:
        journaled(&[10, 10, 10, 9]), [], "" => "[UUU] journal";
    a_stale_journal_is_refused: journaled(&[10, 10, 10, 8]), [], "" => "Refused";
    a_stale_journal_forced: journaled(&[10, 10, 10, 8]), [], "force" => "[UUU] read-only";
    a_journal_of_a_later_time_is_refused: journaled(&[9, 9, 9, 11]), [], "" => "Refused";
    a_journal_that_is_no_longer_counted: {
        let mut images = journaled(&[10, 10, 10, 10]);
        images.calls(0, 3, SPARE).calls(1, 3, SPARE).calls(2, 3, SPARE);
        images
    }, [], "" => "Refused";
    a_degraded_array_with_its_journal:
        journaled(&[10, 10, 10, 10]), [1], "degraded" => "[U_U] journal";
    a_ppl: with_ppl(|a| a), [], "" => "[UUU]";
    a_ppl_that_is_dirty: with_ppl(|a| a.dirty(0)), [], "" => "[UUU] dirty";
    a_ppl_that_is_dirty_and_degraded:
        with_ppl(|a| a.dirty(0)), [1], "degraded" => "[U_U] dirty";
    a_ppl_cannot_stand_in_for_a_resync: with_ppl(|a| a.dirty(8)), [1], "degraded" => "Refused";
    a_reshape_cannot_be_mapped: bent(5, 3, |a| {
        a.all(field::FEATURES, &4u32.to_le_bytes())
    }), [], "force read-only" => "Metadata";
    unknown_features: bent(5, 3, |a| {
        a.all(field::FEATURES, &0x2000u32.to_le_bytes())
    }), [], "degraded" => "Metadata";
    unknown_features_forced: bent(5, 3, |a| {
        a.all(field::FEATURES, &0x2000u32.to_le_bytes())
    }), [], "force read-only" => "[UUU] read-only";
    a_logical_block_of_512: bent(5, 3, |a| {
        a.all(field::LOGICAL_BLOCK, &512u32.to_le_bytes())
    }), [], "" => "[UUU]";
    a_logical_block_of_8192: bent(5, 3, |a| {
        a.all(field::LOGICAL_BLOCK, &8192u32.to_le_bytes())
    }), [], "" => "[UUU] read-only";
    no_candidates: array(1, 2), [0, 1], "degraded" => "Metadata";
}

#[test]
fn a_bad_checksum_leaves_the_member_out() {
    let mut images = array(5, 3);
    images.blocks[2][field::CHECKSUM] ^= 1;
    assert_eq!(images.outcome(&[], ""), "Degraded");
    assert_eq!(images.outcome(&[], "degraded"), "[UU_]");
    let refusal = images.assemble(&[], "").unwrap_err();
    assert!(refusal.verdicts[2].why.contains("checksum is wrong"), "{refusal}");
}

#[test]
fn a_wrong_super_offset_leaves_the_member_out() {
    let mut images = array(5, 3);
    images.patch(2, field::SUPER_OFFSET, &[0]);
    assert_eq!(images.outcome(&[], "degraded"), "[UU_]");
    let refusal = images.assemble(&[], "").unwrap_err();
    assert!(refusal.verdicts[2].why.contains("says it lies at sector"), "{refusal}");
}

#[test]
fn two_copies_of_a_member_are_refused_by_name() {
    let images = array(1, 2);
    let mut candidates = images.candidates(&[]);
    candidates.push(Candidate { name: "copy".into(), ..images.candidate(1) });
    let refusal = run(&candidates, "degraded force").unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Refused);
    assert!(refusal.reason.contains("d1 and copy are two copies of one member"), "{refusal}");
}

#[test]
fn an_older_copy_of_a_member_is_refused_too() {
    let images = array(1, 2);
    let mut older = images.clone();
    older.events(&[2, 2]);
    let mut candidates = images.candidates(&[]);
    candidates.push(Candidate { name: "backup".into(), ..older.candidate(1) });
    let refusal = run(&candidates, "").unwrap_err();
    assert!(refusal.reason.contains("events 10 and 2"), "{refusal}");
}

#[test]
fn members_of_two_arrays_are_listed_with_how_to_choose() {
    let (one, mut two) = (array(1, 2), array(5, 3));
    two.all(field::UUID, &[9; 16]);
    let mut candidates = one.candidates(&[]);
    candidates.extend(two.candidates(&[]));
    let refusal = run(&candidates, "").unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Refused);
    assert!(refusal.reason.contains("--uuid 07070707:07070707:07070707:07070707  raid1"));
    assert!(refusal.reason.contains("--uuid 09090909:09090909:09090909:09090909  raid5"));
    let options = Options { uuid: Some([9; 16]), ..Options::default() };
    assert_eq!(line(assemble(&candidates, &options, &survives)), "[UUU]");
    let options = Options { uuid: Some([8; 16]), ..Options::default() };
    let refusal = assemble(&candidates, &options, &survives).unwrap_err();
    assert!(refusal.reason.contains("no device belongs to array 08080808"), "{refusal}");
}

#[test]
fn split_brain_offers_either_half() {
    let mut images = array(1, 2);
    images.calls(0, 1, FAULTY).calls(1, 0, FAULTY);
    let reason = images.assemble(&[], "").unwrap_err().reason;
    assert!(reason.contains("each member says the other is faulty"), "{reason}");
    assert!(reason.contains("--degraded --read-only: d0, or d1"), "{reason}");
}

#[test]
fn a_replacement_is_recognised_and_serves_when_the_old_member_is_gone() {
    let mut images = array(5, 4);
    images.all(field::RAID_DISKS, &[3]);
    (0..4).for_each(|member| {
        images.calls(member, 3, 1);
    });
    images.patch(3, field::FEATURES, &0x10u32.to_le_bytes());
    assert_eq!(images.outcome(&[], ""), "[UUU]");
    assert_eq!(images.outcome(&[1], ""), "[UUU]");
    let assembly = images.assemble(&[], "").unwrap();
    assert_eq!(assembly.verdicts[3].fate, Fate::Replacement(Slot(1)));
    assert_eq!(assembly.replacements.len(), 1);
    images.patch(3, field::FEATURES, &0x12u32.to_le_bytes());
    assert_eq!(images.outcome(&[1], "degraded"), "[U_U]");
}

#[test]
fn events_do_not_go_back_behind_the_journals() {
    let assembly = journaled(&[9, 9, 9, 10]).assemble(&[], "").unwrap();
    assert_eq!((assembly.array.events, assembly.journal.is_some()), (10, true));
}

#[test]
fn absent_members_lose_their_role_in_what_will_be_written() {
    let assembly = array(5, 3).assemble(&[1], "degraded").unwrap();
    let slot = |n| DeviceRole::Active(Slot(n));
    assert_eq!(assembly.array.roles, [slot(0), DeviceRole::Spare, slot(2)]);
    assert_eq!(assembly.missing.iter().collect::<Vec<Slot>>(), [Slot(1)]);
    assert_eq!(assembly.in_sync().len(), 2);
}

#[test]
fn each_refusal_says_what_became_of_every_member() {
    let mut images = array(5, 3);
    images.events(&[10, 4, 3]);
    let text = images.assemble(&[], "degraded").unwrap_err().to_string();
    assert!(text.contains("d1: out: stale: it has 4 events, d0 has 10"), "{text}");
    assert!(text.contains("d0: in, slot 0"), "{text}");
    assert!(text.contains("slots 1, 2 had none"), "{text}");
    assert!(text.contains("--force --read-only"), "{text}");
}
