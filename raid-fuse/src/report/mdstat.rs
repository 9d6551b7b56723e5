//! An array as the kernel's `/proc/mdstat` shows it, to the blank: scripts read it.

use super::{Bitmap, Health, Member, Report, Resync};

/// Bits that one page of the kernel's in-memory bitmap counts.
const BITS_PER_PAGE: u64 = 2048;

/// The whole text, as if this array were the only one.
pub fn text(report: &Report) -> String {
    format!(
        "Personalities : [{}]\n{} : {}\n      {}\n      {}\nunused devices: <none>\n",
        report.level,
        name(report),
        head(report),
        geometry(report),
        tail(report)
    )
}

/// `md0` for an array called 0, `md_home` for one called home.
fn name(report: &Report) -> String {
    let own = report.name.rsplit(':').next().unwrap_or_default();
    let safe: String =
        own.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
    match safe.is_empty() {
        true => "md127".into(),
        false if safe.chars().all(|c| c.is_ascii_digit()) => format!("md{safe}"),
        false => format!("md_{safe}"),
    }
}

/// State, level and members, the last that joined first.
fn head(report: &Report) -> String {
    let read_only = if report.read_only { "(read-only) " } else { "" };
    let mut members: Vec<&Member> = report.members.iter().collect();
    members.sort_by_key(|member| member.joined);
    let members: String = members.into_iter().rev().filter_map(member).collect();
    format!("active {read_only}{}{members}", report.level)
}

/// ` a.img[0](W)`; the number is the device's, not the slot's.
fn member(member: &Member) -> Option<String> {
    let path = member.path.as_deref()?;
    let last = path.rsplit('/').next().unwrap_or(path);
    let word: String = last.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    let mut text = format!(" {word}[{}]", member.number.unwrap_or_default());
    let (is_journal, is_faulty) = (member.state == "journal", member.state == "faulty");
    let flags = [
        (member.write_mostly, "(W)"),
        (is_journal, "(J)"),
        (is_faulty, "(F)"),
        (member.slot.is_none() && !is_journal && !is_faulty, "(S)"),
        (member.replacement, "(R)"),
    ];
    flags.iter().filter(|(set, _)| *set).for_each(|(_, flag)| text.push_str(flag));
    Some(text)
}

/// Size, metadata, and what the level has to say.
fn geometry(report: &Report) -> String {
    let chunk = report.chunk_bytes >> 10;
    let marks = || format!(" [{}/{}] {}", report.slots, report.active, report.marks());
    let level = match report.level_number {
        -1 => format!(" {chunk}k rounding"),
        0 => format!(" {chunk}k chunks"),
        1 => marks(),
        level @ 4..=6 => {
            let algorithm = report.layout_number;
            format!(" level {level}, {chunk}k chunk, algorithm {algorithm}{}", marks())
        }
        10 => format!(" {chunk}K chunks{}{}", copies(report.layout_number), marks()),
        _ => String::new(),
    };
    let blocks = report.size_bytes.unwrap_or_default() >> 10;
    // The kernel names every version but the oldest.
    let version = match report.metadata.as_str() {
        "0.90" => String::new(),
        version => format!(" super {version}"),
    };
    format!("{blocks} blocks{version}{level}")
}

/// RAID 10's copies, of each kind that there is more than one of.
fn copies(layout: u32) -> String {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let kind = if layout & 0x1_0000 != 0 { "offset" } else { "far" };
    let mut text = String::new();
    if near > 1 {
        text.push_str(&format!(" {near} near-copies"));
    }
    if far > 1 {
        text.push_str(&format!(" {far} {kind}-copies"));
    }
    text
}

/// Resync and bitmap, each on its line.
fn tail(report: &Report) -> String {
    let resync = match &report.resync {
        Some(resync) if resync.running => format!("{}\n      ", bar(resync)),
        Some(_) if report.health != Health::Dead => "\tresync=PENDING\n      ".into(),
        _ => String::new(),
    };
    format!("{resync}{}", report.bitmap.as_ref().map(pages).unwrap_or_default())
}

/// `[==>..................]  resync = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec`
fn bar(resync: &Resync) -> String {
    let (done, total) = (resync.done_bytes >> 10, (resync.total_bytes >> 10).max(1));
    let speed = resync.speed_bytes >> 10;
    let promille = (done.min(total) * 1000 / total) as usize;
    let filled = promille / 50;
    let left = total.saturating_sub(done);
    let tenths = left.checked_div(speed).unwrap_or_default() * 10 / 60;
    format!(
        "[{}>{}]  {} ={:>3}.{}% ({done}/{total}) finish={}.{}min speed={speed}K/sec",
        "=".repeat(filled),
        ".".repeat(20 - filled),
        // A repair has no word of its own here.
        resync.action.replace("repair", "resync"),
        promille / 10,
        promille % 10,
        tenths / 10,
        tenths % 10
    )
}

