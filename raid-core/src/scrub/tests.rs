//! Members in memory, one thing wrong, and what must come out.

use super::*;
use crate::code;
use crate::device::mem::MemDevice;
use crate::device::{read_at, write_at};
use crate::layout::{self, Code, Params, Role, Stripe};
use crate::sim::Rng;
use crate::units::{Slot, StripeNo};
use std::sync::Arc;

/// Where data begin on member `slot`: another place on each.
fn data_at(slot: u16) -> Sectors {
    Sectors(64 + 8 * u64::from(slot))
}

/// An array of `rows` chunks a member whose redundancy is right.
fn array(level: i32, word: u32, chunk: u64, slots: u16, rows: u64) -> Target {
    let component = Sectors(if level == 1 { rows * 128 + 5 } else { rows * chunk });
    let params = Params {
        layout: word,
        chunk: Sectors(if level == 1 { 0 } else { chunk }),
        slots,
        component,
        members: vec![component; slots.into()],
    };
    let layout = layout::make(level, &params).unwrap();
    let member = |slot| {
        let sectors = data_at(slot) + component;
        Some(Member {
            name: format!("d{slot}"),
            device: Arc::new(MemDevice::new(format!("d{slot}"), sectors).unwrap()),
            data_at: data_at(slot),
            complete: None,
            bad_blocks: Vec::new(),
            write_mostly: false,
        })
    };
    let members = (0..slots).map(member).collect();
    let target = Target { layout, members, unsynced: Unsynced::default() };
    let mut random = Rng::new(7);
    for no in 0..target.layout.shape().stripes {
        fill(&target, &target.layout.stripe(StripeNo(no)), &mut random);
    }
    target
}

fn fill(target: &Target, stripe: &Stripe, random: &mut Rng) {
    let noise = |random: &mut Rng| -> Vec<u8> {
        (0..stripe.len.len() / 8).flat_map(|_| random.number().to_le_bytes()).collect()
    };
    let data: Vec<Vec<u8>> = stripe.data().map(|_| noise(random)).collect();
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let (mut p, mut q) = (data[0].clone(), data[0].clone());
    code::xor(&slices, &mut p);
    if stripe.units.iter().any(|unit| unit.role == Role::Q) {
        let all: Vec<Option<&[u8]>> = stripe
            .units
            .iter()
            .map(|unit| match unit.role {
                Role::Data(index) => Some(slices[usize::from(index)]),
                _ => None,
            })
            .collect();
        code::q(&judge::by_power(stripe, &all), &mut q);
    }
    for unit in &stripe.units {
        let bytes = match unit.role {
            Role::Data(index) => &data[usize::from(index)],
            Role::Copy(_) => &data[0],
            Role::P => &p,
            Role::Q => &q,
        };
        let member = target.members[unit.slot.index()].as_ref().unwrap();
        write_at(&*member.device, member.data_at + unit.at, bytes).unwrap();
    }
}

/// Inverts `len` bytes at byte `skip` of sector `at` after the data offset.
fn flip(target: &Target, slot: u16, at: u64, skip: usize, len: usize) {
    let member = target.members[usize::from(slot)].as_ref().unwrap();
    let mut bytes = vec![0; (skip + len).next_multiple_of(512)];
    let at = member.data_at + Sectors(at);
    read_at(&*member.device, at, &mut bytes).unwrap();
    bytes[skip..][..len].iter_mut().for_each(|byte| *byte = !*byte);
    write_at(&*member.device, at, &bytes).unwrap();
}

fn run(target: &Target) -> (Summary, Vec<Finding>) {
    run_with(target, &Options::default())
}

fn run_with(target: &Target, options: &Options) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let summary = scan(target, options, &mut |f| findings.push(f), &mut |_, _| {});
    (summary, findings)
}

fn apply(target: &Target, fixes: &[Fix]) {
    for fix in fixes {
        let member = target.members[fix.slot.index()].as_ref().unwrap();
        write_at(&*member.device, member.data_at + fix.at, &fix.new).unwrap();
    }
}

