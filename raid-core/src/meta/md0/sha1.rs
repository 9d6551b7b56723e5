//! SHA-1 (FIPS 180-4), only to mark the host in an id as mdadm does; it protects nothing.

/// The digest of `message`.
pub fn digest(message: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((message.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    padded.chunks_exact(64).for_each(|block| mix(&mut state, block));
    let mut digest = [0; 20];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn mix(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four bytes"));
    }
    for n in 16..80 {
        words[n] = (words[n - 3] ^ words[n - 8] ^ words[n - 14] ^ words[n - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (n, word) in words.into_iter().enumerate() {
        let (choice, constant) = match n / 20 {
            0 => (b & c | !b & d, 0x5a82_7999u32),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let sums = [choice, e, constant, word];
        let sum = sums.into_iter().fold(a.rotate_left(5), u32::wrapping_add);
        (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
    }
    for (place, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *place = place.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(message: &[u8]) -> String {
        digest(message).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_standards_examples() {
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(long), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    }
}
