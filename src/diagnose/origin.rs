//! Origins and roles on the data-flow graph.

use std::collections::{BTreeSet, HashSet};

use super::birth::In;
use super::flow::{Flow, Site};
use crate::judge::budget::growth;
use crate::judge::threshold::{JUMP, ORDINARY_GROWTH, ROUNDING};
use crate::judge::{Measured, Replayed, Verdict, coarser, figure, propagated};
use crate::op::{Class, Conditioning};
use crate::pairing::TensorPair;
use crate::run::{LayerId, LayerKind};

/// The part a layer plays in a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The error first stands here.
    Introduced,
    /// The error came with the inputs.
    Propagated,
    /// Inputs in, output out: an ill-conditioned step blew an ordinary error up.
    Amplified,
    /// Back in after an input that is out.
    Absorbed,
    /// Out without a jump: rounding adds up.
    Accumulated,
    /// A source that differs.
    Source,
}

impl Role {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Introduced => "introduced",
            Self::Propagated => "propagated",
            Self::Amplified => "amplified",
            Self::Absorbed => "absorbed",
            Self::Accumulated => "accumulated",
            Self::Source => "source",
        }
    }
}

/// A place that is out although what came into it is in.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Where.
    pub site: Site,
    /// Its part.
    pub role: Role,
    /// The pair that shows it.
    pub pair: TensorPair,
    /// rel_l2 of that pair, where it exists.
    pub error: Option<f64>,
    /// Largest rel_l2 among the inputs.
    pub error_in: Option<f64>,
    /// In which run the error was made, as far as can be told.
    pub side: In,
    /// rel_l2 that the layer made itself, where it was replayed.
    pub introduced: Option<f64>,
    /// rel_l2 that its inputs' difference makes, where both runs were replayed.
    pub propagated: Option<f64>,
    /// Whether replay is part of the evidence.
    pub replayed: bool,
    /// The evidence.
    pub why: String,
}

/// Origins, most upstream first, and the role of every golden layer.
pub(super) fn find(flow: &Flow<'_>) -> (Vec<Origin>, Vec<Option<Role>>) {
    let mut roles = vec![None; flow.golden.layers.len()];
    let mut origins: Vec<Origin> = Vec::new();
    let incomparable = flow.judgement.verdict == crate::judge::CaseVerdict::Incomparable;
    if incomparable && !flow.judgement.differing_sources.is_empty() {
        for &id in &flow.judgement.differing_sources {
            roles[id.0 as usize] = Some(Role::Source);
            if let Some(pair) = worst_pair(flow, id) {
                let why = flow.judgement.layer(id).why.clone();
                let error = rel_l2(flow, pair);
                origins.push(Origin { side: In::Both, ..plain(Site::Layer(id), Role::Source, pair, error, why) });
            }
        }
        return (origins, roles);
    }
    for (site, pair) in flow.stretch_origins() {
        origins.push(stretch(flow, site, pair));
    }
    for (site, pair, id) in flow.extra_origins() {
        let known =
            origins.iter().any(|o| matches!(o.site, Site::Stretch { candidate: Some(other), .. } if other == id));
        if !known {
            origins.push(extra(flow, site, pair, id));
        }
    }
    let stretches: Vec<LayerId> = flow
        .stretch_origins()
        .into_iter()
        .filter_map(|(site, _)| if let Site::Stretch { before, .. } = site { Some(before) } else { None })
        .collect();
    let flowless = flow.is_flowless();
    let mut first_found = false;
    for layer in &flow.golden.layers {
        let at = layer.id.0 as usize;
        let input_out = flow.has_input_out(layer.id);
        let out = flow.is_out(layer.id);
        let own = flow.own(layer.id);
        // Replay decides finite differences; special values go by the data flow.
        let finite = flow.judgement.layer(layer.id).verdict == Verdict::Drift;
        let introduced = finite && own.is_some_and(Replayed::is_out);
        let in_golden = finite && !introduced && flow.judgement.replays.golden(layer.id).is_some_and(Replayed::is_out);
        let exact =
            finite && own.is_some_and(Replayed::is_in) && matches!(layer.op.class(), Class::Mover | Class::Cast);
        let mut named = || {
            worst_pair(flow, layer.id).map(|pair| {
                let origin = origin(flow, layer.id, pair);
                let role = origin.role;
                origins.push(origin);
                role
            })
        };
        roles[at] = match (out, input_out) {
            (false, false) => None,
            (false, true) => flow.is_compared(layer.id).then_some(Role::Absorbed),
            (true, _) if introduced || in_golden => named(),
            // Against a third run the error jumps here, and replay does not say that it came in.
            (true, true) if finite && !own.is_some_and(Replayed::is_in) && jumps(flow, layer.id) => named(),
            (true, true) => Some(Role::Propagated),
            (true, false) if only_hands_on(flow, layer.id) => Some(Role::Propagated),
            (true, false) if exact || stretches.contains(&layer.id) => Some(Role::Propagated),
            // Whether a later one follows from the first cannot be told.
            (true, false) if flowless && first_found => None,
            (true, false) => named(),
        };
        first_found |= out;
    }
    keep_innermost(flow, &mut origins);
    origins.sort_by_key(|origin| origin.site.order());
    (origins, roles)
}

