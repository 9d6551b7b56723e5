//! The write-intent bitmap: a bit is durably set before its region is written, and cleared long
//! after, so that a crash or an absent member costs a resync of the marked regions only.
//!
//! One image stands for the bitmaps of all members, which are alike. Updates go with those of the
//! superblocks (see `publish.rs`): all who mark at once share one write, and both never write the
//! same page at the same time.

use super::{Actions, DeviceId, Engine};
use crate::error::Result;
use crate::layout::Code;
use crate::meta::md_bitmap::{self, HEAD};
use crate::plan::Band;
use crate::time::{Instant, Span};
use crate::units::Sectors;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Bitmaps are written in pages, as the kernel does.
const PAGE: usize = 4096;

/// Sectors of the devices where a bitmap lies.
pub type BitmapPlaces = Vec<(DeviceId, Sectors)>;

/// The bitmap of a running array.
#[derive(Clone, Debug)]
pub struct Bitmap {
    image: Vec<u8>,
    head: md_bitmap::Bitmap,
    /// Regions whose redundancy may be wrong: set at an unclean start.
    needed: BTreeSet<u64>,
    /// Writes under way by region.
    busy: HashMap<u64, u32>,
    /// Set regions nobody writes, and since when.
    quiet: BTreeMap<u64, Instant>,
    /// Regions whose bit is set here but not yet durable, with the version that makes it so.
    setting: HashMap<u64, u64>,
    dirty_pages: BTreeSet<usize>,
    /// An update is on its way that clears what is quiet.
    clearing: bool,
    /// Pages written since the start, on one member.
    pub pages_written: u64,
}

impl Bitmap {
    /// The bitmap found in `image` (its superblock and all bits) of an array with `events`;
    /// `unclean`: it was not stopped properly. A bitmap that is behind says nothing: all is set.
    pub fn load(mut image: Vec<u8>, uuid: &[u8; 16], events: u64, unclean: bool) -> Result<Bitmap> {
        let head = md_bitmap::parse(&image, uuid)?;
        image.resize(head.byte_len() as usize, 0);
        let mut bitmap = Bitmap {
            image,
            head,
            needed: BTreeSet::new(),
            busy: HashMap::new(),
            quiet: BTreeMap::new(),
            setting: HashMap::new(),
            dirty_pages: BTreeSet::new(),
            clearing: false,
            pages_written: 0,
        };
        if bitmap.head.is_stale(events) {
            md_bitmap::set_all(&mut bitmap.image);
            bitmap.rewrite();
            (bitmap.head.events_cleared, bitmap.head.state) = (events, 0);
        }
        let set: Vec<u64> = (0..bitmap.head.bits()).filter(|&bit| bitmap.is_set(bit)).collect();
        match unclean {
            true => bitmap.needed.extend(set),
            false => bitmap.quiet.extend(set.into_iter().map(|bit| (bit, Instant(0)))),
        }
        Ok(bitmap)
    }

    /// What its superblock says.
    pub fn head(&self) -> &md_bitmap::Bitmap {
        &self.head
    }

    /// Bits that are set.
    pub fn count_set(&self) -> u64 {
        md_bitmap::count_set(&self.image, &self.head)
    }

    /// Sectors of a region.
    pub fn region(&self) -> Sectors {
        Sectors::floor_bytes(self.head.chunk_bytes.into())
    }

