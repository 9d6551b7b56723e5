//! Scenarios told event by event: what the engine asks for, in which order, and when it answers.

use super::*;
use crate::layout::{self, Params};
use crate::meta::create::{NewBitmap, NewMember, Request, create};
use crate::meta::record::MemberRecord;
use crate::meta::{md_bitmap, md1};
use crate::units::Slot;
use std::collections::VecDeque;

/// An engine whose operations the test answers by hand.
struct Bench {
    engine: Engine,
    open: VecDeque<Action>,
    replies: Vec<(AskId, Outcome)>,
    wakes: Vec<Instant>,
    now: Instant,
    pool: Pool,
}

const DATA_AT: u64 = 2048;

/// What an array of the bench may have.
#[derive(Clone, Copy, Default)]
struct Extras {
    read_only: bool,
    bitmap: bool,
    /// Lists of bad blocks.
    lists: bool,
}

impl Bench {
    fn new(level: i32, slots: u16, read_only: bool) -> Bench {
        Bench::make(level, slots, Extras { read_only, ..Extras::default() })
    }

    fn make(level: i32, slots: u16, extras: Extras) -> Bench {
        let member = |slot: u16| {
            let device_uuid = [slot as u8; 16];
            let sectors = Sectors(DATA_AT + 128);
            Some(NewMember { sectors, device_uuid, write_mostly: false, failfast: false })
        };
        let creation = create(&Request {
            format: &md1::V1_2,
            level,
            layout: None,
            chunk: (level != 1).then_some(Sectors(8)),
            members: (0..slots).map(member).collect(),
            name: Vec::new(),
            homehost: None,
            uuid: [1; 16],
            ctime: 1,
            size: None,
            data_at: Some(Sectors(DATA_AT)),
            assume_clean: false,
            zeroed: true,
            bitmap: extras.bitmap.then(NewBitmap::default),
            log: None,
            force: false,
        })
        .unwrap();
        let bitmap = creation.members[0].bitmap.clone().map(|(_, mut image)| {
            image[md_bitmap::HEAD..].fill(0);
            Bitmap::load(image, &[1; 16], 0, false).unwrap()
        });
        let array = creation.array.clone();
        let params = Params {
            layout: array.layout,
            chunk: array.chunk,
            slots,
            component: array.component,
            members: creation.members.iter().map(|m| m.member.data_len).collect(),
        };
        let members = creation.members.iter().map(|m| {
            let (name, mut record) = (format!("disk{}", m.slot), m.member.clone());
            record.bad_log = record.bad_log.filter(|_| extras.lists);
            Some(Member::new(DeviceId(m.slot.index()), name, record, State::InSync))
        });
        let pool = Pool::new(0);
        let setup = Setup {
            layout: layout::make(level, &params).unwrap().into(),
            array,
            members: members.collect(),
            replacements: Vec::new(),
            spares: Vec::new(),
            bitmap,
            journal: None,
            emit: md1::V1_2.emit,
            uneven: false,
            read_only: extras.read_only,
            trust_unsynced: false,
            pool: pool.clone(),
            now: Instant(1_000_000_000),
        };
        let mut actions = Actions::new();
        let engine = Engine::new(setup, &mut actions);
        assert!(actions.is_empty(), "a clean array wants nothing");
        let (open, replies, wakes) = (VecDeque::new(), Vec::new(), Vec::new());
        Bench { engine, open, replies, wakes, now: Instant(1_000_000_000), pool }
    }