/// Whether all that is out of a module was made by layers inside it, which answer for it.
fn only_hands_on(flow: &Flow<'_>, id: LayerId) -> bool {
    let mut out = flow.judgement.layer(id).outputs.iter().filter(|(_, pair)| flow.pair_is_out(*pair));
    out.all(|(_, pair)| flow.golden.hands_on(id, pair.0))
}

/// Whether the layer is further from the truth than its limit allows, and much further than what it reads.
fn jumps(flow: &Flow<'_>, id: LayerId) -> bool {
    flow.judgement.truth.as_ref().is_some_and(|truth| truth.jump(id).is_some() && truth.beyond.contains(&id))
}

fn plain(site: Site, role: Role, pair: TensorPair, error: Option<f64>, why: String) -> Origin {
    Origin {
        site,
        role,
        pair,
        error,
        error_in: None,
        side: In::Candidate,
        introduced: None,
        propagated: None,
        replayed: false,
        why,
    }
}

fn rel_l2(flow: &Flow<'_>, pair: TensorPair) -> Option<f64> {
    flow.judgement.measurements.get(pair).and_then(Measured::metrics).and_then(|m| m.rel_l2())
}

/// The output pair with the worst verdict, then the largest excess over its budget.
fn worst_pair(flow: &Flow<'_>, layer: LayerId) -> Option<TensorPair> {
    let outputs = &flow.judgement.layer(layer).outputs;
    let judged = |pair: &TensorPair| flow.judgement.tensors.get(pair);
    let ranked = outputs.iter().filter(|(_, pair)| judged(pair).is_some_and(|t| t.verdict.is_out()));
    ranked
        .max_by(|(sa, a), (sb, b)| {
            let key = |pair| judged(pair).map_or((Verdict::Pass, 0.0), |t| (t.verdict, t.excess.unwrap_or(0.0)));
            let ((va, ea), (vb, eb)) = (key(a), key(b));
            va.cmp(&vb).then(ea.total_cmp(&eb)).then(sb.cmp(sa))
        })
        .map(|(_, pair)| *pair)
}

