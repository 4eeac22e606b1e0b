//! Explanations by place: a block that was not written, and an error from a position on.

use super::evidence::Evidence;
use super::{Explanation, SHARE};
use crate::error::Result;

/// Clean positions that must stand before the first wrong one.
const CLEAN: usize = 4;

/// Positions that must be wrong from there on: fewer are a row, a channel or a tail.
const WRONG: usize = 3;

/// A position is clean where its energy is below this share of an average wrong one's.
const SILENT: f64 = 0.01;

/// Layers before this one whose outputs may lie in memory that was handed out again.
const EARLIER: usize = 8;

/// Half-open ranges along each axis.
struct Block(Vec<(usize, usize)>);

impl Block {
    /// The smallest block that holds all elements of `wanted`; `None` where there is none.
    fn around(evidence: &Evidence<'_>, wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let strides = evidence.strides();
        let mut ranges: Vec<(usize, usize)> = evidence.shape.iter().map(|&extent| (extent, 0)).collect();
        for at in (0..evidence.len()).filter(|&at| wanted(at)) {
            for (axis, range) in ranges.iter_mut().enumerate() {
                let index = at / strides[axis] % evidence.shape[axis];
                *range = (range.0.min(index), range.1.max(index + 1));
            }
        }
        ranges.iter().all(|(from, to)| from < to).then_some(Self(ranges))
    }

    fn holds(&self, evidence: &Evidence<'_>, strides: &[usize], at: usize) -> bool {
        self.0
            .iter()
            .enumerate()
            .all(|(axis, (from, to))| (*from..*to).contains(&(at / strides[axis] % evidence.shape[axis])))
    }

    fn elements(&self, evidence: &Evidence<'_>) -> Vec<usize> {
        let strides = evidence.strides();
        (0..evidence.len()).filter(|&at| self.holds(evidence, &strides, at)).collect()
    }

    fn is_all(&self, evidence: &Evidence<'_>) -> bool {
        self.0.iter().zip(&evidence.shape).all(|((from, to), extent)| to - from == *extent)
    }

    /// `[:, 3:8]`.
    fn name(&self, evidence: &Evidence<'_>) -> String {
        let axes: Vec<String> = self
            .0
            .iter()
            .zip(&evidence.shape)
            .map(|((from, to), extent)| if to - from == *extent { ":".into() } else { format!("{from}:{to}") })
            .collect();
        format!("[{}]", axes.join(", "))
    }

    /// Whether it reaches the end of every axis that it does not fill.
    fn is_tail(&self, evidence: &Evidence<'_>) -> bool {
        self.0.iter().zip(&evidence.shape).all(|((_, to), extent)| to == extent)
    }
}

/// A block of zeros where there should be values: in a tail, a tile, or from an element on.
pub(super) fn unwritten(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let zeroed = |at: usize| evidence.recorded[at] == 0.0 && evidence.expected[at] != 0.0;
    let share =
        (0..evidence.len()).filter(|&at| zeroed(at)).map(|at| evidence.error_sq(at)).sum::<f64>() / evidence.energy;
    let count = (0..evidence.len()).filter(|&at| zeroed(at)).count();
    if share < SHARE || count < 2 {
        return Ok(Vec::new());
    }
    let Some(block) = Block::around(evidence, zeroed) else { return Ok(Vec::new()) };
    let zero_block = block.elements(evidence).iter().all(|&at| evidence.recorded[at] == 0.0);
    let what = if zero_block && block.is_all(evidence) {
        "all of it is zero: the kernel wrote nothing, or to another place".to_string()
    } else if zero_block {
        let part = if block.is_tail(evidence) { "tail" } else { "tile" };
        format!(
            "the {part} {} is zero: look at how the kernel handles a {part} that is no whole block",
            block.name(evidence)
        )
    } else {
        // From an element of the flat buffer on.
        let first = (0..evidence.len()).find(|&at| zeroed(at)).unwrap_or(0);
        if !evidence.recorded[first..].iter().all(|&y| y == 0.0) {
            return Ok(Vec::new());
        }
        format!(
            "everything from element {first} of {} on is zero: look at how the kernel handles the tail",
            evidence.len()
        )
    };
    Ok(vec![Explanation { kind: "unwritten", share, why: what }])
}

