//! Parity of a few bytes, in numbers: made, checked, updated in both ways, and solved.

use crate::code::{self, gf256};
use crate::error::{Error, Result};

/// Most data units: the powers of two in Q repeat after so many.
pub const UNITS_MAX: usize = gf256::ORDER;

/// The data units of a stripe, all of one length, and the powers with which Q counts them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parity {
    data: Vec<Vec<u8>>,
    powers: Vec<u8>,
}

/// P and Q after a write, in both ways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// P and Q changed by the difference of old and new data.
    pub modify: (Vec<u8>, Vec<u8>),
    /// P and Q made from all data as it is after the write.
    pub reconstruct: (Vec<u8>, Vec<u8>),
}

impl Parity {
    /// Takes the data units with their powers in Q; refuses none, unequal lengths, and powers
    /// that are not different.
    pub fn new(data: Vec<Vec<u8>>, powers: Vec<u8>) -> Result<Parity> {
        let len = data.first().map_or(0, Vec::len);
        if len == 0 || data.iter().any(|unit| unit.len() != len) {
            return Err(Error::invalid(
                "the values must be as long as each other, one byte or more",
            ));
        }
        if data.len() > UNITS_MAX || data.len() != powers.len() {
            return Err(Error::invalid(format!("at most {UNITS_MAX} values have a parity")));
        }
        let mut seen = [false; 256];
        match powers.iter().any(|&p| std::mem::replace(&mut seen[p as usize], true) || p == 255) {
            true => Err(Error::invalid("two values have the same power in Q")),
            false => Ok(Parity { data, powers }),
        }
    }

    /// The data units.
    pub fn data(&self) -> &[Vec<u8>] {
        &self.data
    }

    /// P and Q.
    pub fn pq(&self) -> (Vec<u8>, Vec<u8>) {
        let len = self.data[0].len();
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        code::pq(&self.by_power(), &mut p, &mut q);
        (p, q)
    }

    /// Data unit `lost` from the others and P.
    pub fn from_p(&self, lost: usize, p: &[u8]) -> Vec<u8> {
        let others = self.data.iter().enumerate().filter(|(index, _)| *index != lost);
        let sources: Vec<&[u8]> = others.map(|(_, unit)| unit.as_slice()).chain([p]).collect();
        let mut out = vec![0; p.len()];
        code::xor(&sources, &mut out);
        out
    }

    /// Data unit `lost` from the others and Q.
    pub fn from_q(&self, lost: usize, q: &[u8]) -> Vec<u8> {
        let mut out = vec![0; q.len()];
        code::rec_data_q(&self.by_power(), self.powers[lost] as usize, q, &mut out);
        out
    }

    /// Data units `one` and `two` from the others, P and Q.
    pub fn from_pq(&self, one: usize, two: usize, p: &[u8], q: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (x, y) = (self.powers[one] as usize, self.powers[two] as usize);
        let (mut out_x, mut out_y) = (vec![0; p.len()], vec![0; p.len()]);
        code::rec_two(&self.by_power(), x, y, p, q, &mut out_x, &mut out_y);
        (out_x, out_y)
    }

    /// The units at their powers, as the code wants them.
    fn by_power(&self) -> Vec<Option<&[u8]>> {
        let top = self.powers.iter().max().map_or(0, |&power| power as usize);
        let mut slots: Vec<Option<&[u8]>> = vec![None; top + 1];
        for (unit, &power) in self.data.iter().zip(&self.powers) {
            slots[power as usize] = Some(unit);
        }
        slots
    }
}

/// Parity after writing `new` (index and content, of the length of the others), from the parity
/// `p` and `q` that was there.
pub fn update(stripe: &Parity, new: &[(usize, Vec<u8>)], p: &[u8], q: &[u8]) -> Update {
    let (mut p, mut q) = (p.to_vec(), q.to_vec());
    let mut after = stripe.clone();
    for (index, content) in new {
        let (old, power) = (&after.data[*index], stripe.powers[*index]);
        code::update_pq(old, content, power, &mut p, &mut q);
        after.data[*index] = content.clone();
    }
    Update { modify: (p, q), reconstruct: after.pq() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(units: &[&[u8]]) -> Parity {
        let powers = (0..units.len() as u8).collect();
        Parity::new(units.iter().map(|unit| unit.to_vec()).collect(), powers).unwrap()
    }

    #[test]
    fn a_stale_parity_stays_stale_through_read_modify_write() {
        let data = stripe(&[&[0xab, 0x9c], &[0xaa, 0xbb], &[0x00, 0x98], &[0x54, 0x9c]]);
        assert_eq!(data.pq().0, [0x55, 0x23]);
        let update = update(&data, &[(0, vec![0x74, 0x53])], &[0x2f, 0xff], &[0, 0]);
        assert_eq!(update.modify.0, [0xf0, 0x30]);
        assert_eq!(update.reconstruct.0, [0x8a, 0xec]);
    }

    #[test]
    fn q_depends_on_the_order() {
        assert_eq!(stripe(&[&[0x44], &[0x11], &[0x22], &[0x33]]).pq(), (vec![0x44], vec![0x6b]));
        assert_eq!(stripe(&[&[0x11], &[0x22], &[0x33], &[0x44]]).pq().1, [0x83]);
        let powers = vec![1, 2, 3, 0];
        let units = [0x11, 0x22, 0x33, 0x44].map(|byte| vec![byte]).to_vec();
        assert_eq!(Parity::new(units, powers).unwrap().pq().1, [0x6b]);
    }

    #[test]
    fn every_loss_comes_back() {
        let data = stripe(&[&[1, 2], &[3, 4], &[250, 6], &[7, 128]]);
        let (p, q) = data.pq();
        for one in 0..4 {
            assert_eq!(data.from_p(one, &p), data.data()[one]);
            assert_eq!(data.from_q(one, &q), data.data()[one]);
            for two in one + 1..4 {
                let (x, y) = data.from_pq(one, two, &p, &q);
                assert_eq!((&x, &y), (&data.data()[one], &data.data()[two]));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Parity::new(vec![], vec![]).is_err());
        assert!(Parity::new(vec![vec![1], vec![1, 2]], vec![0, 1]).is_err());
        assert!(Parity::new(vec![vec![1], vec![2]], vec![1, 1]).is_err());
        assert!(Parity::new(vec![vec![1], vec![2]], vec![1, 255]).is_err());
    }
}