fn origin(flow: &Flow<'_>, id: LayerId, pair: TensorPair) -> Origin {
    let layer = flow.golden.layer(id);
    let judged = flow.judgement.layer(id);
    let inputs: Vec<TensorPair> = flow.inputs(id);
    let error_in = inputs.iter().filter_map(|&pair| rel_l2(flow, pair)).reduce(f64::max);
    let error = rel_l2(flow, pair);
    let metrics = flow.judgement.measurements.get(pair).and_then(Measured::metrics);
    let came_in = match error_in {
        Some(error) if error > 0.0 => format!("everything it read agrees (rel_l2 up to {})", figure(error)),
        Some(_) => "everything it read is equal".to_string(),
        None if flow.is_flowless() => "the first that is out; what it was computed from is not recorded".to_string(),
        None => "nothing that it read is out".to_string(),
    };
    let rewired = inputs.iter().find(|&&pair| flow.is_rewired(pair)).map(|pair| {
        format!(
            "; it reads {} in the golden and {} in the candidate",
            flow.golden.tensor(pair.0).name,
            flow.candidate.tensor(pair.1).name
        )
    });
    let slot = judged.outputs.iter().find(|(_, other)| *other == pair).map_or(0, |(slot, _)| *slot);
    let of_slot = |replayed: Option<&'_ Replayed>| match replayed {
        Some(Replayed::Done(outputs)) => outputs.get(slot).cloned().flatten(),
        _ => None,
    };
    let (own, theirs) = (of_slot(flow.own(id)), of_slot(flow.judgement.replays.golden(id)));
    let inherited = own.as_ref().zip(theirs.as_ref()).and_then(|(own, theirs)| propagated(theirs, own));
    let finite = judged.verdict == Verdict::Drift;
    let side = match (&own, &theirs) {
        (Some(own), Some(theirs)) if finite && theirs.is_out && !own.is_out => In::Golden,
        (Some(own), Some(theirs)) if finite && theirs.is_out && own.is_out => In::Both,
        _ => In::Candidate,
    };
    let introduced = finite && (own.as_ref().is_some_and(|o| o.is_out) || side == In::Golden);
    let replayed_in = finite && own.as_ref().is_some_and(|o| !o.is_out) && !introduced;
    let (role, how) = if introduced {
        let at_fault = if side == In::Golden { theirs.as_ref() } else { own.as_ref() };
        let explained = at_fault.map(|error| error.why.clone()).unwrap_or_default();
        // Where replay set the verdict, it is told already.
        let told = judged.why.contains(&explained);
        let of = if side == In::Golden { "in the golden: " } else { "" };
        (Role::Introduced, if told { String::new() } else { format!("{of}{explained}") })
    } else if judged.flipped {
        (Role::Amplified, "a discrete choice between near-ties flipped".to_string())
    } else if judged.verdict == Verdict::Drift {
        let argument =
            inputs.first().and_then(|p| flow.judgement.measurements.golden_stats(p.0)).map_or(1.0, |s| s.rms());
        let condition = growth(layer, argument);
        let u = metrics.and_then(|m| coarser(m.golden_dtype, m.candidate_dtype).unit_roundoff()).unwrap_or(0.0);
        let explained = (condition * error_in.unwrap_or(0.0)).hypot(ROUNDING * u);
        match error {
            // Recomputed from its own inputs it is right: what is out came in, however small it was.
            Some(error) if replayed_in && error_in.is_some_and(|e| e > 0.0 && error > JUMP * e) => (
                Role::Amplified,
                format!(
                    "recomputed from its own inputs it is right: {} in its inputs became {}",
                    figure(error_in.unwrap_or(0.0)),
                    figure(error)
                ),
            ),
            Some(error) if error_in.is_some() && error <= JUMP * explained && condition > ORDINARY_GROWTH => (
                Role::Amplified,
                format!(
                    "an argument of rms {} turns its relative error {} into {}",
                    figure(argument),
                    figure(error_in.unwrap_or(0.0)),
                    figure(error)
                ),
            ),
            // Beside the golden it is no jump; against the truth it is.
            Some(_) if jumps(flow, id) && !replayed_in => (Role::Introduced, String::new()),
            Some(error)
                if error_in.is_some_and(|e| e > 0.0)
                    && error <= JUMP * explained
                    && layer.op.conditioning() != Conditioning::Discrete =>
            {
                (
                    Role::Accumulated,
                    format!(
                        "no jump: {} after {} is what rounding adds",
                        figure(error),
                        figure(error_in.unwrap_or(0.0))
                    ),
                )
            }
            _ => (Role::Introduced, String::new()),
        }
    } else {
        (Role::Introduced, String::new())
    };
    let mut why = format!("{}; {came_in}{}", judged.why, rewired.unwrap_or_default());
    if !how.is_empty() {
        why = format!("{why}; {how}");
    }
    if let Some((rho, jump)) = flow.judgement.truth.as_ref().and_then(|truth| truth.rho(id).zip(truth.jump(id))) {
        why = format!("{why}; against the truth rho is {}, {} times that of what it reads", figure(rho), figure(jump));
    }
    if let Some(saturated) = metrics.map(|m| m.saturated).filter(|&n| n > 0) {
        why = format!(
            "{why}; {saturated} elements stand at the dtype's largest value where the golden is beyond it: finite is not safe on this device"
        );
    }
    Origin {
        site: Site::Layer(id),
        role,
        pair,
        error,
        error_in,
        side,
        introduced: if side == In::Golden {
            theirs.and_then(|e| e.relative)
        } else {
            own.as_ref().and_then(|e| e.relative)
        },
        propagated: inherited,
        replayed: own.is_some(),
        why,
    }
}

