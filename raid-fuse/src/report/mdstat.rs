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

/// State, level and members, the last one first.
fn head(report: &Report) -> String {
    let read_only = if report.read_only { "(read-only) " } else { "" };
    let members: String = report.members.iter().rev().filter_map(member).collect();
    format!("active {read_only}{}{members}", report.level)
}

/// ` a.img[0](W)`; the number is the device's, not the slot's.
fn member(member: &Member) -> Option<String> {
    let path = member.path.as_deref()?;
    let last = path.rsplit('/').next().unwrap_or(path);
    let word: String = last.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    let mut text = format!(" {word}[{}]", member.number.unwrap_or_default());
    let flags = [
        (member.write_mostly, "(W)"),
        (member.state == "faulty", "(F)"),
        (member.slot.is_none(), "(S)"),
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
    format!("{blocks} blocks super {}{level}", report.metadata)
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
    let tenths = if speed == 0 { 0 } else { left / speed * 10 / 60 };
    format!(
        "[{}>{}]  resync ={:>3}.{}% ({done}/{total}) finish={}.{}min speed={speed}K/sec",
        "=".repeat(filled),
        ".".repeat(20 - filled),
        promille / 10,
        promille % 10,
        tenths / 10,
        tenths % 10
    )
}

/// All pages are in use, since every bit is set while we serve.
fn pages(bitmap: &Bitmap) -> String {
    let pages = bitmap.bits.div_ceil(BITS_PER_PAGE);
    let chunk = match bitmap.chunk_bytes {
        bytes if bytes >= 1024 => format!("{}KB", bytes >> 10),
        bytes => format!("{bytes}B"),
    };
    format!("bitmap: {pages}/{pages} pages [{}KB], {chunk} chunk", pages * 4)
}
