//! Ranks that should hold the same and do not: parameters, results of collectives, final gradients.
//!
//! In go the runs of one step's ranks, out come [`Disagreement`]s. What the ranks should share is told by
//! the golden's ranks: where theirs are bit-equal, the candidate's must be. Of a joined run it is told by
//! the rules that joined it. One tensor is in memory for each worker at a time.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::figure;
use super::threshold::{COPIES_DIFFER, NOISE};
use crate::case::Case;
use crate::compare::{self, Comparison};
use crate::error::Result;
use crate::pairing::without_wrappers;
use crate::run::join::Part;
use crate::run::{Layer, LayerId, Pass, Run, TensorId};
use crate::tensor::{DType, Shape, Tensor};

/// The run of a rank.
pub type Rank<'a> = (u64, &'a dyn Part);

/// A tensor that several ranks should hold alike and do not.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// The layer that wrote it, as reports print it.
    pub layer: String,
    /// Its operator as recorded.
    pub op: String,
    /// Its pass.
    pub pass: Pass,
    /// The tensor.
    pub tensor: String,
    /// The ranks that stand apart, ascending; the first rank that does is the first of them.
    pub ranks: Vec<u64>,
    /// Later tensors in which just these ranks stand apart.
    pub more: u64,
    /// The evidence.
    pub why: String,
}

/// What one rank holds of a tensor.
type Held<'a> = (u64, &'a dyn Part, TensorId);

/// Bits of a tensor.
type Bits = (DType, Shape, [u8; 32]);

/// A tensor that may have to be the same on several ranks.
struct Item<'a> {
    golden: Vec<Held<'a>>,
    candidate: Vec<Held<'a>>,
}

/// Disagreements among the candidate's ranks of one step, in execution order.
///
/// # Errors
/// A tensor that cannot be read.
pub fn disagreements(golden: &[Rank<'_>], candidate: &[Rank<'_>], case: &Case) -> Result<Vec<Disagreement>> {
    let renamed = |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
    let goldens = by_name(golden, &|name| without_wrappers(name));
    let candidates: HashMap<_, _> = by_name(candidate, &|name| without_wrappers(&renamed(name))).into_iter().collect();
    let mut items = Vec::new();
    for (key, layers) in goldens {
        let Some(answers) = candidates.get(&key) else { continue };
        let Some((_, part, first)) = layers.first().copied() else { continue };
        let first = part.run().layer(first);
        for slot in (0..first.outputs.len()).filter(|slot| is_shared(part.run(), first, *slot)) {
            let held = |layers: &[(u64, _, LayerId)]| layers.iter().filter_map(|layer| output(*layer, slot)).collect();
            let item = Item { golden: held(&layers), candidate: held(answers) };
            if item.golden.len() > 1 && item.candidate.len() > 1 {
                items.push(item);
            }
        }
    }
    let found = items.par_iter().map(|item| item.apart()).collect::<Result<Vec<_>>>()?;
    Ok(summed_up(found.into_iter().flatten()))
}

/// Disagreements among the ranks that a joined run was made of, in the order of its tensors: of what a rule
/// calls a copy, and of parameters, results of collectives and final gradients that no rule matches.
///
/// # Errors
/// A tensor that cannot be read.
pub fn disagreements_in_copies(run: &Run) -> Result<Vec<Disagreement>> {
    let copies: Vec<_> = run
        .copies()
        .into_iter()
        .filter(|copies| {
            let writer = run.tensor(copies.tensor).producer;
            copies.by_rule || writer.is_some_and(|(layer, slot)| is_shared(run, run.layer(layer), slot))
        })
        .collect();
    let found = copies.par_iter().map(|copies| {
        let basis = if copies.by_rule {
            "`shards` of the case calls them replicas"
        } else {
            "no entry of the case's `shards` says that they differ"
        };
        let apart = apart(&copies.held, None)?;
        Ok(apart.into_iter().map(|apart| tell(&apart, basis)).collect::<Vec<_>>())
    });
    let found = found.collect::<Result<Vec<_>>>()?;
    Ok(summed_up(found.into_iter().flatten()))
}