/// (level, layout word, chunk, slots) of every kind.
const KINDS: &[(i32, u32, u64, u16)] = &[
    (1, 0, 0, 2),
    (1, 0, 0, 3),
    (4, 0, 8, 3),
    (5, 0, 16, 3),
    (5, 2, 128, 4),
    (6, 0, 16, 5),
    (6, 2, 16, 5),
    (6, 8, 16, 6),
    (6, 10, 8, 5),
    (6, 18, 16, 5),
    (10, 0x102, 128, 4),
    (10, 0x102, 16, 3),
    (10, 0x201, 8, 3),
    (10, 0x1_0201, 256, 4),
    (10, 0x103, 16, 4),
];

#[test]
fn what_is_right_is_found_right_and_read_whole() {
    for &(level, word, chunk, slots) in KINDS {
        let target = array(level, word, chunk, slots, 12);
        let (summary, findings) = run(&target);
        let shape = target.layout.shape();
        assert!(summary.is_clean() && findings.is_empty(), "{shape:?}: {summary:?}");
        assert_eq!(summary.stripes, shape.stripes);
        let rows = shape.size.0.div_ceil(u64::from(shape.data_units));
        assert_eq!(summary.pages, rows.div_ceil(8), "{shape:?}");
        assert_eq!(summary.mismatch_cnt, 0);
    }
}

/// The numbers are computed by hand from md's formulas.
#[test]
fn a_page_of_a_raid5_is_named_with_all_it_concerns() {
    let target = array(5, 2, 1024, 4, 128);
    flip(&target, 1, 123_456, 0, 4096);
    let (summary, findings) = run(&target);
    assert_eq!((summary.mismatch_cnt, summary.differing, findings.len()), (8, 1, 1));
    let finding = &findings[0];
    assert_eq!((finding.stripe, finding.low), (StripeNo(120), Sectors(576)));
    assert_eq!(finding.verdict, Verdict::CannotTell);
    let places: Vec<_> =
        finding.parts.iter().map(|part| (part.unit.slot.0, part.array_at.map(|at| at.0))).collect();
    assert_eq!(places, [(0, Some(369_216)), (1, Some(370_240)), (2, Some(371_264)), (3, None)]);
    assert_eq!(finding.parts[3].unit.role, Role::P);
    assert!(finding.parts.iter().all(|part| finding.member_at(part) == Sectors(123_456)));
    assert_eq!(target.device_at(finding, &finding.parts[1]), Some(Sectors(123_456 + 72)));
    let inverted: Vec<u8> =
        finding.parts[1].content.as_ref().unwrap().iter().map(|byte| !byte).collect();
    assert_eq!(finding.parts[1].implied.as_ref(), Some(&inverted));
    assert_eq!(finding.candidates().count(), 4);
    let fixes = fixes(Code::P, finding, Policy::Md).unwrap();
    assert_eq!((fixes.len(), fixes[0].slot, fixes[0].role), (1, Slot(3), Role::P));
    apply(&target, &fixes);
    assert!(run(&target).0.is_clean());
}

#[test]
fn raid6_names_every_single_liar_and_gets_it_back() {
    for &(level, word, chunk, slots) in KINDS.iter().filter(|kind| kind.0 == 6) {
        for slot in 0..slots {
            let target = array(level, word, chunk, slots, 8);
            flip(&target, slot, 7 * chunk + 3, 100, 1);
            let (summary, findings) = run(&target);
            assert_eq!((findings.len(), summary.mismatch_cnt), (1, 8), "{word} {slot}");
            let finding = &findings[0];
            let Verdict::Liars(liars) = &finding.verdict else { panic!("{word}: {finding:?}") };
            assert_eq!(finding.parts[liars[0]].unit.slot, Slot(slot));
            assert_eq!(finding.stripe, StripeNo(7));
            assert_eq!(summary.liars[usize::from(slot)], 1);
            assert_eq!(finding.parts[liars[0]].difference(), Some(3 * 512 + 100..3 * 512 + 101));
            apply(&target, &fixes(Code::PQ, finding, Policy::Liars).unwrap());
            flip(&target, slot, 7 * chunk + 3, 100, 1);
            assert_eq!(run(&target).1, findings, "{word} {slot}: the old content was back");
            apply(&target, &fixes(Code::PQ, finding, Policy::Md).unwrap());
            assert!(run(&target).0.is_clean());
        }
    }
}

