//! Alignment of two layer sequences: the best order-preserving matching by a score that never rests
//! on shape or position alone.

use super::{PairedBy, Pairing, name, op_key, slot_pairs, without_wrappers};
use crate::op::Class;
use crate::run::{Layer, LayerId, Run};

/// Largest table that alignment fills; beyond it a stretch stays unpaired rather than cost minutes.
const MAX_CELLS: usize = 16_000_000;

/// Most links (tensors read, readers of tensors made) that the cells of one table may look at.
const MAX_LOOKS: usize = 16 * MAX_CELLS;

/// What else than operator and shape must speak for a pair of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Nothing: their recorded name is the same.
    SameName,
    /// Data flow: their names differ by a counter, which says nothing.
    Flow,
}

/// Whether two sequences of calls are too long to be aligned.
pub(super) fn is_too_long(golden: &Run, candidate: &Run, left: &[&Layer], right: &[&Layer]) -> bool {
    let links = |run: &Run, side: &[&Layer]| side.iter().map(|layer| links(run, layer)).sum();
    is_beyond(left.len(), right.len(), links(golden, left), links(candidate, right))
}

/// Aligns the calls of one name whose counts differ. Name and operator agree already, so data flow
/// and shape only decide which calls were added.
pub(super) fn calls(
    golden: &Run,
    candidate: &Run,
    pairing: &mut Pairing,
    left: &[&Layer],
    right: &[&Layer],
    by: PairedBy,
    evidence: Evidence,
) {
    if is_too_long(golden, candidate, left, right) {
        return;
    }
    let matched = best_matching(left.len(), right.len(), |i, j| {
        let (g, c) = (left[i], right[j]);
        let shape = if same_shape(golden, candidate, g, c) { 4 } else { return 0 };
        let flow = flow_agreement(golden, candidate, pairing, g, c);
        if evidence == Evidence::Flow && flow <= 0 {
            return 0;
        }
        shape + 4 * flow + i64::from(g.name == c.name)
    });
    for (i, j) in matched {
        pairing.join(left[i], right[j], by);
    }
}

