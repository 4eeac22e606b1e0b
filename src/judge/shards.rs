//! What a mismatch of shapes says where the runs are ranks: each may hold a part.

use crate::compare::Comparison;
use crate::run::Run;
use crate::tensor::Tensor;

/// The comparison, with a mismatch that parts of a tensor would explain told as such.
pub(super) fn hinted(runs: [&Run; 2], tensors: [&Tensor; 2], comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Mismatch(why) if runs.iter().any(|run| is_rank(run)) => {
            Comparison::Mismatch(match parts(tensors[0].shape(), tensors[1].shape()) {
                Some((dim, times)) => format!(
                    "{why}: dim {dim} is {times} times as long; where each rank holds a part, an entry of the \
                     case's `shards` joins them (dim: {dim})"
                ),
                None => why,
            })
        }
        other => other,
    }
}

fn is_rank(run: &Run) -> bool {
    run.meta.rank.is_some() || run.meta.world_size.is_some_and(|ranks| ranks > 1)
}

/// The only dim in which two shapes differ, where one extent is a multiple of the other, and the factor.
fn parts(golden: &[usize], candidate: &[usize]) -> Option<(usize, usize)> {
    if golden.len() != candidate.len() {
        return None;
    }
    let mut unequal = golden.iter().zip(candidate).enumerate().filter(|(_, (a, b))| a != b);
    let (dim, (&a, &b)) = unequal.next().filter(|_| unequal.next().is_none())?;
    let (short, long) = (a.min(b), a.max(b));
    (short > 0 && long % short == 0).then(|| (dim, long / short))
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn one_dim_that_is_a_multiple_is_told() {
        assert_eq!(parts(&[4, 32], &[4, 8]), Some((1, 4)));
        assert_eq!(parts(&[2], &[6]), Some((0, 3)));
        for (a, b) in [(&[4, 32][..], &[2, 8][..]), (&[4], &[4, 1]), (&[3], &[2]), (&[0], &[2]), (&[3], &[3])] {
            assert_eq!(parts(a, b), None, "{a:?} {b:?}");
        }
    }
}