    fn step(&mut self, event: Event) {
        let mut actions = Actions::new();
        self.engine.step(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Reply(id, outcome) => self.replies.push((id, outcome)),
                Action::Wake(at) => self.wakes.push(at),
                work => self.open.push_back(work),
            }
        }
    }

    fn write(&mut self, id: AskId, at: u64, sectors: u64) {
        let mut data = self.pool.take(Sectors(sectors).len());
        data.fill(id as u8);
        let ask = Ask::Write { at: Sectors(at), data: data.freeze(), keep: Keep::default() };
        self.step(Event::Ask(id, ask));
    }

    /// What is open, one word an operation: `sb0` a superblock, `w1` a write to data, `r`, `f`.
    fn waiting(&self) -> String {
        let mut words: Vec<String> = self.open.iter().map(word).collect();
        words.sort();
        words.join(" ")
    }

    /// Answers everything that is open now; operations for which `fails` holds fail.
    fn answer(&mut self, fails: impl Fn(&str) -> bool) {
        for action in std::mem::take(&mut self.open) {
            let failed = fails(&word(&action)).then(|| "broken".to_string());
            match action {
                Action::Compute(op, mut work) => {
                    work.perform(&self.pool);
                    self.step(Event::Computed(op, work));
                }
                Action::Io { op, io, .. } => self.step(Event::Io { op, io, failed }),
                _ => panic!("only work waits"),
            }
        }
    }

    /// Answers until nothing is open; returns what was open each time.
    fn run(&mut self, fails: impl Fn(&str) -> bool) -> Vec<String> {
        let mut log = Vec::new();
        while !self.open.is_empty() {
            log.push(self.waiting());
            self.answer(&fails);
        }
        log
    }

    fn outcome(&mut self, id: AskId) -> std::result::Result<(), String> {
        let index = self.replies.iter().position(|r| r.0 == id).expect("it was answered");
        match self.replies.remove(index).1 {
            Outcome::Failed(error) => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}

fn word(action: &Action) -> String {
    match action {
        Action::Compute(..) => "compute".into(),
        Action::Io { device: DeviceId(slot), at, io, .. } => match io {
            Io::Read(_) => format!("r{slot}"),
            Io::Write(_) if at.0 < DATA_AT => format!("sb{slot}"),
            Io::Write(_) => format!("w{slot}"),
            Io::Flush => format!("f{slot}"),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn a_first_write_waits_for_the_dirty_mark_and_a_second_does_not() {
    let mut bench = Bench::new(5, 3, false);
    bench.write(1, 0, 16);
    let log = bench.run(|_| false);
    // The parity is made meanwhile; data goes out only after the marks are flushed.
    assert_eq!(log, ["compute sb0 sb1 sb2", "f0 f1 f2", "w0 w1 w2"]);
    bench.outcome(1).unwrap();
    bench.write(2, 16, 16);
    assert_eq!(bench.run(|_| false), ["compute", "w0 w1 w2"]);
    assert_eq!(bench.engine.status().stats.pre_reads, 0, "whole stripes read nothing");
}

#[test]
fn an_idle_array_is_marked_clean_after_a_flush_of_its_data() {
    let mut bench = Bench::new(1, 2, false);
    bench.write(1, 0, 1);
    bench.run(|_| false);
    assert!(bench.engine.status().dirty);
    bench.now = *bench.wakes.last().expect("it wants to be woken");
    bench.step(Event::Tick);
    assert_eq!(bench.run(|_| false), ["f0 f1", "sb0 sb1", "f0 f1"]);
    let status = bench.engine.status();
    assert!(!status.dirty);
    assert_eq!((status.array.resync, status.array.events), (None, 2));
}

#[test]
fn a_write_is_answered_only_when_the_survivors_say_who_failed() {
    let mut bench = Bench::new(5, 3, false);
    bench.write(1, 0, 16);
    bench.answer(|_| false);
    bench.answer(|_| false);
    assert_eq!(bench.waiting(), "w0 w1 w2");
    bench.answer(|op| op == "w1");
    assert!(bench.replies.is_empty(), "not yet");
    assert_eq!(bench.waiting(), "sb0 sb2", "the failed member is not written any more");
    bench.answer(|_| false);
    assert!(bench.replies.is_empty(), "not before the flush");
    bench.answer(|_| false);
    bench.outcome(1).unwrap();
    let status = bench.engine.status();
    assert_eq!(status.degraded, [Slot(1)].into_iter().collect());
    assert_eq!(status.array.role(1), crate::meta::record::DeviceRole::Faulty);
}

#[test]
fn a_second_failure_is_an_error_and_not_recorded() {
    let mut bench = Bench::new(5, 3, false);
    bench.write(1, 0, 16);
    bench.run(|op| op == "w1");
    bench.outcome(1).unwrap();
    let events = bench.engine.status().array.events;
    bench.write(2, 0, 16);
    bench.run(|op| op == "w2");
    assert!(bench.outcome(2).unwrap_err().contains("slot 2"));
    bench.write(3, 0, 16);
    let log = bench.run(|_| false);
    assert!(!log.iter().any(|l| l.contains('w')), "nothing more is written: {log:?}");
    assert!(bench.outcome(3).is_err());
    assert_eq!(bench.engine.status().array.events, events, "the survivors stay as they are");
    // The failed write may be in the data and not in the parity: a lost unit is not made from it.
    for (id, at, fine) in [(4, 0, true), (5, 8, false)] {
        let buf = bench.pool.zeroed(512);
        bench.step(Event::Ask(id, Ask::Read { at: Sectors(at), buf }));
        bench.run(|_| false);
        assert_eq!(bench.outcome(id).is_ok(), fine, "array sector {at}");
    }
}

#[test]
fn a_mirror_keeps_its_last_member_and_reports_the_error() {
    let mut bench = Bench::new(1, 2, false);
    bench.write(1, 0, 8);
    bench.run(|op| op == "w0");
    bench.outcome(1).unwrap();
    bench.write(2, 0, 8);
    bench.run(|op| op == "w1");
    assert!(bench.outcome(2).is_err());
    bench.write(3, 0, 8);
    bench.run(|_| false);
    bench.outcome(3).unwrap();
}

#[test]
fn a_read_error_is_solved_and_written_back() {
    let mut bench = Bench::new(5, 3, false);
    let buf = bench.pool.zeroed(4096);
    bench.step(Event::Ask(1, Ask::Read { at: Sectors(0), buf }));
    let first = bench.waiting();
    bench.answer(|_| true);
    let log = bench.run(|_| false);
    assert_eq!(log.len(), 3, "the others, the solution, the rewrite: {log:?}");
    assert_eq!(log[2], first.replace('r', "w"));
    bench.outcome(1).unwrap();
    let stats = bench.engine.status().stats;
    assert_eq!((stats.read_errors, stats.healed), (1, 1));
    assert!(bench.engine.status().degraded.is_empty(), "the member is kept");
}

#[test]
fn read_only_writes_nothing_whatever_happens() {
    let mut bench = Bench::new(5, 3, true);
    let buf = bench.pool.zeroed(4096);
    bench.step(Event::Ask(1, Ask::Read { at: Sectors(0), buf }));
    bench.answer(|_| true);
    let log = bench.run(|_| false);
    assert!(!log.join(" ").contains(['w', 's']), "{log:?}");
    bench.outcome(1).unwrap();
    bench.write(2, 0, 8);
    assert!(bench.outcome(2).is_err());
    bench.step(Event::Ask(3, Ask::Flush));
    bench.step(Event::Ask(4, Ask::Stop));
    assert!(bench.open.is_empty());
    bench.outcome(3).unwrap();
    bench.outcome(4).unwrap();
}

/// The clean mark and the cleared bits are two statements: one that comes while the other is being
/// written must not make it be written as if it were not true yet.
#[test]
fn a_stop_marks_clean_whenever_the_bits_are_due() {
    for steps in 0..8 {
        let mut bench = Bench::make(1, 2, Extras { bitmap: true, ..Extras::default() });
        bench.write(1, 0, 1);
        bench.run(|_| false);
        bench.now = bench.now.after(Span::millis(60_000));
        bench.step(Event::Ask(2, Ask::Stop));
        for _ in 0..steps {
            bench.answer(|_| false);
        }
        bench.step(Event::Tick);
        bench.run(|_| false);
        bench.outcome(2).unwrap();
        let status = bench.engine.status();
        assert_eq!(status.array.resync, None, "tick after {steps} steps of the stop");
        assert_eq!(status.bitmap_bits.expect("it has one").0, 0, "tick after {steps} steps");
    }
}

#[test]
fn a_level_without_redundancy_has_no_marks_and_stops_with_a_flush() {
    let mut bench = Bench::new(0, 2, false);
    bench.write(1, 0, 16);
    assert_eq!(bench.run(|_| false), ["w0 w1"]);
    bench.step(Event::Ask(2, Ask::Stop));
    assert_eq!(bench.run(|_| false), ["f0 f1"]);
    bench.outcome(2).unwrap();
    bench.write(3, 0, 16);
    assert!(bench.outcome(3).is_err(), "a stopped array takes no writes");
}

#[test]
fn flushes_that_come_together_share_one_round() {
    let mut bench = Bench::new(1, 2, false);
    for id in 1..=5 {
        bench.step(Event::Ask(id, Ask::Flush));
    }
    assert_eq!(bench.run(|_| false), ["f0 f1", "f0 f1"]);
    (1..=5).for_each(|id| bench.outcome(id).unwrap());
    assert_eq!(bench.engine.status().flush_rounds, 2);
}

#[test]
fn a_lost_flush_is_an_error_for_everybody_until_the_array_is_started_again() {
    for (level, slots, lost) in [(0, 2, &["f1"][..]), (1, 2, &["f0", "f1"])] {
        let mut bench = Bench::new(level, slots, false);
        bench.write(1, 0, 1);
        bench.run(|_| false);
        bench.step(Event::Ask(2, Ask::Flush));
        bench.step(Event::Ask(3, Ask::Flush));
        bench.answer(|op| lost.contains(&op));
        bench.run(|_| false);
        bench.step(Event::Ask(4, Ask::Flush));
        bench.run(|_| false);
        (2..=4).for_each(|id| assert!(bench.outcome(id).is_err(), "level {level}, ask {id}"));
        bench.write(5, 0, 1);
        bench.run(|_| false);
        assert!(bench.outcome(5).is_err(), "level {level}: nothing is written any more");
        bench.step(Event::Ask(6, Ask::Stop));
        bench.run(|_| false);
        assert!(bench.outcome(6).unwrap_err().contains("not marked clean"));
    }
}

#[test]
fn writes_to_one_band_take_turns_and_others_run_beside() {
    let mut bench = Bench::new(5, 3, false);
    bench.write(1, 0, 1);
    bench.run(|_| false);
    bench.write(2, 0, 4);
    bench.write(3, 2, 4);
    bench.write(4, 6, 2);
    assert_eq!(bench.waiting().matches('r').count(), 2, "2 and 4; 3 waits for 2");
    bench.run(|_| false);
    (2..=4).for_each(|id| bench.outcome(id).unwrap());
}

#[test]
fn runs_are_taken_off_a_list_where_they_were_written() {
    let bench = Bench::make(1, 2, Extras { lists: true, ..Extras::default() });
    let mut record = bench.engine.members()[0].as_ref().unwrap().record.clone();
    assert!(record.add_bad(Sectors(10), Sectors(20)));
    let run = |at, len| (Sectors(DATA_AT + at), Sectors(len));
    let cases = [
        ((0, 10), false, vec![run(10, 20)]),
        ((30, 5), false, vec![run(10, 20)]),
        ((15, 5), true, vec![run(10, 5), run(20, 10)]),
        ((8, 4), true, vec![run(12, 3), run(20, 10)]),
        ((25, 50), true, vec![run(12, 3), run(20, 5)]),
        ((0, 100), true, vec![]),
    ];
    for ((at, len), changes, left) in cases {
        assert_eq!(record.clear_bad(Sectors(at), Sectors(len)), changes, "{at}+{len}");
        assert_eq!(record.bad_blocks, left, "{at}+{len}");
    }
}

#[test]
fn a_failed_write_is_listed_and_the_member_kept() {
    let mut bench = Bench::make(5, 3, Extras { lists: true, ..Extras::default() });
    bench.write(1, 0, 16);
    bench.answer(|_| false);
    bench.answer(|_| false);
    bench.answer(|op| op == "w1");
    assert!(bench.replies.is_empty(), "not before the list says so");
    assert_eq!(bench.waiting(), "sb0 sb1 sb1 sb2", "superblocks, and the list of one");
    bench.run(|_| false);
    bench.outcome(1).unwrap();
    let bad = |bench: &Bench| bench.engine.members()[1].as_ref().unwrap().record.bad_blocks.clone();
    assert!(bench.engine.status().degraded.is_empty());
    assert_eq!(bad(&bench), [(Sectors(DATA_AT), Sectors(8))]);
    // A second failure in the same rows loses what was to be written there, and nothing else.
    bench.write(2, 0, 16);
    bench.run(|op| op == "w1" || op == "w0");
    assert!(bench.outcome(2).is_err());
    bench.write(3, 32, 16);
    bench.run(|_| false);
    bench.outcome(3).unwrap();
    bench.write(4, 0, 16);
    bench.run(|_| false);
    bench.outcome(4).unwrap();
    assert!(bad(&bench).is_empty());
}

/// Another disk for the bench's array.
fn another(bench: &Bench, device: usize) -> Manage {
    let like = bench.engine.members()[0].as_ref().unwrap();
    let record = MemberRecord { bad_blocks: Vec::new(), ..like.record.clone() };
    let name = format!("disk{device}");
    let member = Member::new(DeviceId(device), name, record, State::Spare);
    Manage::Add { member: Box::new(member), back: None }
}

fn with_a_bad_block(level: i32, slots: u16) -> Bench {
    let mut bench = Bench::make(level, slots, Extras { lists: true, ..Extras::default() });
    assert!(bench.engine.add_bad(DeviceId(0), Sectors(10), Sectors(2)));
    bench
}

#[test]
fn what_a_rebuild_cannot_bring_back_is_listed_and_no_more() {
    for (level, slots) in [(1, 2), (5, 3)] {
        let mut bench = with_a_bad_block(level, slots);
        bench.engine.health.slots[1].as_mut().unwrap().state = State::Failed;
        let add = another(&bench, 7);
        bench.step(Event::Ask(1, Ask::Manage(add)));
        bench.run(|_| false);
        bench.outcome(1).unwrap();
        while bench.engine.jobs.current.is_some() {
            bench.now = bench.now.after(Span::millis(20));
            bench.step(Event::Tick);
            bench.run(|_| false);
        }
        let new = bench.engine.members()[1].as_ref().unwrap();
        assert_eq!((new.device, new.state), (DeviceId(7), State::InSync), "level {level}");
        assert_eq!(new.record.bad_blocks, [(Sectors(DATA_AT + 10), Sectors(2))], "level {level}");
    }
}

#[test]
fn a_replacement_that_does_not_take_a_write_takes_over_nothing() {
    let mut bench = with_a_bad_block(1, 2);
    let add = another(&bench, 7);
    bench.step(Event::Ask(1, Ask::Manage(add)));
    bench.step(Event::Ask(2, Ask::Manage(Manage::Replace(DeviceId(1), None))));
    bench.run(|op| op == "w7");
    let member = bench.engine.members()[1].as_ref().unwrap();
    assert_eq!((member.device, member.state), (DeviceId(1), State::InSync));
}

#[test]
fn a_member_that_makes_up_for_bad_blocks_is_not_failed_on_request() {
    for (level, slots, refused) in [(1, 2, true), (1, 3, false), (5, 3, true), (6, 4, false)] {
        let mut bench = with_a_bad_block(level, slots);
        bench.step(Event::Ask(1, Ask::Manage(Manage::Fail(DeviceId(1)))));
        bench.run(|_| false);
        assert_eq!(bench.outcome(1).is_err(), refused, "level {level}, {slots} slots");
    }
}

#[test]
fn a_write_that_succeeds_makes_good_after_a_flush() {
    let mut bench = Bench::make(5, 3, Extras { lists: true, ..Extras::default() });
    bench.write(1, 0, 16);
    bench.run(|op| op == "w1");
    bench.outcome(1).unwrap();
    bench.write(2, 0, 16);
    let log = bench.run(|_| false);
    assert_eq!(log[2..], ["f0 f1 f2", "sb0 sb1 sb1 sb2", "f0 f1 f2"], "{log:?}");
    bench.outcome(2).unwrap();
    assert!(bench.engine.members()[1].as_ref().unwrap().record.bad_blocks.is_empty());
}
