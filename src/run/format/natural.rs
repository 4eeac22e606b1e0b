//! The natural order of names: numbers in them count as numbers, so that `layer2` comes before `layer10`.

use std::cmp::Ordering;

/// Compares two names; equal only if they are the same.
pub(super) fn compare(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        if a.is_ascii_digit() && b.is_ascii_digit() {
            let ((a, rest_of_a), (b, rest_of_b)) = (number(left), number(right));
            // Without leading zeros, more digits are the larger number.
            match a.len().cmp(&b.len()).then_with(|| a.cmp(b)) {
                Ordering::Equal => (left, right) = (rest_of_a, rest_of_b),
                unequal => return unequal,
            }
        } else {
            match a.cmp(b) {
                Ordering::Equal => (left, right) = (left.get(1..).unwrap_or(&[]), right.get(1..).unwrap_or(&[])),
                unequal => return unequal,
            }
        }
    }
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// The digits at the start without leading zeros, and what follows them.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let (digits, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    (digits.get(zeros..).unwrap_or(&[]), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = ["layer10.out", "layer2.out", "layer2", "Layer3", "layer02", "layer", "layer2.9", "layer2.10"];
        names.sort_by(|a, b| compare(a, b));
        let expected = ["Layer3", "layer", "layer02", "layer2", "layer2.9", "layer2.10", "layer2.out", "layer10.out"];
        assert_eq!(names, expected);
    }

    proptest! {
        #[test]
        fn it_is_an_order(names in prop::collection::vec("[a0-1.é]{0,6}", 3)) {
            let [a, b, c] = [&names[0], &names[1], &names[2]];
            prop_assert_eq!(compare(a, b), compare(b, a).reverse());
            prop_assert_eq!(compare(a, b) == Ordering::Equal, a == b);
            if compare(a, b).is_le() && compare(b, c).is_le() {
                prop_assert!(compare(a, c).is_le());
            }
        }
    }
}
