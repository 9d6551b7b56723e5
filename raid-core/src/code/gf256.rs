//! The field GF(2^8) of RAID 6: 256 byte values, polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
//!
//! Adding is XOR. Multiplying by `g` = 2 is a left shift, and 0x1d is added where a bit fell out.
//! `g` generates the field: its powers 0..255 are all the 255 non-zero bytes, each once.
//!
//! # P and Q
//!
//! From H. Peter Anvin, "The mathematics of RAID-6"; the same bytes as md, DDF and btrfs.
//! With data units `D_i`, `i` the *power* of the unit (below 255), for each byte position:
//!
//! ```text
//! P = D_0 + D_1 + ... + D_n           Q = g^0 D_0 + g^1 D_1 + ... + g^n D_n
//! ```
//!
//! Horner's rule makes Q without a multiplication table, highest power first:
//! `Q = (..(D_n g + D_{n-1}) g + ..) g + D_0`.
//!
//! # Solving
//!
//! A lost unit counts as zero in a sum over the remaining ones. Let `P'` and `Q'` be the stored
//! parity plus that sum; what is left in them is the lost units alone.
//!
//! ```text
//! one lost, x:        P' = D_x                      ->  D_x = P'
//!                     Q' = g^x D_x                  ->  D_x = g^-x Q'
//! two lost, x and y:  P' = D_x + D_y
//!                     Q' = g^x D_x + g^y D_y
//!   D_y = P' + D_x, so  Q' = (g^x + g^y) D_x + g^y P', and with  k = 1 / (g^(y-x) + 1):
//!                     D_x = g^(y-x) k P' + g^-x k Q'          D_y = P' + D_x
//! ```
//!
//! # Locating
//!
//! If exactly one unit `x` is wrong by `E`, then `P' = E` and `Q' = g^x E`, hence
//! `x = log Q' - log P'` (modulo 255) at every byte where `E` is not zero.

/// The polynomial without its x^8: what is added when a doubling overflows.
pub const POLYNOMIAL: u8 = 0x1d;

/// Non-zero elements: the powers of `g` repeat after so many.
pub const ORDER: usize = 255;

/// `EXP[i]` = g^i, for `i` below [`ORDER`]; the last entry is unused.
pub const EXP: [u8; 256] = exponentials();

/// `LOG[g^i]` = i; the entry of 0 has no meaning.
pub const LOG: [u8; 256] = logarithms();

/// For each factor the products with 0..16 and then with 0x00, 0x10, .. 0xf0.
///
/// A product of two bytes is the sum of two entries, which is one byte shuffle each.
pub static NIBBLES: [[u8; 32]; 256] = nibbles();

/// The product of two elements.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[(LOG[a as usize] as usize + LOG[b as usize] as usize) % ORDER]
}

/// The element whose product with `a` is 1. Zero has none.
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[(ORDER - LOG[a as usize] as usize) % ORDER]
}

/// `g` to the given power, which may be any integer.
pub const fn power(exponent: i32) -> u8 {
    EXP[exponent.rem_euclid(ORDER as i32) as usize]
}

/// Twice `a`.
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { POLYNOMIAL } else { 0 }
}

/// The factors that solve two lost units `x` and `y`: `D_x = of_p P' + of_q Q'`.
pub const fn two_lost(x: usize, y: usize) -> (u8, u8) {
    let ratio = power(y as i32 - x as i32);
    let k = inverse(ratio ^ 1);
    (mul(ratio, k), mul(power(-(x as i32)), k))
}

const fn exponentials() -> [u8; 256] {
    let mut table = [0; 256];
    let mut value = 1;
    let mut i = 0;
    while i < ORDER {
        table[i] = value;
        value = double(value);
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut i = 0;
        while i < 16 {
            table[factor][i] = mul(factor as u8, i as u8);
            table[factor][16 + i] = mul(factor as u8, (i as u8) << 4);
            i += 1;
        }
        factor += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as polynomials, bit by bit: independent of the tables.
    fn long_mul(a: u8, b: u8) -> u8 {
        let mut product: u16 = 0;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_are_those_of_polynomials() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), long_mul(a, b), "{a:#x} * {b:#x}");
                let table = &NIBBLES[a as usize];
                let split = table[(b & 15) as usize] ^ table[16 + (b >> 4) as usize];
                assert_eq!(split, mul(a, b), "nibbles of {a:#x} * {b:#x}");
            }
            assert_eq!(double(a), long_mul(a, 2));
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1, "{a:#x}");
        }
    }

    #[test]
    fn generator_reaches_every_element_once() {
        let mut seen = [false; 256];
        for exponent in 0..ORDER {
            let value = power(exponent as i32);
            assert!(!seen[value as usize], "g^{exponent} = {value:#x} came before");
            seen[value as usize] = true;
            assert_eq!(power(exponent as i32 - ORDER as i32), value);
            assert_eq!(mul(value, power(-(exponent as i32))), 1);
        }
        assert!(!seen[0]);
    }

    #[test]
    fn two_lost_solves_every_pair() {
        for x in 0..ORDER {
            for y in (0..ORDER).filter(|y| *y != x) {
                let (dx, dy) = (0xa7, 0x31);
                let p = dx ^ dy;
                let q = mul(power(x as i32), dx) ^ mul(power(y as i32), dy);
                let (of_p, of_q) = two_lost(x, y);
                assert_eq!(mul(of_p, p) ^ mul(of_q, q), dx, "{x} and {y}");
            }
        }
    }
}
