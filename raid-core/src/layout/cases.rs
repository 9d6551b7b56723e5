//! Single placements worked out by hand or by others, and what must be refused.

use super::*;

fn params(layout: u32, chunk_kib: u64, slots: u16, chunks: u64) -> Params {
    let component = Sectors::kib(chunk_kib * chunks);
    let members = vec![component; slots as usize];
    Params { layout, chunk: Sectors::kib(chunk_kib), slots, component, members }
}

fn build(level: &str, layout: &str, slots: u16, chunks: u64) -> Box<dyn Layout> {
    let level = level_by_name(level).unwrap();
    let word = (level.parse_layout)(layout).unwrap();
    (level.make)(&params(word, 64, slots, chunks)).unwrap()
}

fn set(slots: &[u16]) -> SlotSet {
    slots.iter().copied().map(Slot).collect()
}

/// Slot and row of every copy of a chunk.
fn copies(layout: &dyn Layout, chunk: u64) -> Vec<(u16, u64)> {
    let stripe = layout.stripe(StripeNo(chunk));
    let chunk = layout.shape().chunk;
    let row = |unit: &Unit| {
        assert!(unit.at.rem(chunk).is_empty());
        unit.at.div_floor(chunk)
    };
    stripe.units.iter().map(|unit| (unit.slot.0, row(unit))).collect()
}

#[test]
fn far_copies_on_three_members_of_eight_chunks() {
    let layout = build("raid10", "f2", 3, 8);
    let rows: Vec<_> = (0..4).map(|chunk| copies(&*layout, chunk)).collect();
    assert_eq!(rows, [[(0, 0), (1, 4)], [(1, 0), (2, 4)], [(2, 0), (0, 4)], [(0, 1), (1, 5)]]);
}

#[test]
fn near_copies_pair_up() {
    let layout = build("raid10", "n2", 4, 8);
    let pairs = surviving_sets(&*layout, 2).unwrap();
    let live: Vec<_> = pairs.iter().filter(|(_, ok)| *ok).map(|(set, _)| set.clone()).collect();
    assert_eq!(live, [set(&[0, 2]), set(&[0, 3]), set(&[1, 2]), set(&[1, 3])]);
    let lost = lost(&*layout, &set(&[0, 1]), 2);
    let chunk = |n: u64| Sectors::kib(64 * n);
    assert_eq!(lost.ranges, [chunk(0)..chunk(1), chunk(2)..chunk(3)]);
    assert!(lost.more);
}

#[test]
fn optimal_sizes_are_what_md_exports() {
    let cases: &[(&str, &str, u16, u64)] = &[
        ("raid10", "n2", 6, 196_608),
        ("raid10", "f2", 6, 393_216),
        ("raid10", "o2", 6, 393_216),
        ("raid10", "n2", 5, 327_680),
        ("raid10", "n3", 6, 131_072),
        ("raid10", "n3", 5, 327_680),
        ("raid10", "n2", 2, 65_536),
        ("raid5", "ls", 4, 196_608),
        ("raid5", "ls", 2, 65_536),
        ("raid6", "ls", 5, 196_608),
        ("raid6", "ddf-N-restart", 5, 196_608),
        ("raid4", "-", 4, 196_608),
        ("raid0", "original", 3, 196_608),
        ("raid1", "-", 2, 0),
        ("linear", "-", 2, 0),
    ];
    for &(level, layout, slots, bytes) in cases {
        let io_opt = build(level, layout, slots, 8).io_opt();
        assert_eq!(io_opt.bytes(), bytes, "{level} {layout} on {slots}");
    }
}

#[test]
fn far_sets_change_which_pairs_survive() {
    for (word, survivors) in [("0x201", 9), ("0x20201", 9), ("0x40201", 12)] {
        let layout = build("raid10", word, 6, 8);
        let pairs = surviving_sets(&*layout, 2).unwrap();
        assert_eq!(pairs.len(), 15);
        assert_eq!(pairs.iter().filter(|(_, ok)| *ok).count(), survivors, "{word}");
    }
}