    fn is_set(&self, bit: u64) -> bool {
        let byte = self.image.get(HEAD + (bit / 8) as usize);
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    fn put(&mut self, bit: u64, value: bool) {
        let at = HEAD + (bit / 8) as usize;
        let Some(byte) = self.image.get_mut(at) else { return };
        let mask = 1u8 << (bit % 8);
        *byte = if value { *byte | mask } else { *byte & !mask };
        self.dirty_pages.insert(at / PAGE);
    }

    /// The regions that `from..to` touches, in md's resync positions.
    fn regions(&self, from: Sectors, to: Sectors) -> std::ops::RangeInclusive<u64> {
        from.div_floor(self.region())..=Sectors(to.0 - 1).div_floor(self.region())
    }

    /// True if a bit of `from..to` is set.
    pub(super) fn any_set(&self, from: Sectors, to: Sectors) -> bool {
        self.regions(from, to).any(|bit| self.is_set(bit))
    }

    /// True if redundancy of `from..to` may be wrong.
    pub(super) fn any_needed(&self, from: Sectors, to: Sectors) -> bool {
        !self.needed.is_empty() && self.regions(from, to).any(|bit| self.needed.contains(&bit))
    }

    /// Where the first region at or after `at` begins that needs a resync.
    pub(super) fn next_needed(&self, at: Sectors) -> Option<Sectors> {
        let first = at.div_floor(self.region());
        let bit = self.needed.range(first..).next().copied();
        bit.map(|bit| at.max(self.region().times(bit)))
    }

    /// A resync has been over `from..to`, but for the `skipped` steps of at most `height`.
    pub(super) fn synced(
        &mut self,
        (from, to): (Sectors, Sectors),
        skipped: &[Sectors],
        height: Sectors,
        now: Instant,
    ) {
        for bit in self.regions(from, to) {
            // Only a region that is done as a whole counts; the end of the last one does not.
            let start = self.region().times(bit);
            let end = (start + self.region()).min(self.head.sync_size);
            let lacks = skipped.iter().any(|&at| at < end && start < at + height);
            if to >= end && !lacks && self.needed.remove(&bit) && !self.busy.contains_key(&bit) {
                self.quiet.insert(bit, now);
            }
        }
    }

    /// Everything agrees again.
    pub(super) fn all_synced(&mut self, now: Instant) {
        for bit in std::mem::take(&mut self.needed) {
            if !self.busy.contains_key(&bit) {
                self.quiet.insert(bit, now);
            }
        }
    }

    /// Pages to write now; `with_head`: the first one in any case. Marks them as written.
    pub(super) fn take_pages(&mut self, with_head: bool) -> Vec<(Sectors, Vec<u8>)> {
        if with_head {
            self.dirty_pages.insert(0);
        }
        let pages = std::mem::take(&mut self.dirty_pages);
        self.pages_written += pages.len() as u64;
        let page = |page: usize| {
            let from = page * PAGE;
            let to = self.image.len().min(from + PAGE);
            (Sectors::floor_bytes(from as u64), self.image[from..to].to_vec())
        };
        pages.into_iter().map(page).collect()
    }

    /// The counter follows the superblock's; `whole`: no member is missing, so that what is clear
    /// is clear on all of them.
    pub(super) fn follow(&mut self, events: u64, whole: bool) {
        if whole {
            self.head.events_cleared = self.head.events_cleared.max(events - 1);
        }
        self.head.events = events;
        md_bitmap::patch_counters(&mut self.image, &self.head);
    }

    /// All pages are written with the next update: a device has joined that has none.
    pub(super) fn rewrite(&mut self) {
        self.dirty_pages.extend(0..self.image.len().div_ceil(PAGE));
    }
}

impl Engine {
    /// Another bitmap, or none. Writes that are under way count as marked in a new one.
    pub(super) fn set_bitmap(
        &mut self,
        bitmap: Option<(Box<Bitmap>, BitmapPlaces)>,
        out: &mut Actions,
    ) {
        let (bitmap, places) = bitmap.map_or((None, Vec::new()), |(b, p)| (Some(*b), p));
        for member in self.health.all_mut() {
            let place = places.iter().find(|(device, _)| *device == member.device);
            member.record.bitmap_at = place.map(|&(_, at)| at);
        }
        self.bitmap = bitmap;
        self.clear_due = None;
        let ids: Vec<usize> = self.flights.iter().map(|(id, _)| id).collect();
        for id in ids {
            let band = self.flights[id].is_write().then(|| self.flights[id].band.clone());
            self.flights[id].marked = band.and_then(|band| self.mark(&band));
        }
        let now = self.now;
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.quiet.values_mut().for_each(|since| *since = now);
            bitmap.rewrite();
        }
        self.changed(out);
        self.clear_when_quiet(out);
    }