/// Whether ranks that run one program over may be expected to hold the same there.
fn is_shared(run: &Run, layer: &Layer, slot: usize) -> bool {
    if matches!(layer.op.name(), "param" | "all_reduce" | "all_gather") {
        return true;
    }
    // A gradient on which the backward pass works no more.
    let used = |(reader, _): &(LayerId, usize)| *reader > layer.id && run.layer(*reader).pass != Pass::Optimizer;
    let is_final = |id: &TensorId| !run.tensor(*id).consumers.iter().any(used);
    layer.pass != Pass::Forward && layer.outputs.get(slot).is_some_and(is_final)
}

/// A layer on all ranks: name in the golden's naming, pass, call.
type Key = (String, Pass, u32);
type OnRanks<'a> = Vec<(u64, &'a dyn Part, LayerId)>;

/// The layers of all ranks in the order in which they first appear.
fn by_name<'a>(ranks: &[Rank<'a>], name: &dyn Fn(&str) -> String) -> Vec<(Key, OnRanks<'a>)> {
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut found: Vec<(Key, OnRanks<'a>)> = Vec::new();
    for (rank, part) in ranks {
        for layer in &part.run().layers {
            let key = (name(&layer.name), layer.pass, layer.call);
            let at = *places.entry(key.clone()).or_insert(found.len());
            match found.get_mut(at) {
                Some((_, layers)) => layers.push((*rank, *part, layer.id)),
                None => found.push((key, vec![(*rank, *part, layer.id)])),
            }
        }
    }
    found
}

fn output<'a>((rank, part, layer): (u64, &'a dyn Part, LayerId), slot: usize) -> Option<Held<'a>> {
    let id = *part.run().layer(layer).outputs.get(slot)?;
    part.run().tensor(id).stored.is_some().then_some((rank, part, id))
}

impl Item<'_> {
    /// What stands apart in the candidate within each set of ranks that hold the same in the golden.
    fn apart(&self) -> Result<Vec<Disagreement>> {
        let mut told = Vec::new();
        for (ranks, allowed) in self.expected()? {
            let held: Vec<Held<'_>> =
                self.candidate.iter().copied().filter(|(rank, ..)| ranks.contains(rank)).collect();
            let basis = match allowed {
                None => "these ranks of the golden hold the same bits".to_string(),
                Some(limit) => format!("above {}, {NOISE} times what the golden's ranks lie apart", figure(limit)),
            };
            told.extend(apart(&held, allowed)?.map(|apart| tell(&apart, &basis)));
        }
        Ok(told)
    }

    /// Sets of ranks that hold the same in the golden, and how far they may lie apart where it is not the
    /// same bits.
    fn expected(&self) -> Result<Vec<(Vec<u64>, Option<f64>)>> {
        let classes = classes(&self.golden)?;
        if classes.iter().all(|class| class.len() == 1) {
            // Shards differ as a whole; copies that were computed on each rank, in their last bits.
            let mut spread = 0.0f64;
            for held in self.golden.iter().skip(1) {
                match self.golden.first().map(|first| distance(first, held)).transpose()?.flatten() {
                    Some(distance) if distance <= COPIES_DIFFER => spread = spread.max(distance),
                    _ => return Ok(Vec::new()),
                }
            }
            return Ok(vec![(self.golden.iter().map(|(rank, ..)| *rank).collect(), Some(spread * NOISE))]);
        }
        let ranks = |class: Vec<usize>| class.into_iter().filter_map(|at| Some(self.golden.get(at)?.0)).collect();
        Ok(classes.into_iter().filter(|class| class.len() > 1).map(|class| (ranks(class), None)).collect())
    }
}

/// Positions of those that hold the same bits, the largest set first, then by lowest position.
fn classes(held: &[Held<'_>]) -> Result<Vec<Vec<usize>>> {
    let mut classes: Vec<(Bits, Vec<usize>)> = Vec::new();
    for (at, (_, part, id)) in held.iter().enumerate() {
        let Some(tensor) = part.load(*id)? else { continue };
        let bits = (tensor.dtype(), tensor.shape().to_vec(), *blake3::hash(tensor.bytes()).as_bytes());
        match classes.iter_mut().find(|(known, _)| *known == bits) {
            Some((_, class)) => class.push(at),
            None => classes.push((bits, vec![at])),
        }
    }
    classes.sort_by_key(|(_, class)| (std::cmp::Reverse(class.len()), class.first().copied()));
    Ok(classes.into_iter().map(|(_, class)| class).collect())
}

/// Ranks that stand apart from the most that agree.
struct Apart<'a> {
    most: Vec<Held<'a>>,
    others: Vec<Held<'a>>,
    /// rel_l2 of the first of the others against the most, where it exists.
    distance: Option<f64>,
}