#[test]
fn a_far_set_of_one_member_has_no_redundancy() {
    let layout = build("raid10", "0x20201", 2, 8);
    assert_eq!(copies(&*layout, 0), [(0, 0), (0, 4)]);
    let hazard = layout.hazard().unwrap();
    assert!(hazard.read_only());
    assert_eq!(hazard.to_string(), "no redundancy: all 2 copies of chunk 0 are on member 0");
    assert_eq!(layout.shape().tolerance, 0);
    assert!(!layout.survives(&set(&[1])));
    assert!(build("raid10", "f2", 2, 8).hazard().is_none());
}

#[test]
fn some_copies_together_is_less_redundancy_but_not_none() {
    // Sets of 5 / 2 = 2 slots, three near x far copies would need more: near 2, far 2.
    let layout = build("raid10", "0x20202", 4, 8);
    match layout.hazard().unwrap() {
        Hazard::LessRedundancy { copies: 4, members: 2, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(!layout.hazard().unwrap().read_only());
    assert_eq!(layout.shape().tolerance, 1);
}

#[test]
fn words_that_put_two_chunks_on_one_sector_are_refused() {
    // What is unsafe is known from an exhaustive trial of a model of md.
    let mut refused = 0;
    for (slots, near, far) in (2..=16u32)
        .flat_map(|n| (2..=n).flat_map(move |near| (2..=n / near).map(move |far| (n, near, far))))
    {
        for (offset, sets) in [(0, 0), (1, 0), (0, 2), (1, 2)] {
            let word = near | far << 8 | offset << 16 | sets << 17;
            let copies = near * far;
            let unsafe_word = (offset == 1 && slots % near != 0)
                || (sets == 2 && slots % copies != 0 && slots / copies >= 2);
            let made = make(10, &params(word, 4, slots as u16, 40));
            assert_eq!(made.is_err(), unsafe_word, "{word:#x} on {slots}");
            if let Err(error) = made {
                assert_eq!(error.kind, ErrorKind::Refused);
                refused += 1;
            }
        }
    }
    assert!(refused > 50);
}

#[test]
fn every_single_kind_of_copies_is_safe() {
    for slots in 2..=16u32 {
        for copies in 2..=slots {
            for word in [0x100 | copies, copies << 8 | 1, 0x10001 | copies << 8] {
                let layout = make(10, &params(word, 4, slots as u16, 40)).unwrap();
                assert_eq!(layout.hazard(), None, "{word:#x} on {slots}");
                assert_eq!(layout.shape().tolerance as u32, copies - 1);
            }
        }
    }
}

#[test]
fn raid10_words_that_are_no_words_are_refused() {
    for word in [0, 0x100, 0x002, 0x101, 0x60201, 0x80102, 0xffff_ffff, 0x105] {
        assert!(make(10, &params(word, 64, 4, 8)).is_err(), "{word:#x}");
    }
}

#[test]
fn raid5_rotations_on_four_members() {
    // Slot of chunks 0 to 5, and the slot of P in the first two stripes.
    let cases: &[(&str, [u16; 6], [u16; 2])] = &[
        ("ls", [0, 1, 2, 3, 0, 1], [3, 2]),
        ("la", [0, 1, 2, 0, 1, 3], [3, 2]),
        ("rs", [1, 2, 3, 2, 3, 0], [0, 1]),
        ("ra", [1, 2, 3, 0, 2, 3], [0, 1]),
    ];
    for (name, data, parity) in cases {
        let layout = build("raid5", name, 4, 8);
        let stripes = [layout.stripe(StripeNo(0)), layout.stripe(StripeNo(1))];
        let slots = stripes.iter().flat_map(|stripe| stripe.data().map(|unit| unit.slot.0));
        assert_eq!(slots.collect::<Vec<_>>(), data, "{name}");
        assert_eq!(stripes.map(|stripe| stripe.units[3].slot.0), *parity, "{name}");
    }
}

#[test]
fn other_words_for_the_raid5_rotations() {
    let parse = level_by_number(5).unwrap().parse_layout;
    let cases = [
        ("left-symmetric", 2),
        ("Left Synchronous", 2),
        ("left_continuation", 2),
        ("left asymmetric", 0),
        ("left-asynchronous", 0),
        ("left data restart", 0),
        ("right-synchronous", 3),
        ("right data continuation", 3),
        ("right-asynchronous", 1),
        ("ddf-N-continue", 2),
        ("default", 2),
        ("0x3", 3),
        ("4", 4),
    ];
    for (name, word) in cases {
        assert_eq!(parse(name).unwrap(), word, "{name}");
    }
}

#[test]
fn raid10_names() {
    let level = level_by_number(10).unwrap();
    let cases = [
        ("n2", 0x102, "near=2"),
        ("near=3", 0x103, "near=3"),
        ("f2", 0x201, "far=2"),
        ("o2", 0x10201, "offset=2"),
        ("OFFSET=3", 0x10301, "offset=3"),
        ("near=2, far=2", 0x202, "near=2, far=2"),
        ("far=2, far-sets=2", 0x40201, "far=2, far-sets=2"),
        ("default", 0x102, "near=2"),
        ("258", 0x102, "near=2"),
    ];
    for (typed, word, printed) in cases {
        assert_eq!((level.parse_layout)(typed).unwrap(), word, "{typed}");
        assert_eq!((level.layout_name)(word), printed);
    }
    for wrong in ["", "n", "n0", "n256", "x2", "n2,n3", "f2,o2", "near2far", "far-sets=1", "-1"] {
        assert!((level.parse_layout)(wrong).is_err(), "'{wrong}'");
    }
}

#[test]
fn levels_by_mdadms_words() {
    let cases = [("raid5", 5), ("5", 5), ("stripe", 0), ("Mirror", 1), ("linear", -1), ("-1", -1)];
    for (name, number) in cases {
        assert_eq!(level_by_name(name).unwrap().number, number);
    }
    assert_eq!(level_by_name("raid7").unwrap_err().kind, ErrorKind::Unsupported);
    assert!(level_by_number(-4).unwrap_err().to_string().contains("multipath"));
}

#[test]
fn q_counts_from_behind_itself() {
    let layout = build("raid6", "la", 6, 8);
    let stripe = layout.stripe(StripeNo(2));
    assert_eq!((stripe.units[4].slot, stripe.units[5].slot), (Slot(3), Slot(4)));
    let mut order: Vec<_> = stripe.data().map(|unit| (unit.power, unit.slot.0)).collect();
    order.sort_unstable();
    assert_eq!(order, [(0, 5), (1, 0), (2, 1), (3, 2)]);
    let bytes = [0x11u8, 0x22, 0x33, 0, 0, 0x44];
    let times_two = |byte: u8| byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1d };
    let (mut p, mut q) = (0, 0);
    for unit in stripe.data() {
        let byte = bytes[unit.slot.index()];
        p ^= byte;
        q ^= (0..unit.power).fold(byte, |product, _| times_two(product));
    }
    assert_eq!((p, q), (0x44, 0x6b));
}

fn unequal(layout: u32, chunks: &[u64], chunk_kib: u64) -> Params {
    let members: Vec<_> = chunks.iter().map(|n| Sectors::kib(n * chunk_kib)).collect();
    let (chunk, slots) = (Sectors::kib(chunk_kib), chunks.len() as u16);
    Params { layout, chunk, slots, component: Sectors::ZERO, members }
}

#[test]
fn raid0_zones_in_both_orders() {
    let place =
        |layout, chunk| copies(&*make(0, &unequal(layout, &[3, 6, 6], 64)).unwrap(), chunk)[0];
    assert_eq!((place(1, 9), place(2, 9)), ((2, 3), (1, 3)));
    assert_eq!((place(1, 10), place(2, 10)), ((1, 3), (2, 3)));
}

#[test]
fn raid0_without_a_layout_is_built_only_where_it_does_not_matter() {
    // (members in chunks, does the order matter)
    let cases: &[(&[u64], bool)] = &[
        (&[6, 6, 6], false),
        (&[3, 6, 6], true),
        (&[4, 6, 6], false),
        (&[25, 63], false),
        (&[25, 37, 63], true),
        (&[24, 36, 63], false),
    ];
    for &(chunks, matters) in cases {
        let params = unequal(0, chunks, 4);
        assert_eq!(raid0::layout_matters(&params), matters, "{chunks:?}");
        match make(0, &params) {
            Err(error) => {
                assert!(matters, "{chunks:?}");
                assert!(error.to_string().contains("--raid0-layout original"));
            }
            Ok(layout) => {
                assert!(!matters, "{chunks:?}");
                let alternate = make(0, &Params { layout: 2, ..params }).unwrap();
                for no in (0..layout.shape().stripes).map(StripeNo) {
                    assert_eq!(layout.stripe(no), alternate.stripe(no));
                }
            }
        }
    }
}

#[test]
fn raid0_sizes_as_md_cuts_them() {
    // Sizes of arrays the kernel ran; a chunk of 24 sectors is no power of two.
    let cases: &[(u64, &[u64], u64)] = &[
        (8, &[200, 333, 333, 504], 1360),
        (8, &[500, 120, 500, 120, 300], 1528),
        (24, &[200, 333, 333, 504], 1272),
        (24, &[504, 200, 200], 872),
        (24, &[100, 504], 584),
    ];
    for &(chunk, members, size) in cases {
        let members: Vec<_> = members.iter().copied().map(Sectors).collect();
        let slots = members.len() as u16;
        let params =
            Params { layout: 1, chunk: Sectors(chunk), slots, component: Sectors::ZERO, members };
        assert_eq!(make(0, &params).unwrap().shape().size, Sectors(size), "{params:?}");
    }
}

#[test]
fn raid10_sizes_as_md_counts_them() {
    // 4 KiB chunks, 63 per member: sizes of arrays the kernel ran.
    let cases = [("n2", 3, 752), ("n2", 5, 1256), ("f2", 3, 744), ("n3", 4, 672), ("f4", 7, 840)];
    for (name, slots, size) in cases {
        let word = (level_by_number(10).unwrap().parse_layout)(name).unwrap();
        let layout = make(10, &params(word, 4, slots, 63)).unwrap();
        assert_eq!(layout.shape().size, Sectors(size), "{name} on {slots}");
    }
}

#[test]
fn chunk_rules_per_level() {
    // (level, layout, chunk in KiB, accepted)
    let cases: &[(i32, u32, u64, bool)] = &[
        (0, 1, 12, true),
        (0, 1, 6, true),
        (0, 1, 4, true),
        (0, 1, 2, false),
        (4, 0, 12, false),
        (5, 2, 12, false),
        (6, 2, 12, false),
        (10, 0x102, 12, false),
        (5, 2, 4, true),
        (6, 2, 4, true),
        (10, 0x102, 4, true),
        (5, 2, 2, false),
        (5, 2, 0, false),
        (1, 0, 64, true),
        (1, 0, 0, true),
        (-1, 0, 0, true),
    ];
    for &(level, layout, chunk, accepted) in cases {
        let mut params = params(layout, 64, 4, 8);
        params.chunk = Sectors::kib(chunk);
        let made = make(level, &params);
        assert_eq!(made.is_ok(), accepted, "level {level} chunk {chunk} KiB");
        if level >= 4 && !accepted {
            assert!(made.unwrap_err().to_string().contains("power of two"));
        }
    }
    let mut odd = params(2, 4, 4, 8);
    odd.chunk = Sectors(3);
    assert!(make(0, &odd).is_err());
}

#[test]
fn too_few_or_unknown_is_refused() {
    // (level, layout, slots)
    let cases: &[(i32, u32, u16)] = &[
        (-1, 0, 0),
        (0, 1, 0),
        (1, 0, 0),
        (4, 0, 1),
        (5, 2, 1),
        (5, 8, 4),
        (5, 9, 4),
        (5, 10, 4),
        (5, 6, 4),
        (6, 2, 3),
        (6, 7, 5),
        (6, 21, 5),
        (6, 2, 256),
        (5, 2, 1921),
        (10, 0x102, 1),
        (10, 0x103, 2),
        (1, 0, 65535),
    ];
    for &(level, layout, slots) in cases {
        assert!(make(level, &params(layout, 64, slots, 8)).is_err(), "{level} {layout} {slots}");
    }
}

#[test]
fn hostile_numbers_neither_panic_nor_hang() {
    let numbers = [0, 1, 7, 8, 9, 1 << 22, (1 << 22) - 1, 1 << 40, 1 << 54, u64::MAX - 1, u64::MAX];
    let words = [0, 1, 2, 5, 20, 0x102, 0xff01, 0x1ff, 0xffff, 0x1ffff, 0x401ff, 0x20201, u32::MAX];
    for level in LEVELS {
        for layout in words {
            for slots in [0u16, 1, 2, 5, 255, 1920, 65535] {
                for chunk in numbers {
                    for component in numbers {
                        // Many slots only with one chunk, for time.
                        if slots > 5 && chunk != 8 {
                            continue;
                        }
                        let (chunk, component) = (Sectors(chunk), Sectors(component));
                        let members = vec![component; slots as usize];
                        let params = Params { layout, chunk, slots, component, members };
                        if let Ok(layout) = (level.make)(&params) {
                            probe(&*layout);
                        }
                    }
                }
            }
        }
    }
}

/// Asks a layout about both of its ends.
fn probe(layout: &dyn Layout) {
    let shape = layout.shape();
    assert!(shape.size <= check::SIZE_MAX);
    for no in [0, shape.stripes - 1].map(StripeNo) {
        let stripe = layout.stripe(no);
        for unit in &stripe.units {
            assert_eq!(layout.find(unit.slot, unit.at), Some(no));
        }
        assert_eq!(layout.locate(stripe.start), no);
    }
    assert_eq!(layout.find(Slot(0), check::SIZE_MAX), None);
    assert_eq!(layout.find(Slot(u16::MAX), Sectors(0)), None);
}

#[test]
fn what_is_lost_is_listed_compactly() {
    let chunk = |n: u64| Sectors::kib(64 * n);
    let raid5 = build("raid5", "ls", 4, 1 << 30);
    let some = lost(&*raid5, &set(&[0, 1]), 3);
    assert_eq!(some.ranges, [chunk(0)..chunk(2), chunk(4)..chunk(6), chunk(8)..chunk(10)]);
    assert!(some.more);
    let all = lost(&*raid5, &set(&[0, 1, 2, 3]), 3);
    assert_eq!((all.ranges, all.more), (vec![Sectors(0)..raid5.shape().size], false));
    assert!(lost(&*raid5, &set(&[2]), 3).is_empty());

    let mirror = build("raid1", "-", 2, 1 << 30);
    assert_eq!(lost(&*mirror, &set(&[0, 1]), 3).ranges, [Sectors(0)..mirror.shape().size]);
    assert!(lost(&*mirror, &set(&[1]), 3).is_empty());

    let linear = build("linear", "-", 3, 1 << 30);
    let middle = lost(&*linear, &set(&[1]), 3);
    assert_eq!((middle.ranges, middle.more), (vec![chunk(1 << 30)..chunk(2 << 30)], false));

    let zones = make(0, &unequal(1, &[3, 6, 6], 64)).unwrap();
    let first = lost(&*zones, &set(&[0]), 10);
    assert_eq!(first.ranges, [chunk(0)..chunk(1), chunk(3)..chunk(4), chunk(6)..chunk(7)]);
}

#[test]
fn too_many_sets_to_list_is_an_error() {
    let layout = build("raid6", "ls", 30, 8);
    assert_eq!(surviving_sets(&*layout, 2).unwrap().len(), 435);
    assert!(surviving_sets(&*layout, 15).is_err());
    assert_eq!(surviving_sets(&*layout, 0).unwrap(), [(set(&[]), true)]);
    assert!(surviving_sets(&*layout, 31).unwrap().is_empty());
}