/// A block that holds an earlier block's values, or what another tensor holds at that place.
pub(super) fn stale(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    // What is below a tenth of the average error is no part of a block that carries it.
    let least = 0.1 * evidence.energy / evidence.len() as f64;
    let Some(block) = Block::around(evidence, |at| evidence.error_sq(at) > least) else { return Ok(Vec::new()) };
    let elements = block.elements(evidence);
    let y = &evidence.recorded;
    let varied = elements.first().is_some_and(|&first| elements.iter().any(|&at| y[at] != y[first]));
    let share = elements.iter().map(|&at| evidence.error_sq(at)).sum::<f64>() / evidence.energy;
    if !varied || share < SHARE {
        return Ok(Vec::new());
    }
    let stale = |found: String| {
        let place = if block.is_all(evidence) {
            "all of it".to_string()
        } else {
            format!("the block {}", block.name(evidence))
        };
        let why = format!("{place} holds {found}: the kernel did not write it; look at how it handles tails and tiles");
        vec![Explanation { kind: "unwritten", share, why }]
    };
    let strides = evidence.strides();
    for (axis, &(from, to)) in block.0.iter().enumerate() {
        let length = to - from;
        if from < length || length == evidence.shape[axis] {
            continue;
        }
        let back = length * strides[axis];
        if elements.iter().all(|&at| y[at] == y[at - back]) {
            return Ok(stale(format!("what stands {length} before it on axis {axis}")));
        }
    }
    for (name, other) in same_shaped(evidence)? {
        if elements.iter().all(|&at| other[at] == y[at]) {
            return Ok(stale(format!("what {name} holds there")));
        }
    }
    Ok(Vec::new())
}

/// The layer's inputs and the outputs written shortly before it that have this output's shape and dtype.
fn same_shaped(evidence: &Evidence<'_>) -> Result<Vec<(String, Vec<f64>)>> {
    let run = evidence.run;
    let at = evidence.layer.id.0 as usize;
    let before = run.layers[at.saturating_sub(EARLIER)..at].iter().flat_map(|layer| layer.outputs.iter().copied());
    let mut ids: Vec<_> = evidence.layer.inputs.iter().copied().chain(before).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Vec::new();
    for id in ids.into_iter().filter(|&id| id != evidence.output) {
        let same =
            run.dtype_and_shape(id).is_some_and(|(dtype, shape)| dtype == evidence.dtype && shape == evidence.shape);
        if same && let Some(values) = run.load(id)?.and_then(|tensor| tensor.decode()) {
            found.push((run.tensor(id).name.clone(), values));
        }
    }
    Ok(found)
}

/// Clean up to a position of some axis, wrong from there on.
pub(super) fn onset(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    for axis in 0..evidence.shape.len() {
        let extent = evidence.shape[axis];
        if extent < CLEAN + WRONG {
            continue;
        }
        let energies = evidence.by_slice(axis, |at| evidence.error_sq(at));
        // Every position from the last clean one on is wrong.
        let mean = evidence.energy / extent as f64;
        let Some(first) = energies.iter().position(|&e| e > SILENT * mean) else { continue };
        let (clean, wrong) = energies.split_at(first);
        let average = wrong.iter().sum::<f64>() / wrong.len() as f64;
        let is_wrong = wrong.iter().all(|&e| e > SILENT * average);
        let is_clean = clean.iter().all(|&e| e <= SILENT * SILENT * average);
        if clean.len() < CLEAN || wrong.len() < WRONG || !is_wrong || !is_clean {
            continue;
        }
        let share = wrong.iter().sum::<f64>() / evidence.energy;
        let why = format!(
            "axis {axis} is right up to position {first} and wrong from there on: look at what changes there (a block of the cache, a tile, a maximum length)"
        );
        return Ok(vec![Explanation { kind: "onset", share, why }]);
    }
    Ok(Vec::new())
}