fn apart<'a>(held: &[Held<'a>], allowed: Option<f64>) -> Result<Option<Apart<'a>>> {
    let mut classes = classes(held)?.into_iter();
    let at = |class: Vec<usize>| class.into_iter().filter_map(|at| held.get(at).copied());
    let most: Vec<Held<'a>> = at(classes.next().unwrap_or_default()).collect();
    let Some(right) = most.first() else { return Ok(None) };
    let mut others: Vec<Held<'a>> = Vec::new();
    for other in classes.flat_map(at) {
        let within = |limit: f64| Ok(distance(right, &other)?.is_some_and(|distance| distance <= limit));
        if !allowed.map_or(Ok(false), within)? {
            others.push(other);
        }
    }
    others.sort_by_key(|(rank, ..)| *rank);
    let distance = others.first().map(|first| distance(right, first)).transpose()?.flatten();
    Ok((!others.is_empty()).then_some(Apart { most, others, distance }))
}

/// rel_l2 of two ranks' tensors; `None` where it does not exist.
fn distance(a: &Held<'_>, b: &Held<'_>) -> Result<Option<f64>> {
    let load = |(_, part, id): &Held<'_>| -> Result<Option<Tensor>> { part.load(*id) };
    let (Some(a), Some(b)) = (load(a)?, load(b)?) else { return Ok(None) };
    Ok(match compare::compare(&a, &b, &compare::Options::default()) {
        Comparison::Measured(metrics) if !metrics.has_unshared_specials() => metrics.rel_l2(),
        _ => None,
    })
}

fn tell(apart: &Apart<'_>, basis: &str) -> Disagreement {
    let ranks: Vec<u64> = apart.others.iter().map(|(rank, ..)| *rank).collect();
    let most: Vec<u64> = apart.most.iter().map(|(rank, ..)| *rank).collect();
    let (layer, op, pass, tensor) = apart.others.first().map_or_else(Default::default, |(_, part, id)| {
        let run = part.run();
        let info = run.tensor(*id);
        match info.producer {
            Some((layer, _)) => {
                let recorded = run.layer(layer);
                (run.display_name(layer), recorded.op_name.clone(), recorded.pass, info.name.clone())
            }
            None => (info.name.clone(), String::new(), Pass::Forward, info.name.clone()),
        }
    });
    let distance = apart.distance.map_or(String::new(), |distance| format!(" (rel_l2 {})", figure(distance)));
    let hold = if ranks.len() == 1 { "holds" } else { "hold" };
    let why = format!("{} {hold} other values than {}{distance}: {basis}", numbered(&ranks), numbered(&most));
    Disagreement { layer, op, pass, tensor, ranks, more: 0, why }
}

/// Ranks that a sentence names.
const SPELLED_OUT: usize = 8;

/// `rank 3`, `ranks 0, 1, 2`.
fn numbered(ranks: &[u64]) -> String {
    let named: Vec<String> = ranks.iter().take(SPELLED_OUT).map(u64::to_string).collect();
    let more = ranks.len().saturating_sub(SPELLED_OUT);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if ranks.len() == 1 { "rank" } else { "ranks" }, named.join(", "))
}

/// Each set of ranks once, with the first tensor in which it stands apart and the number of later ones: a
/// rank that loaded another checkpoint is one finding, not thousands.
fn summed_up(found: impl Iterator<Item = Disagreement>) -> Vec<Disagreement> {
    let mut by_ranks: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut once: Vec<Disagreement> = Vec::new();
    for disagreement in found {
        match by_ranks.get(&disagreement.ranks).and_then(|at| once.get_mut(*at)) {
            Some(first) => first.more += 1,
            None => {
                by_ranks.insert(disagreement.ranks.clone(), once.len());
                once.push(disagreement);
            }
        }
    }
    for first in once.iter_mut().filter(|first| first.more > 0) {
        first.why.push_str(&format!("; {} more tensors likewise", first.more));
    }
    once
}
