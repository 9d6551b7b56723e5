//! The walk over all stripes, or over a sample of them, and the count.

use super::batch::{Batch, Page, Piece};
use super::finding::{Finding, Verdict};
use super::judge::{agrees, is_comparable, judge};
use super::target::Target;
use super::unsynced::position;
use super::{PAGE, WINDOW};
use crate::layout::Code;
use crate::sim::Rng;
use crate::units::{Sectors, StripeNo};
use std::collections::BTreeSet;

/// Sectors of each member read at a time: long enough for a disk to stream.
const BATCH: Sectors = Sectors::kib(1024);

/// How to scan.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only so many stripes, drawn by a seed: (how many, seed).
    pub sample: Option<(u64, u64)>,
    /// Stop after so many findings.
    pub limit: Option<u64>,
    /// Compare also what an interrupted resync has not reached.
    pub unsynced_too: bool,
}

/// What a scan came to. Pages are of 4 KiB, counted once for all units beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Stripes looked at.
    pub stripes: u64,
    /// Pages compared.
    pub pages: u64,
    /// Pages that did not agree.
    pub differing: u64,
    /// md's `mismatch_cnt`, in sectors.
    pub mismatch_cnt: u64,
    /// Pages an interrupted resync has not made consistent yet: not compared.
    pub unsynced: u64,
    /// Pages not compared because members are missing.
    pub missing: u64,
    /// Pages with a unit that does not read or is listed as bad, and is needed to compare.
    pub unreadable: u64,
    /// Findings in all.
    pub findings: u64,
    /// Findings by the slot that is wrong, where that is known.
    pub liars: Vec<u64>,
    /// The limit of findings ended it early.
    pub cut: bool,
}

impl Summary {
    /// True if everything that was compared agrees and everything could be read.
    pub fn is_clean(&self) -> bool {
        self.differing == 0 && self.unreadable == 0
    }
}

/// Compares; `found` gets each finding in the order of stripes, `progress` the stripes done and
/// the stripes in all, after each batch.
pub fn scan(
    target: &Target,
    options: &Options,
    found: &mut dyn FnMut(Finding),
    progress: &mut dyn FnMut(u64, u64),
) -> Summary {
    let shape = target.layout.shape();
    let mut walk = Walk {
        target,
        code: shape.code,
        level: shape.level,
        limit: options.limit.unwrap_or(u64::MAX),
        unsynced_too: options.unsynced_too,
        found,
        summary: Summary { liars: vec![0; target.members.len()], ..Summary::default() },
    };
    if shape.code == Code::None {
        return walk.summary;
    }
    let stripes = chosen(shape.stripes, options.sample);
    let total = stripes.as_ref().map_or(shape.stripes, |chosen| chosen.len() as u64);
    let numbers: Box<dyn Iterator<Item = u64>> = match stripes {
        Some(chosen) => Box::new(chosen.into_iter()),
        None => Box::new(0..shape.stripes),
    };
    let mut pieces = Vec::new();
    let mut height = Sectors::ZERO;
    for no in numbers {
        let stripe = target.layout.stripe(StripeNo(no));
        let mut low = Sectors::ZERO;
        while low < stripe.len {
            let high = stripe.len.min(low + BATCH);
            pieces.push(Piece { stripe: stripe.clone(), low, high });
            height += high - low;
            low = high;
            if height >= BATCH {
                walk.batch(&mut pieces);
                height = Sectors::ZERO;
            }
        }
        walk.summary.stripes += 1;
        if walk.summary.cut {
            return walk.summary;
        }
        if height.is_empty() {
            progress(walk.summary.stripes, total);
        }
    }
    walk.batch(&mut pieces);
    progress(walk.summary.stripes, total);
    walk.summary
}

/// The stripes of a sample, in order; none: all.
fn chosen(stripes: u64, sample: Option<(u64, u64)>) -> Option<BTreeSet<u64>> {
    let (count, seed) = sample.filter(|(count, _)| *count < stripes)?;
    let mut random = Rng::new(seed);
    // Floyd's way of drawing without repetition: as many draws as stripes wanted.
    let mut chosen = BTreeSet::new();
    for last in stripes - count..stripes {
        let drawn = random.below(last + 1);
        if !chosen.insert(drawn) {
            chosen.insert(last);
        }
    }
    Some(chosen)
}

struct Walk<'a> {
    target: &'a Target,
    code: Code,
    level: i32,
    limit: u64,
    unsynced_too: bool,
    found: &'a mut dyn FnMut(Finding),
    summary: Summary,
}