#[test]
fn two_liars_in_a_row_are_not_blamed_on_one() {
    let target = array(6, 2, 16, 5, 8);
    flip(&target, 1, 7 * 16, 100, 1);
    flip(&target, 3, 7 * 16, 200, 1);
    let (summary, findings) = run(&target);
    assert_eq!(findings[0].verdict, Verdict::Several);
    assert_eq!((findings[0].candidates().count(), summary.mismatch_cnt), (0, 8));
    assert_eq!(fixes(Code::PQ, &findings[0], Policy::Liars), None);
    apply(&target, &fixes(Code::PQ, &findings[0], Policy::Md).unwrap());
    assert!(run(&target).0.is_clean());
}

#[test]
fn a_degraded_raid6_still_sees_that_something_is_wrong() {
    for &(level, word, chunk, slots) in KINDS.iter().filter(|kind| kind.0 == 6) {
        for (missing, liar) in (0..slots).flat_map(|m| (0..slots).map(move |l| (m, l))) {
            if missing == liar {
                continue;
            }
            let mut target = array(level, word, chunk, slots, 2);
            target.members[usize::from(missing)] = None;
            assert!(run(&target).0.is_clean(), "{word}: without {missing}");
            flip(&target, liar, 5, 17, 2);
            let (_, findings) = run(&target);
            assert_eq!(findings.len(), 1, "{word}: without {missing}, {liar} wrong");
            let finding = &findings[0];
            assert_eq!(finding.verdict, Verdict::CannotTell);
            let part = finding.parts.iter().find(|part| part.unit.slot == Slot(liar)).unwrap();
            let mut right = part.content.clone().unwrap();
            let at = (5 - finding.low.0 as usize % chunk as usize) * 512 + 17;
            right[at..at + 2].iter_mut().for_each(|byte| *byte = !*byte);
            assert_eq!(part.implied, Some(right), "{word}: without {missing}, {liar} wrong");
            assert_eq!(finding.candidates().count(), usize::from(slots) - 1);
            assert_eq!(fixes(Code::PQ, finding, Policy::Md), None);
        }
    }
}

#[test]
fn copies_are_counted_by_window_and_shown_by_sector() {
    let target = array(1, 0, 0, 2, 3);
    flip(&target, 1, 130, 0, 1024);
    flip(&target, 1, 140, 5, 1);
    flip(&target, 0, 384, 0, 1);
    let (summary, findings) = run(&target);
    assert_eq!(summary.mismatch_cnt, 128 + 5, "the last window has 5 sectors");
    let places: Vec<_> = findings.iter().map(|f| (f.stripe.0, f.low.0, f.len.0)).collect();
    assert_eq!(places, [(1, 2, 2), (1, 12, 1), (3, 0, 1)]);
    assert!(findings.iter().all(|f| f.verdict == Verdict::CannotTell));
    let [a, b] = [&findings[0].parts[0], &findings[0].parts[1]];
    assert_eq!((&a.content, &b.content), (&b.implied, &a.implied));
    assert_eq!(a.array_at, Some(Sectors(130)));
    findings.iter().for_each(|f| apply(&target, &fixes(Code::Copy, f, Policy::Md).unwrap()));
    assert!(run(&target).0.is_clean());
}

#[test]
fn three_copies_vote_sector_by_sector() {
    let target = array(1, 0, 0, 3, 2);
    flip(&target, 0, 6, 0, 1024);
    flip(&target, 2, 8, 0, 512);
    let (summary, findings) = run(&target);
    assert_eq!(summary.mismatch_cnt, 2 * 128, "both others differ from the first");
    let verdicts: Vec<_> = findings.iter().map(|f| (f.low.0, f.len.0, &f.verdict)).collect();
    let (first, third) = (Verdict::Liars(vec![0]), Verdict::Liars(vec![2]));
    assert_eq!(verdicts, [(6, 2, &first), (8, 1, &third)]);
    assert_eq!(summary.liars, [1, 0, 1]);
    findings.iter().for_each(|f| apply(&target, &fixes(Code::Copy, f, Policy::Liars).unwrap()));
    assert!(run(&target).0.is_clean());
    flip(&target, 0, 6, 0, 1);
    flip(&target, 1, 6, 1, 1);
    let (_, findings) = run(&target);
    assert_eq!(findings[0].verdict, Verdict::CannotTell);
    assert_eq!(fixes(Code::Copy, &findings[0], Policy::Liars), None);
}

