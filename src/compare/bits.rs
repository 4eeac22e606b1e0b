//! Elements whose bit patterns are equal.

/// Counts the values `start..start + count` whose patterns of `bits` bits are equal in both byte
/// strings and for which `counts` holds. 4-bit values lie low nibble first.
pub(super) fn count_equal(
    bits: u32,
    golden: &[u8],
    candidate: &[u8],
    start: usize,
    count: usize,
    counts: impl Fn(usize) -> bool,
) -> u64 {
    fn each<const N: usize>(
        golden: &[u8],
        candidate: &[u8],
        start: usize,
        count: usize,
        counts: impl Fn(usize) -> bool,
    ) -> u64 {
        let ((golden, _), (candidate, _)) = (golden.as_chunks::<N>(), candidate.as_chunks::<N>());
        let pairs = golden.iter().zip(candidate).enumerate().skip(start).take(count);
        pairs.filter(|(at, (a, b))| a == b && counts(*at)).count() as u64
    }
    match bits {
        4 => {
            let differ = |at: usize| match (golden.get(at / 2), candidate.get(at / 2)) {
                (Some(a), Some(b)) => (a ^ b) >> (4 * (at % 2)) & 0xf != 0,
                _ => true,
            };
            (start..start + count).filter(|&at| !differ(at) && counts(at)).count() as u64
        }
        8 => each::<1>(golden, candidate, start, count, counts),
        16 => each::<2>(golden, candidate, start, count, counts),
        32 => each::<4>(golden, candidate, start, count, counts),
        _ => each::<8>(golden, candidate, start, count, counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_words_and_masks() {
        // Nibbles of the golden: 1 2 3 4; of the candidate: 1 5 3 4.
        assert_eq!(count_equal(4, &[0x21, 0x43], &[0x51, 0x43], 0, 4, |_| true), 3);
        assert_eq!(count_equal(4, &[0x21, 0x43], &[0x51, 0x43], 1, 2, |_| true), 1);
        let (a, b) = ([1, 0, 2, 0, 3, 0], [1, 0, 2, 1, 3, 0]);
        assert_eq!(count_equal(16, &a, &b, 0, 3, |_| true), 2);
        assert_eq!(count_equal(16, &a, &b, 1, 2, |_| true), 1);
        assert_eq!(count_equal(16, &a, &b, 0, 3, |at| at != 0), 1);
    }
}
