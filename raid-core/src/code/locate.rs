//! Which unit is wrong, when P and Q both disagree with the data.

use super::gf256;

/// What explains the differences of P and Q, if it is a single unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Culprit {
    /// There is no difference.
    Nothing,
    /// Only P differs: P itself is wrong.
    P,
    /// Only Q differs: Q itself is wrong.
    Q,
    /// The data unit of this power, 0 to 254. The caller must ask whether it has such a unit:
    /// if not, more than one unit is wrong.
    Data(u8),
    /// No single unit explains all bytes: at least two are wrong.
    Several,
}

/// Finds the one wrong unit of a stripe, or of a part of it.
///
/// `p_difference` and `q_difference` are stored XOR computed parity, equally long. A single wrong
/// unit of power `x` has `log Q' - log P' = x` at every byte that differs (see
/// [`gf256`](super::gf256)); several wrong units that look like one in all bytes are possible but
/// unlikely, one in 255 for each byte.
pub fn locate(p_difference: &[u8], q_difference: &[u8]) -> Culprit {
    assert_eq!(p_difference.len(), q_difference.len(), "lengths of the differences");
    let mut culprit = Culprit::Nothing;
    for (p, q) in p_difference.iter().zip(q_difference) {
        let here = locate_byte(*p, *q);
        if here == Culprit::Nothing || here == culprit {
            continue;
        }
        if culprit != Culprit::Nothing {
            return Culprit::Several;
        }
        culprit = here;
    }
    culprit
}

fn locate_byte(p: u8, q: u8) -> Culprit {
    match (p, q) {
        (0, 0) => Culprit::Nothing,
        (0, _) => Culprit::Q,
        (_, 0) => Culprit::P,
        _ => {
            let (p, q) = (gf256::LOG[usize::from(p)], gf256::LOG[usize::from(q)]);
            let power = (gf256::ORDER + usize::from(q) - usize::from(p)) % gf256::ORDER;
            Culprit::Data(power as u8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_culprit_is_found() {
        for power in 0..255u8 {
            let error = [0, 1, 0x80, 0xff, power];
            let factor = gf256::power(i32::from(power));
            let q = error.map(|byte| gf256::mul(factor, byte));
            assert_eq!(locate(&error, &q), Culprit::Data(power));
        }
        assert_eq!(locate(&[0, 0, 7], &[0, 0, 0]), Culprit::P);
        assert_eq!(locate(&[0, 0, 0], &[0, 9, 0]), Culprit::Q);
        assert_eq!(locate(&[0; 3], &[0; 3]), Culprit::Nothing);
        assert_eq!(locate(&[], &[]), Culprit::Nothing);
    }

    #[test]
    fn two_culprits_are_not_blamed_on_one() {
        for (p, q) in [([1, 0], [0, 1]), ([1, 1], [1, 2]), ([1, 1], [1, 0]), ([0, 3], [3, 3])] {
            assert_eq!(locate(&p, &q), Culprit::Several, "{p:?} {q:?}");
        }
    }
}
