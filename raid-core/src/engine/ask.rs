//! What a user asks, cut into flights, and the one reply it gets.

use super::flight::{Flight, Kind, Owner};
use super::manage::Manage;
use super::{Action, Actions, Engine};
use crate::buf::{Buf, Shared};
use crate::error::{Error, ErrorKind};
use crate::meta::md_journal::{BLOCK, BLOCK_BYTES};
use crate::plan;
use crate::units::Sectors;

/// Chosen by the driver; unique among the open asks.
pub type AskId = u64;

/// A request.
#[derive(Debug)]
pub enum Ask {
    /// Fill `buf`, whole sectors, from array sector `at`.
    Read {
        /// First array sector.
        at: Sectors,
        /// Comes back filled in the reply.
        buf: Buf,
    },
    /// Write `data`, whole sectors, at array sector `at`.
    Write {
        /// First array sector.
        at: Sectors,
        /// The bytes.
        data: Shared,
        /// Bytes at both ends that are to keep what the array holds there.
        keep: Keep,
    },
    /// Make everything answered before durable.
    Flush,
    /// Change who belongs to the array, or what it does in the background.
    Manage(Manage),
    /// Finish what is open, make it durable, mark the array clean.
    Stop,
}

/// Bytes at the ends of a write that are not to be changed: of its first and last sector, inside
/// the engine of its first and last page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// At the beginning; of an ask less than a sector.
    pub head: usize,
    /// At the end; of an ask less than a sector.
    pub tail: usize,
}

/// The reply.
#[derive(Debug)]
pub enum Outcome {
    /// The buffer of a read, filled.
    Read(Buf),
    /// A write, flush or stop is done.
    Done,
    /// It failed; a write may have been done in part, sector by sector.
    Failed(Error),
}

/// An ask whose flights are not all done.
#[derive(Debug)]
pub(super) struct OpenAsk {
    pending: usize,
    write: bool,
    pieces: Vec<Option<Buf>>,
    trouble: Option<(ErrorKind, String)>,
}

impl Engine {
    pub(super) fn asked(&mut self, id: AskId, ask: Ask, out: &mut Actions) {
        if self.stopping.is_some() {
            let error = Error::new(ErrorKind::Refused, "the array is being stopped");
            return out.push(Action::Reply(id, Outcome::Failed(error)));
        }
        match ask {
            Ask::Read { at, buf } => self.ask_read(id, at, buf, out),
            Ask::Write { at, data, keep } => self.ask_write(id, at, data, keep, out),
            Ask::Flush => self.ask_flush(id, out),
            Ask::Manage(what) => self.manage(id, what, out),
            Ask::Stop => self.stopping = Some(id),
        }
    }

    fn ask_read(&mut self, id: AskId, at: Sectors, mut buf: Buf, out: &mut Actions) {
        let bands = plan::split(&*self.layout, at, Sectors::floor_bytes(buf.len() as u64));
        let bands = self.cut_at_bad(bands.into());
        // Pieces are cut in array order; the bands of a stripe are not in that order.
        let mut places: Vec<(Sectors, usize, u16)> = Vec::new();
        for (index, band) in bands.iter().enumerate() {
            let units = band.first..=band.last;
            places.extend(units.map(|unit| (band.array_at(unit), index, unit)));
        }
        places.sort_unstable();
        let mut flights: Vec<Flight> =
            bands.into_iter().map(|band| Flight::new(Owner::Ask(id), Kind::Read, band)).collect();
        for (place, &(_, index, unit)) in places.iter().enumerate() {
            let len = flights[index].band.height().len();
            flights[index].expect_piece(unit, place, buf.split_to(len));
        }
        self.stats.reads += 1;
        self.asked_at = self.now;
        self.open(id, false, places.len(), flights, out);
    }

    fn ask_write(&mut self, id: AskId, at: Sectors, data: Shared, keep: Keep, out: &mut Actions) {
        if self.read_only {
            let error = Error::new(ErrorKind::ReadOnly, "the array is read-only");
            return out.push(Action::Reply(id, Outcome::Failed(error)));
        }
        let (at, data, keep) = match self.logs.journal {
            Some(_) => self.in_pages(at, data, keep),
            None => (at, data, keep),
        };
        let len = Sectors::floor_bytes(data.len() as u64);
        let end = at + len;
        let mut bands = plan::split(&*self.layout, at, len);
        if let Some(rows) = self.log_room {
            bands = plan::shortened(bands, rows);
        }
        let marks: Vec<Option<u64>> = bands.iter().map(|band| self.mark(band)).collect();
        let flights: Vec<Flight> = bands
            .into_iter()
            .zip(marks)
            .map(|(band, mark)| {
                let mut flight = Flight::new(Owner::Ask(id), Kind::Write, band);
                flight.marked = mark;
                for unit in flight.band.first..=flight.band.last {
                    let from = flight.band.array_at(unit);
                    let height = flight.band.height();
                    let piece = data.slice((from - at).len(), height.len());
                    let head = if from == at { keep.head } else { 0 };
                    let tail = if from + height == end { keep.tail } else { 0 };
                    flight.give_piece(unit, piece, Keep { head, tail });
                }
                flight
            })
            .collect();
        self.stats.writes += 1;
        self.asked_at = self.now;
        self.open_writes += 1;
        self.mark_dirty(out);
        self.publish_marks(out);
        self.open(id, true, 0, flights, out);
    }