    /// md's resync position of `band`: array sectors for RAID 10, else member sectors.
    pub(super) fn position(&self, band: &Band) -> (Sectors, Sectors) {
        let at = self.stripe_len.times(band.stripe.no.0) + band.low;
        (at, at + band.height())
    }

    /// Sets the bits of a write on `band`; returns the version that makes them durable.
    pub(super) fn mark(&mut self, band: &Band) -> Option<u64> {
        let (from, to) = self.position(band);
        let bitmap = self.bitmap.as_mut()?;
        let mut wanted = 0;
        let next = self.publisher.next_version();
        for bit in bitmap.regions(from, to) {
            *bitmap.busy.entry(bit).or_default() += 1;
            bitmap.quiet.remove(&bit);
            if !bitmap.is_set(bit) {
                bitmap.put(bit, true);
                bitmap.setting.insert(bit, next);
            }
            wanted = wanted.max(bitmap.setting.get(&bit).copied().unwrap_or(0));
        }
        Some(wanted)
    }

    /// Sees to it that bits that were just set are written.
    pub(super) fn publish_marks(&mut self, out: &mut Actions) {
        let next = self.publisher.next_version();
        let Some(bitmap) = &mut self.bitmap else { return };
        let durable = |version: u64| self.publisher.is_durable(version);
        bitmap.setting.retain(|_, version| !durable(*version));
        if bitmap.setting.values().any(|&version| version == next) {
            self.bits_changed(out);
        }
    }

    /// A write on `band` is over; one that failed leaves its region marked.
    pub(super) fn unmark(&mut self, band: &Band, failed: bool, out: &mut Actions) {
        let (from, to) = self.position(band);
        let now = self.now;
        let Some(bitmap) = self.bitmap.as_mut() else { return };
        for bit in bitmap.regions(from, to) {
            let Some(count) = bitmap.busy.get_mut(&bit) else { continue };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            bitmap.busy.remove(&bit);
            if failed {
                bitmap.needed.insert(bit);
            } else if !bitmap.needed.contains(&bit) {
                bitmap.quiet.insert(bit, now);
            }
        }
        self.clear_when_quiet(out);
    }

    /// Clears the bits of regions that have been quiet for long, or asks to be woken then.
    pub(super) fn clear_when_quiet(&mut self, out: &mut Actions) {
        if self.shape.code == Code::None || self.read_only || self.broken {
            return;
        }
        let asleep = self.clear_due.is_some_and(|due| due > self.now) && self.stopping.is_none();
        if asleep || self.bitmap.is_none() || !self.health.degraded().is_empty() {
            return;
        }
        let Some(bitmap) = self.bitmap.as_mut().filter(|b| !b.clearing) else { return };
        let sleep = Span::millis(u64::from(bitmap.head.daemon_sleep) * 1000);
        let Some(first) = bitmap.quiet.values().min() else { return };
        let due = first.after(sleep);
        if self.now >= due || self.stopping.is_some() {
            self.clear_due = None;
            bitmap.clearing = true;
            self.bits_to_clear(out);
        } else {
            self.clear_due = Some(due);
            out.push(super::Action::Wake(due));
        }
    }

    /// Clears, in the image, what has been quiet for long: called when everything written until
    /// `flushed` is durable on all members.
    pub(super) fn clear_quiet(&mut self, flushed: Instant) {
        let whole = self.health.degraded().is_empty();
        let stopping = self.stopping.is_some();
        let Some(bitmap) = self.bitmap.as_mut() else { return };
        bitmap.clearing = false;
        if !whole {
            return;
        }
        let sleep = Span::millis(u64::from(bitmap.head.daemon_sleep) * 1000);
        let long = |since: &Instant| stopping || since.after(sleep) <= flushed;
        let quiet: Vec<u64> = bitmap
            .quiet
            .iter()
            .filter(|(_, since)| **since <= flushed && long(since))
            .map(|(&bit, _)| bit)
            .collect();
        for bit in quiet {
            bitmap.quiet.remove(&bit);
            bitmap.put(bit, false);
        }
    }
}