#[test]
fn a_run_of_sectors_over_a_page_border_is_one_finding() {
    let target = array(10, 0x102, 128, 4, 4);
    flip(&target, 3, 133, 0, 10 * 512);
    let (summary, findings) = run(&target);
    assert_eq!((findings.len(), findings[0].len, summary.differing), (1, Sectors(10), 2));
    assert_eq!(findings[0].parts[0].content.as_ref().unwrap().len(), 5120);
    assert_eq!(summary.mismatch_cnt, 128);
}

#[test]
fn what_a_resync_has_not_reached_is_no_mismatch() {
    let mut target = array(5, 2, 16, 3, 8);
    flip(&target, 0, 3, 0, 1);
    flip(&target, 0, 16 * 6 + 3, 0, 1);
    target.unsynced = Unsynced::new(Some(Sectors(16 * 4)));
    let (summary, findings) = run(&target);
    assert_eq!((findings.len(), summary.unsynced, summary.pages), (1, 8, 8));
    assert_eq!(target.unsynced.stripes(&*target.layout), std::slice::from_ref(&(4..8)));
    let all = Options { unsynced_too: true, ..Options::default() };
    assert_eq!(run_with(&target, &all).1.len(), 2);
    let limit = Options { limit: Some(1), ..all };
    let (summary, findings) = run_with(&target, &limit);
    assert!(summary.cut && findings.len() == 1, "{summary:?}");
}

#[test]
fn a_bitmap_narrows_down_what_is_unsynced() {
    let bitmap = crate::meta::md_bitmap::Bitmap {
        version: 4,
        uuid: [0; 16],
        events: 1,
        events_cleared: 1,
        sync_size: Sectors(128),
        state: 0,
        chunk_bytes: 4096,
        daemon_sleep: 5,
        write_behind: 0,
        sectors_reserved: 8,
        nodes: 0,
    };
    let mut area = vec![0; 4096];
    area[256] = 0b0011_0000;
    area[257] = 0b0000_0001;
    let mut target = array(5, 2, 16, 3, 8);
    target.unsynced = Unsynced::new(Some(Sectors(0)));
    target.unsynced.add_bitmap(&bitmap, &area);
    assert_eq!(target.unsynced.stripes(&*target.layout), [2..3, 4..5]);
    let (summary, _) = run(&target);
    assert_eq!((summary.unsynced, summary.pages), (3, 13));
    assert!(!target.unsynced.touches(Sectors(0), Sectors(32)));
    assert!(target.unsynced.touches(Sectors(0), Sectors(33)));
}

#[test]
fn bad_blocks_and_unfinished_rebuilds_cannot_be_compared() {
    let mut target = array(5, 2, 16, 3, 8);
    flip(&target, 1, 16, 0, 512);
    let member = target.members[1].as_mut().unwrap();
    member.bad_blocks = vec![(data_at(1) + Sectors(17), Sectors(1))];
    let (summary, findings) = run(&target);
    assert_eq!((summary.unreadable, summary.pages, findings.len()), (1, 15, 0));
    let member = target.members[1].as_mut().unwrap();
    member.bad_blocks.clear();
    member.complete = Some(Sectors(16));
    let (summary, findings) = run(&target);
    assert_eq!((summary.missing, summary.pages, findings.len()), (14, 2, 0));
    assert_eq!(target.incomplete().len(), 1);
    let mut target = array(1, 0, 0, 3, 4);
    target.members[0].as_mut().unwrap().complete = Some(Sectors(128));
    flip(&target, 2, 200, 0, 1);
    let (summary, findings) = run(&target);
    assert_eq!((findings.len(), summary.mismatch_cnt, summary.missing), (1, 128, 0));
    assert_eq!(findings[0].parts[0].content, None);
}

#[test]
fn a_sample_is_drawn_by_its_seed_without_repetition() {
    let target = array(5, 2, 16, 3, 40);
    for row in 0..40 {
        flip(&target, 0, row * 16, 0, 1);
    }
    let rows = |seed| -> Vec<u64> {
        let options = Options { sample: Some((10, seed)), ..Options::default() };
        run_with(&target, &options).1.iter().map(|finding| finding.stripe.0).collect()
    };
    assert_eq!(rows(1).len(), 10);
    assert_eq!(rows(1), rows(1));
    assert_ne!(rows(1), rows(2));
    assert!(rows(3).windows(2).all(|pair| pair[0] < pair[1]));
    let all = Options { sample: Some((100, 1)), ..Options::default() };
    assert_eq!(run_with(&target, &all).0.stripes, 40);
}
