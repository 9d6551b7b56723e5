//! Joins what touches: pieces of one batch that lie end to end on one member become one transfer.
//!
//! A disk does one request of 64 KiB in little more time than one of 4 KiB, so this is what makes
//! units of one sector and reads over many stripes cheap. Pure: numbers in, numbers out. Never
//! joined: reads with writes, across a gap, what overlaps, and what would grow past what one
//! system call takes.

use crate::units::Sectors;
use smallvec::{SmallVec, smallvec};

/// Largest joined transfer (4 MiB). Beyond, nothing is gained, and an error would concern more.
pub const RUN_MAX: Sectors = Sectors::kib(4096);

/// Most buffers of a joined transfer: Linux takes 1024 in one call (`UIO_MAXIOV`).
pub const BUFFERS_MAX: usize = 1024;

/// What a piece does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Member to memory.
    Read,
    /// Memory to member.
    Write,
    /// Make durable; has no place and no length.
    Flush,
}

/// One operation of a batch, as numbers. Its identity is its index in the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which member.
    pub device: usize,
    /// What to do.
    pub kind: Kind,
    /// Where it begins.
    pub at: Sectors,
    /// How long it is.
    pub len: Sectors,
    /// In how many buffers its bytes lie.
    pub buffers: usize,
}

/// One transfer that does the work of some pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// Which member.
    pub device: usize,
    /// What to do.
    pub kind: Kind,
    /// Where it begins.
    pub at: Sectors,
    /// How long it is.
    pub len: Sectors,
    /// Indices of its pieces in the batch, in the order of their places on the member.
    pub pieces: SmallVec<[usize; 4]>,
    buffers: usize,
}

/// The runs that do the work of `pieces`, in the order of their first piece in the batch. Every
/// piece is in exactly one run.
pub fn merge(pieces: &[Piece]) -> SmallVec<[Run; 8]> {
    let mut order: SmallVec<[usize; 16]> = (0..pieces.len()).collect();
    order.sort_by_key(|&i| (pieces[i].device, pieces[i].kind, pieces[i].at, i));
    let mut runs: SmallVec<[Run; 8]> = SmallVec::new();
    for index in order {
        let piece = &pieces[index];
        match runs.last_mut() {
            Some(run) if joins(run, piece) => {
                run.len += piece.len;
                run.buffers += piece.buffers;
                run.pieces.push(index);
            }
            _ => runs.push(Run {
                device: piece.device,
                kind: piece.kind,
                at: piece.at,
                len: piece.len,
                pieces: smallvec![index],
                buffers: piece.buffers,
            }),
        }
    }
    runs.sort_by_key(|run| run.pieces.iter().copied().min());
    runs
}

fn joins(run: &Run, piece: &Piece) -> bool {
    let same = run.device == piece.device && run.kind == piece.kind;
    if run.kind == Kind::Flush {
        return same;
    }
    let touches = run.at.0.checked_add(run.len.0) == Some(piece.at.0);
    let len = run.len.0.checked_add(piece.len.0);
    same && touches
        && len.is_some_and(|len| len <= RUN_MAX.0)
        && run.buffers + piece.buffers <= BUFFERS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::conformance::Rng;

    fn piece(device: usize, kind: Kind, at: u64, len: u64) -> Piece {
        Piece { device, kind, at: Sectors(at), len: Sectors(len), buffers: 1 }
    }

    /// The runs of some pieces, as `device:at+len[pieces]`.
    fn told(pieces: &[Piece]) -> String {
        let runs = merge(pieces);
        let run = |r: &Run| format!("{}:{}+{}{:?}", r.device, r.at, r.len, &r.pieces[..]);
        runs.iter().map(run).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_touches_is_joined_and_nothing_else() {
        use Kind::{Flush, Read, Write};
        let cases: [(&[Piece], &str); 9] = [
            (&[], ""),
            (&[piece(0, Read, 8, 8)], "0:8+8[0]"),
            (&[piece(0, Read, 8, 8), piece(0, Read, 16, 1)], "0:8+9[0, 1]"),
            (&[piece(0, Read, 16, 1), piece(0, Read, 8, 8)], "0:8+9[1, 0]"),
            (&[piece(0, Read, 8, 8), piece(0, Read, 17, 1)], "0:8+8[0] 0:17+1[1]"),
            (&[piece(0, Read, 8, 8), piece(0, Read, 15, 8)], "0:8+8[0] 0:15+8[1]"),
            (&[piece(0, Read, 8, 8), piece(0, Write, 16, 1)], "0:8+8[0] 0:16+1[1]"),
            (&[piece(1, Read, 8, 8), piece(0, Read, 16, 1)], "1:8+8[0] 0:16+1[1]"),
            (
                &[piece(1, Flush, 0, 0), piece(0, Flush, 0, 0), piece(1, Flush, 0, 0)],
                "1:0+0[0, 2] 0:0+0[1]",
            ),
        ];
        for (pieces, runs) in cases {
            assert_eq!(told(pieces), runs);
        }
    }

    #[test]
    fn a_run_stays_within_what_a_call_takes() {
        let long = [piece(0, Kind::Read, 0, RUN_MAX.0), piece(0, Kind::Read, RUN_MAX.0, 1)];
        assert_eq!(merge(&long).len(), 2);
        let end = u64::MAX - 1;
        assert_eq!(merge(&[piece(0, Kind::Read, end, 8), piece(0, Kind::Read, 0, 8)]).len(), 2);
        let many: Vec<Piece> = (0..3000).map(|at| piece(0, Kind::Write, at, 1)).collect();
        let runs = merge(&many);
        assert_eq!(runs.iter().map(|r| r.len.0).collect::<Vec<_>>(), [1024, 1024, 952]);
    }

    #[test]
    fn every_piece_is_done_once_and_where_it_belongs() {
        for seed in 1..300 {
            let mut rng = Rng(seed);
            let pieces: Vec<Piece> = (0..rng.below(40))
                .map(|_| {
                    let kind = [Kind::Read, Kind::Write, Kind::Flush][rng.below(3) as usize];
                    let len = if kind == Kind::Flush { 0 } else { rng.below(4) };
                    piece(rng.below(3) as usize, kind, rng.below(40), len)
                })
                .collect();
            let runs = merge(&pieces);
            let mut seen = vec![false; pieces.len()];
            for run in &runs {
                let mut at = run.at;
                for &index in &run.pieces {
                    let piece = &pieces[index];
                    assert!(!std::mem::replace(&mut seen[index], true), "seed {seed}: twice");
                    assert_eq!((piece.device, piece.kind), (run.device, run.kind), "seed {seed}");
                    if run.kind != Kind::Flush {
                        assert_eq!(piece.at, at, "seed {seed}: a gap");
                    }
                    at += piece.len;
                }
                assert_eq!(run.at + run.len, at, "seed {seed}");
            }
            assert!(seen.iter().all(|&s| s), "seed {seed}: one was lost");
        }
    }
}