    /// The same write in whole pages of 4 KiB, as a journal keeps them: more to keep at its ends.
    fn in_pages(&self, at: Sectors, data: Shared, keep: Keep) -> (Sectors, Shared, Keep) {
        let from = at.round_down(BLOCK);
        let len = (at - from).len() + data.len();
        let (head, whole) = ((at - from).len(), len.next_multiple_of(BLOCK_BYTES));
        if head == 0 && whole == data.len() {
            return (at, data, keep);
        }
        let mut pages = self.pool.zeroed(whole);
        pages[head..len].copy_from_slice(&data);
        let keep = Keep { head: keep.head + head, tail: keep.tail + whole - len };
        (from, pages.freeze(), keep)
    }

    fn open(&mut self, id: AskId, write: bool, pieces: usize, all: Vec<Flight>, out: &mut Actions) {
        let pieces = std::iter::repeat_with(|| None).take(pieces).collect();
        let ask = OpenAsk { pending: all.len(), write, pieces, trouble: None };
        let twice = self.asks.insert(id, ask);
        assert!(twice.is_none(), "ask {id} is open once");
        let ids: Vec<_> = all.into_iter().map(|flight| self.flights.insert(flight)).collect();
        for flight in ids {
            self.start(flight, out);
        }
    }

    /// A piece of a read is filled.
    pub(super) fn piece_read(&mut self, ask: AskId, place: usize, piece: Buf) {
        let ask = self.asks.get_mut(&ask).expect("a flight's ask is open");
        ask.pieces[place] = Some(piece);
    }

    /// One flight of `id` is over.
    pub(super) fn flight_over(
        &mut self,
        id: AskId,
        trouble: Option<(ErrorKind, String)>,
        out: &mut Actions,
    ) {
        let ask = self.asks.get_mut(&id).expect("a flight's ask is open");
        ask.pending -= 1;
        ask.trouble = ask.trouble.take().or(trouble);
        if ask.pending > 0 {
            return;
        }
        let ask = self.asks.remove(&id).expect("it is there, see above");
        if ask.write {
            self.open_writes -= 1;
            self.idle_since = self.now;
            self.mark_clean_when_idle(out);
        }
        let outcome = match ask.trouble {
            Some((kind, text)) => Outcome::Failed(Error::new(kind, text)),
            None if ask.write => Outcome::Done,
            None => Outcome::Read(joined(ask.pieces)),
        };
        out.push(Action::Reply(id, outcome));
    }

    /// When everything is done that was open at the stop: flush, mark clean, answer.
    /// Called after every event until then.
    pub(super) fn go_on_stopping(&mut self, out: &mut Actions) {
        let Some(id) = self.stopping else { return };
        self.halt_job();
        if !self.asks.is_empty() || !self.flights.is_empty() || !self.flushes.is_idle() {
            return;
        }
        self.end_job(out);
        if !self.stop_flushed {
            self.stop_flushed = true;
            self.start_flush(Vec::new(), out);
            // Done at once where there is nobody to flush: no event would bring us back.
            if !self.flushes.is_idle() {
                return;
            }
        }
        if self.dirty && !self.broken {
            self.mark_clean_when_idle(out);
        }
        // Asked for at every step, an update would never get its flush done before the next.
        if self.publisher.is_idle() {
            self.clear_when_quiet(out);
        }
        if self.publisher.is_idle() {
            self.stopping = None;
            self.read_only = true;
            out.push(Action::Reply(id, self.stopped()));
        }
    }

    /// How a stop ends: an array that lost more than it survives cannot be marked clean.
    fn stopped(&self) -> Outcome {
        let why = match (self.broken, &self.flush_lost) {
            (false, _) => return Outcome::Done,
            (true, Some(trouble)) => format!("a flush failed: {trouble}"),
            (true, None) => "more members failed than the level survives".into(),
        };
        let text = format!("stopped, but not marked clean: {why}");
        Outcome::Failed(Error::new(ErrorKind::Io, text))
    }
}

/// The pieces of a read, in array order, as one buffer again.
fn joined(pieces: Vec<Option<Buf>>) -> Buf {
    let mut pieces = pieces.into_iter().map(|p| p.expect("every piece of a good read is there"));
    let mut whole = pieces.next().expect("a read has at least one piece");
    pieces.for_each(|piece| whole.unsplit(piece));
    whole
}