/// Aligns what is left between paired neighbours by operator, module and data flow.
pub(super) fn between_anchors(golden: &Run, candidate: &Run, pairing: &mut Pairing, rename: &dyn Fn(&str) -> String) {
    let mut stretches = Vec::new();
    let (mut from_golden, mut from_candidate) = (0usize, 0usize);
    for (g, c) in anchors(golden, pairing) {
        stretches.push((from_golden..g, from_candidate..c));
        (from_golden, from_candidate) = (g + 1, c + 1);
    }
    stretches.push((from_golden..golden.layers.len(), from_candidate..candidate.layers.len()));
    for (golden_range, candidate_range) in stretches {
        let left: Vec<Described<'_>> = golden.layers[golden_range]
            .iter()
            .filter(|l| pairing.partner(l.id).is_none() && !l.op.is_source())
            .map(|layer| Described::of(layer, &|module| module.to_string()))
            .collect();
        let right: Vec<Described<'_>> = candidate.layers[candidate_range]
            .iter()
            .filter(|l| pairing.golden_of(l.id).is_none() && !l.op.is_source())
            .map(|layer| Described::of(layer, rename))
            .collect();
        let links = |run: &Run, side: &[Described<'_>]| side.iter().map(|d| links(run, d.layer)).sum();
        if is_beyond(left.len(), right.len(), links(golden, &left), links(candidate, &right)) {
            continue;
        }
        let matched = best_matching(left.len(), right.len(), |i, j| {
            let (left, right) = (&left[i], &right[j]);
            let (g, c) = (left.layer, right.layer);
            if left.op != right.op || g.kind != c.kind || g.pass != c.pass {
                return 0;
            }
            let flow = flow_agreement(golden, candidate, pairing, g, c);
            let module = !left.module.is_empty() && left.module == right.module;
            // The operator alone is no evidence: module or data flow must speak for the pair; for an
            // operator that only moves data, of which a module holds many, data flow alone.
            let module_suffices = module && !matches!(g.op.class(), Class::Mover | Class::Cast);
            if flow <= 0 && !module_suffices || !same_shape(golden, candidate, g, c) {
                return 0;
            }
            2 + 4 * flow.max(0) + 3 * i64::from(module)
        });
        for (i, j) in matched {
            pairing.join(left[i].layer, right[j].layer, PairedBy::Alignment);
        }
    }
}

/// The longest chain of paired layers that stand in the same order on both sides, as index pairs.
fn anchors(golden: &Run, pairing: &Pairing) -> Vec<(usize, usize)> {
    let pairs: Vec<(usize, usize)> = golden
        .layers
        .iter()
        .filter_map(|layer| Some((layer.id.0 as usize, pairing.partner(layer.id)?.layer.0 as usize)))
        .collect();
    // Longest increasing subsequence of the candidate's positions, by patience sorting.
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    for at in 0..pairs.len() {
        let rank = tails.partition_point(|&tail| pairs[tail].1 < pairs[at].1);
        before[at] = rank.checked_sub(1).map(|r| tails[r]);
        if rank == tails.len() { tails.push(at) } else { tails[rank] = at }
    }
    let mut chain = Vec::new();
    let mut at = tails.last().copied();
    while let Some(index) = at {
        chain.push(pairs[index]);
        at = before[index];
    }
    chain.reverse();
    chain
}

/// Whether alignment of `rows` by `columns` layers with so many links on either side is refused:
/// every cell looks at the links of both of its layers.
fn is_beyond(rows: usize, columns: usize, row_links: usize, column_links: usize) -> bool {
    let looks = columns.saturating_mul(row_links).saturating_add(rows.saturating_mul(column_links));
    rows.saturating_mul(columns) > MAX_CELLS || looks > MAX_LOOKS
}

/// Tensors that a layer reads, and readers of what it makes.
fn links(run: &Run, layer: &Layer) -> usize {
    let readers = layer.outputs.iter().map(|&id| run.tensor(id).consumers.len() + 1);
    layer.inputs.len() + readers.sum::<usize>()
}

/// Order-preserving matching with the largest sum of scores; a score of 0 or less never matches.
/// Where several are as good, the one that matches early, then the one that passes over rows first.
fn best_matching(rows: usize, columns: usize, score: impl Fn(usize, usize) -> i64) -> Vec<(usize, usize)> {
    if rows == 0 || columns == 0 || rows.saturating_mul(columns) > MAX_CELLS {
        return Vec::new();
    }
    // A byte a cell says what to do there; of the sums only the row below is needed.
    let mut steps = vec![Step::PassColumn; rows * columns];
    let mut below = vec![0i64; columns + 1];
    let mut best = vec![0i64; columns + 1];
    for i in (0..rows).rev() {
        best[columns] = 0;
        for j in (0..columns).rev() {
            let here = score(i, j);
            let taken = if here > 0 { here + below[j + 1] } else { 0 };
            best[j] = below[j].max(best[j + 1]).max(taken);
            steps[i * columns + j] = if here > 0 && taken == best[j] {
                Step::Match
            } else if below[j] == best[j] {
                Step::PassRow
            } else {
                Step::PassColumn
            };
        }
        std::mem::swap(&mut below, &mut best);
    }
    let (mut i, mut j, mut matched) = (0, 0, Vec::new());
    while i < rows && j < columns {
        match steps[i * columns + j] {
            Step::Match => {
                matched.push((i, j));
                (i, j) = (i + 1, j + 1);
            }
            Step::PassRow => i += 1,
            Step::PassColumn => j += 1,
        }
    }
    matched
}

/// What the best matching does at a cell.
#[derive(Debug, Clone, Copy)]
enum Step {
    Match,
    PassRow,
    PassColumn,
}

/// Input slots whose tensors answer each other, minus those whose tensors answer something else.
fn flow_agreement(golden: &Run, candidate: &Run, pairing: &Pairing, g: &Layer, c: &Layer) -> i64 {
    let mut agreement = 0;
    for (a, b) in slot_pairs(g, c) {
        match pairing.output_of(a) {
            Some(answer) if answer == b => agreement += 1,
            Some(_) if candidate.tensor(b).producer.is_some_and(|(layer, _)| pairing.golden_of(layer).is_some()) => {
                agreement -= 1
            }
            _ => {}
        }
    }
    for (&a, &b) in g.outputs.iter().zip(&c.outputs) {
        // Readers are listed in execution order.
        let readers = &candidate.tensor(b).consumers;
        let reads_b = |layer: LayerId| readers.binary_search_by_key(&layer, |(reader, _)| *reader).is_ok();
        let mut partners = golden.tensor(a).consumers.iter().filter_map(|(layer, _)| pairing.partner(*layer));
        agreement += i64::from(partners.any(|partner| reads_b(partner.layer)));
    }
    agreement
}

/// Whether the outputs of both layers agree in shape and kind of dtype, as far as these are known.
pub(super) fn same_shape(golden: &Run, candidate: &Run, g: &Layer, c: &Layer) -> bool {
    g.outputs.iter().zip(&c.outputs).all(|(&a, &b)| match (golden.dtype_and_shape(a), candidate.dtype_and_shape(b)) {
        (Some((da, sa)), Some((db, sb))) => sa == sb && da.kind() == db.kind(),
        _ => true,
    })
}

/// A layer with what is asked of it in every cell.
struct Described<'r> {
    layer: &'r Layer,
    op: String,
    /// The enclosing module without wrappers: recorded, else all of the name but its last part.
    module: String,
}

impl<'r> Described<'r> {
    fn of(layer: &'r Layer, rename: &dyn Fn(&str) -> String) -> Self {
        let module = match &layer.module {
            Some(module) => module,
            None => name::without_call(&layer.name).rsplit_once('.').map_or("", |(module, _)| module),
        };
        Self { layer, op: op_key(layer), module: without_wrappers(&rename(module)) }
    }
}

#[cfg(test)]
mod tests {
    use super::best_matching;

    #[test]
    fn inserted_elements_do_not_shift_the_rest() {
        let (left, right) = (["a", "b", "c"], ["a", "x", "b", "y", "c"]);
        let matched = best_matching(3, 5, |i, j| i64::from(left[i] == right[j]));
        assert_eq!(matched, [(0, 0), (1, 2), (2, 4)]);
        assert!(best_matching(2, 2, |_, _| 0).is_empty());
    }
}