/// Pages with marked regions, at most; the kernel counts those it holds in memory.
fn pages(bitmap: &Bitmap) -> String {
    let pages = bitmap.bits.div_ceil(BITS_PER_PAGE);
    let chunk = match bitmap.chunk_bytes {
        bytes if bytes >= 1024 => format!("{}KB", bytes >> 10),
        bytes => format!("{bytes}B"),
    };
    let used = pages.min(bitmap.set);
    format!("bitmap: {used}/{pages} pages [{}KB], {chunk} chunk\n", used * 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(level: i32, layout: u32, slots: u16) -> Report {
        let member = |slot| {
            json!({
                "slot": slot, "path": format!("/dev/loop{slot}"), "number": slot,
                "state": "active sync", "write_mostly": false, "device_uuid": null,
                "data_offset_bytes": null, "errors": 0,
            })
        };
        let members: Vec<_> = (0..slots).map(member).collect();
        let name = if level == -1 { "linear".into() } else { format!("raid{level}") };
        let report = json!({
            "uuid": "", "name": "vm:0", "health": "ok", "state": "clean", "running": true,
            "read_only": false, "level": name, "level_number": level, "layout": null,
            "layout_number": layout, "metadata": "1.2", "chunk_bytes": 65536,
            "size_bytes": 30720 << 10, "component_bytes": null, "slots": slots, "active": slots,
            "working": slots, "failed": 0, "created_seconds": 0, "updated_seconds": 0,
            "events": 0, "bitmap": null, "resync": null, "mismatch_cnt": 0,
            "last_sync_action": "none", "members": members, "counters": {},
            "warnings": [],
        });
        serde_json::from_value(report).unwrap()
    }

    /// Texts of Linux 6.1.
    #[test]
    fn levels_are_told_as_by_the_kernel() {
        let cases = [
            (4, 0, " level 4, 64k chunk, algorithm 0 [2/2] [UU]"),
            (5, 2, " level 5, 64k chunk, algorithm 2 [2/2] [UU]"),
            (10, 0x102, " 64K chunks 2 near-copies [2/2] [UU]"),
            (10, 0x201, " 64K chunks 2 far-copies [2/2] [UU]"),
            (10, 0x1_0201, " 64K chunks 2 offset-copies [2/2] [UU]"),
            (0, 1, " 64k chunks"),
            (-1, 0, " 64k rounding"),
            (1, 0, " [2/2] [UU]"),
        ];
        for (level, layout, words) in cases {
            let report = report(level, layout, 2);
            let expected = format!(
                "Personalities : [{0}]\nmd0 : active {0} loop1[1] loop0[0]\n      30720 blocks \
                 super 1.2{words}\n      \nunused devices: <none>\n",
                report.level
            );
            assert_eq!(text(&report), expected);
        }
    }

    /// Text of Linux 6.1 with a RAID 5 of two and a journal.
    #[test]
    fn a_journal_is_no_spare() {
        let mut report = report(5, 2, 2);
        let journal = Member { slot: None, number: Some(2), ..report.members[0].clone() };
        report.members.push(Member {
            path: Some("/dev/loop2".into()),
            state: "journal".into(),
            ..journal
        });
        let text = text(&report);
        assert!(text.contains("active raid5 loop2[2](J) loop1[1] loop0[0]\n"), "{text}");
        report.members[2].state = "spare".into();
        assert!(super::text(&report).contains(" loop2[2](S) loop1[1]"), "{text}");
    }

    #[test]
    fn members_have_their_flags_and_a_resync_its_bar() {
        let mut report = report(1, 0, 3);
        report.members[1].state = "faulty".into();
        report.members[2].write_mostly = true;
        report.active = 2;
        report.bitmap = Some(Bitmap { chunk_bytes: 64 << 20, bits: 1, set: 1 });
        let (done_bytes, total_bytes) = (18432 << 10, 30720 << 10);
        report.resync = Some(Resync {
            running: true,
            action: "resync".into(),
            done_bytes,
            total_bytes,
            speed_bytes: 1000 << 10,
        });
        let expected = "md0 : active raid1 loop2[2](W) loop1[1](F) loop0[0]\n      30720 blocks \
                        super 1.2 [3/2] [U_U]\n      [============>........]  resync = 60.0% \
                        (18432/30720) finish=0.2min speed=1000K/sec\n      bitmap: 1/1 pages \
                        [4KB], 65536KB chunk\n\nunused devices: <none>\n";
        assert!(text(&report).ends_with(expected), "{}", text(&report));
        report.resync = report.resync.map(|resync| Resync { running: false, ..resync });
        report.bitmap = None;
        assert!(text(&report).contains("[U_U]\n      \tresync=PENDING\n      \nunused"));
    }
}