impl Walk<'_> {
    fn batch(&mut self, pieces: &mut Vec<Piece>) {
        let batch = Batch::read(self.target, pieces);
        for piece in pieces.drain(..) {
            if !self.summary.cut {
                self.piece(&batch, &piece);
            }
        }
    }

    fn piece(&mut self, batch: &Batch, piece: &Piece) {
        let units = piece.stripe.units.iter();
        let views: Vec<(&[u8], &[Page])> =
            units.map(|unit| batch.view(unit, piece.low, piece.len())).collect();
        let at = position(self.level, &piece.stripe, piece.low);
        let synced = self.unsynced_too || !self.target.unsynced.touches(at, piece.len());
        let whole = views.iter().all(|(_, pages)| pages.iter().all(|page| *page == Page::Good));
        let bytes: Vec<&[u8]> = views.iter().map(|(bytes, _)| *bytes).collect();
        if synced && whole && agrees(self.code, &piece.stripe, &bytes) {
            self.summary.pages += piece.len().0.div_ceil(PAGE.0);
            return;
        }
        let mut low = piece.low;
        while low < piece.high && !self.summary.cut {
            let high = piece.high.min(low + WINDOW);
            self.window(piece, &views, low, high);
            low = high;
        }
    }

    /// A window of md's size: copies that differ anywhere in it count for all of it.
    fn window(&mut self, piece: &Piece, views: &[(&[u8], &[Page])], low: Sectors, high: Sectors) {
        let mut differing = vec![false; views.len()];
        let mut pending: Option<Finding> = None;
        let mut at = low;
        while at < high {
            let end = high.min(at + PAGE);
            for finding in self.page(piece, views, at, end) {
                for (index, differs) in differing.iter_mut().enumerate() {
                    *differs |= differs_from_first(&finding, index);
                }
                pending = match pending.take() {
                    Some(mut last) if goes_on(self.code, &last, &finding) => {
                        last.join(finding);
                        Some(last)
                    }
                    last => {
                        last.into_iter().for_each(|finding| self.report(finding));
                        Some(finding)
                    }
                };
            }
            at = end;
        }
        pending.into_iter().for_each(|finding| self.report(finding));
        if self.code == Code::Copy {
            let count = differing.iter().filter(|differs| **differs).count() as u64;
            self.summary.mismatch_cnt += (high - low).times(count).0;
        }
    }

    /// What disagrees in one page; also counts why it could not be compared.
    fn page(
        &mut self,
        piece: &Piece,
        views: &[(&[u8], &[Page])],
        low: Sectors,
        high: Sectors,
    ) -> Vec<Finding> {
        let at = position(self.level, &piece.stripe, low);
        if !self.unsynced_too && self.target.unsynced.touches(at, high - low) {
            self.summary.unsynced += 1;
            return Vec::new();
        }
        let inside = low - piece.low;
        let number = inside.div_floor(PAGE) as usize;
        let mut contents: Vec<Result<&[u8], Page>> = Vec::with_capacity(views.len());
        for (bytes, pages) in views {
            contents.push(match pages[number] {
                Page::Good => Ok(&bytes[inside.len()..][..(high - low).len()]),
                why => Err(why),
            });
        }
        let present = contents.iter().flatten().count();
        if !is_comparable(self.code, present, contents.len()) {
            match contents.contains(&Err(Page::Unreadable)) {
                true => self.summary.unreadable += 1,
                false => self.summary.missing += 1,
            }
            return Vec::new();
        }
        self.summary.pages += 1;
        let contents: Vec<Option<&[u8]>> = contents.into_iter().map(Result::ok).collect();
        let findings = judge(self.code, &piece.stripe, low, &contents);
        if !findings.is_empty() {
            self.summary.differing += 1;
            if self.code != Code::Copy {
                self.summary.mismatch_cnt += PAGE.0;
            }
        }
        findings
    }

    fn report(&mut self, finding: Finding) {
        if self.summary.cut {
            return;
        }
        self.summary.findings += 1;
        if let Verdict::Liars(liars) = &finding.verdict {
            for at in liars {
                self.summary.liars[finding.parts[*at].unit.slot.index()] += 1;
            }
        }
        (self.found)(finding);
        self.summary.cut = self.summary.findings >= self.limit;
    }
}

/// True if the copy differs from the first that was read, with which md compares.
fn differs_from_first(finding: &Finding, index: usize) -> bool {
    let first = finding.parts.iter().find_map(|part| part.content.as_ref());
    let this = finding.parts[index].content.as_ref();
    this.is_some_and(|this| Some(this) != first)
}

/// Copies that differ alike over the border of a page are one finding.
fn goes_on(code: Code, last: &Finding, next: &Finding) -> bool {
    let pattern = |finding: &Finding| -> Vec<Option<bool>> {
        let parts = finding.parts.iter().enumerate();
        parts
            .map(|(at, part)| part.content.as_ref().map(|_| differs_from_first(finding, at)))
            .collect()
    };
    code == Code::Copy
        && last.low + last.len == next.low
        && last.verdict == next.verdict
        && last.parts.iter().zip(&next.parts).all(|(a, b)| {
            a.content.is_some() == b.content.is_some() && a.implied.is_some() == b.implied.is_some()
        })
        && pattern(last) == pattern(next)
}