fn stretch(flow: &Flow<'_>, site: Site, pair: TensorPair) -> Origin {
    let (before, candidate, golden) = match site {
        Site::Stretch { before, candidate, golden } => (before, candidate, golden),
        Site::Layer(id) => (id, None, None),
    };
    let why = flow.judgement.tensors.get(&pair).map(|t| t.why.clone()).unwrap_or_default();
    let name = |id: LayerId| flow.golden.display_name(id);
    let place = match (candidate, golden) {
        (Some(c), Some(g)) => {
            format!("{} stands for {} and has no partner of its own", flow.candidate.display_name(c), name(g))
        }
        (Some(c), None) => format!("{} is only in the candidate", flow.candidate.display_name(c)),
        (None, Some(g)) => format!("{} is only in the golden", name(g)),
        (None, None) => "no recorded layer wrote it".to_string(),
    };
    let why = format!("{place}; what it hands to {} is out, what stands before it is in: {why}", name(before));
    plain(site, Role::Introduced, pair, rel_l2(flow, pair), why)
}

/// A candidate layer without partner that does not compute what its own inputs say.
fn extra(flow: &Flow<'_>, site: Site, pair: TensorPair, id: LayerId) -> Origin {
    let error = flow.judgement.replays.candidate(id).and_then(Replayed::worst);
    let why = format!(
        "{} is only in the candidate: {}",
        flow.candidate.display_name(id),
        error.map_or("", |e| e.why.as_str())
    );
    let introduced = error.and_then(|e| e.relative);
    Origin { introduced, replayed: true, ..plain(site, Role::Introduced, pair, introduced, why) }
}

/// Where a module and an operator inside it are both origins, the innermost is named.
fn keep_innermost(flow: &Flow<'_>, origins: &mut Vec<Origin>) {
    // Names of modules that are origins or hold one, and among them those that hold an operator.
    let (mut modules, mut with_operator) = (BTreeSet::new(), HashSet::new());
    for origin in origins.iter() {
        let Site::Layer(id) = origin.site else { continue };
        let layer = flow.golden.layer(id);
        if layer.kind == LayerKind::Module {
            modules.insert(layer.name.as_str());
        } else {
            let module = layer.module.as_deref().unwrap_or(&layer.name);
            modules.insert(module);
            with_operator.insert(module);
        }
    }
    origins.retain(|origin| {
        let Site::Layer(id) = origin.site else { return true };
        let layer = flow.golden.layer(id);
        if layer.kind != LayerKind::Module {
            return true;
        }
        // An operator counts as inside by its module; another module only by a longer name.
        let inside = format!("{}.", layer.name);
        let holds_module = modules.range(inside.as_str()..).next().is_some_and(|name| name.starts_with(&inside));
        !holds_module && !with_operator.contains(layer.name.as_str())
    });
}
