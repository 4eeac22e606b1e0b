//! Births: the first tensor that holds a NaN or an infinity, coordinate by coordinate.
//!
//! A special value of an output is born there unless one that reaches its coordinate stands in an
//! input of the same run. What both runs share at the same place is no difference; it is listed last.

use std::collections::HashSet;

use super::cause::{self, Evidence};
use super::flow::{Downstream, Flow, MOST_FOLLOWED, Side, Site};
use super::reach;
use crate::compare::{self, Comparison, SpecialFilter, SpecialMap};
use crate::error::Result;
use crate::judge::Measured;
use crate::op::Class;
use crate::pairing::TensorPair;
use crate::run::{Layer, LayerId, TensorId};

pub use super::cause::Cause;

/// In which run a special value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum In {
    /// The candidate alone.
    Candidate,
    /// The golden alone.
    Golden,
    /// Both, at the same place.
    Both,
}

impl In {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Golden => "golden",
            Self::Both => "both",
        }
    }
}

/// NaN or infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialKind {
    /// An infinity of either sign.
    Inf,
    /// Not a number.
    Nan,
}

impl SpecialKind {
    /// As reports print it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inf => "inf",
            Self::Nan => "nan",
        }
    }

    pub(super) fn filter(self) -> SpecialFilter {
        match self {
            Self::Inf => SpecialFilter::Inf,
            Self::Nan => SpecialFilter::Nan,
        }
    }
}

/// The birth of special values of one kind in one tensor.
#[derive(Debug, Clone)]
pub struct Birth {
    /// Where.
    pub site: Site,
    /// The tensor pair that first holds them.
    pub pair: TensorPair,
    /// In which run.
    pub side: In,
    /// NaN or infinity.
    pub kind: SpecialKind,
    /// How many elements.
    pub count: u64,
    /// Coordinates of the first.
    pub first_index: Vec<u64>,
    /// Why.
    pub cause: Cause,
    /// An earlier golden layer whose result underflowed and led here.
    pub cause_layer: Option<LayerId>,
    /// First layer, from the birth on, that holds a NaN.
    pub first_nan: Option<LayerId>,
    /// Layer at which the last of them vanished; `None` where they reach the end.
    pub ended: Option<LayerId>,
    /// Layers they reached.
    pub reached: Vec<LayerId>,
    /// The evidence.
    pub why: String,
}

/// All births, in execution order, the shared ones last.
pub(super) fn find(flow: &Flow<'_>) -> Result<Vec<Birth>> {
    let mut births = Vec::new();
    let stretches = flow.stretch_origins();
    for (site, pair) in &stretches {
        if specials(flow, *pair).is_some_and(|m| m.has_unshared_specials()) {
            births.extend(in_stretch(flow, *site, *pair)?);
        }
    }
    let mut shared = Vec::new();
    let fed: HashSet<LayerId> = births
        .iter()
        .filter_map(|birth: &Birth| if let Site::Stretch { before, .. } = birth.site { Some(before) } else { None })
        .collect();
    for layer in &flow.golden.layers {
        let fed_by_stretch = fed.contains(&layer.id);
        let skipped = flow.judgement.layer(layer.id).verdict == crate::judge::Verdict::Skipped;
        for &(slot, pair) in &flow.judgement.layer(layer.id).outputs {
            if flow.golden.hands_on(layer.id, pair.0) {
                continue;
            }
            let Some(metrics) = specials(flow, pair) else { continue };
            if metrics.has_unshared_specials() && !skipped && !fed_by_stretch {
                for side in [Side::Candidate, Side::Golden] {
                    births.extend(on_side(flow, layer.id, slot, pair, side)?);
                }
            }
            if metrics.specials.shared_nan > 0
                || metrics.specials.shared_inf > metrics.sentinels.min(metrics.specials.shared_inf)
            {
                shared.extend(shared_births(flow, layer, pair)?);
            }
        }
    }
    births.sort_by_key(|birth| birth.site.order());
    births.extend(shared);
    Ok(births)
}

fn specials<'a>(flow: &Flow<'a>, pair: TensorPair) -> Option<&'a compare::Metrics> {
    match flow.judgement.measurements.get(pair)? {
        Measured::Tensors(Comparison::Measured(metrics)) => Some(metrics),
        _ => None,
    }
}

fn map_of(flow: &Flow<'_>, pair: TensorPair) -> Result<Option<SpecialMap>> {
    let (Some(golden), Some(candidate)) = (flow.golden.load(pair.0)?, flow.candidate.load(pair.1)?) else {
        return Ok(None);
    };
    Ok(compare::special_map(&golden, &candidate))
}

/// Special values of a tensor on `side` that the other run does not share, one flag an element.
/// `None` where there is none.
pub(super) fn unshared(
    flow: &Flow<'_>,
    tensor: TensorId,
    pairs: &[TensorPair],
    side: Side,
) -> Result<Option<Vec<bool>>> {
    let which = match side {
        Side::Golden => compare::Side::Golden,
        Side::Candidate => compare::Side::Candidate,
    };
    let pair = pairs.iter().copied().find(|pair| side.of(*pair) == tensor);
    if let Some(pair) = pair {
        match specials(flow, pair) {
            Some(metrics) if !metrics.has_unshared_specials() => return Ok(None),
            Some(_) => {
                if let Some(map) = map_of(flow, pair)? {
                    let flags = map.unshared(which, SpecialFilter::Any);
                    return Ok(flags.contains(&true).then_some(flags));
                }
            }
            None => {}
        }
    }
    // No partner to share with: every special value counts.
    let Some(tensor) = side.run(flow).load(tensor)? else { return Ok(None) };
    let Some(map) = compare::special_map_alone(&tensor) else { return Ok(None) };
    let flags = map.unshared(compare::Side::Candidate, SpecialFilter::Any);
    Ok(flags.contains(&true).then_some(flags))
}

fn on_side(flow: &Flow<'_>, id: LayerId, slot: usize, pair: TensorPair, side: Side) -> Result<Vec<Birth>> {
    let Some(partner) = flow.judgement.pairing.partner(id) else { return Ok(Vec::new()) };
    let Some(map) = map_of(flow, pair)? else { return Ok(Vec::new()) };
    let (which, run) = match side {
        Side::Golden => (compare::Side::Golden, flow.golden),
        Side::Candidate => (compare::Side::Candidate, flow.candidate),
    };
    if map.count_unshared(which, SpecialFilter::Any) == 0 {
        return Ok(Vec::new());
    }
    let layer = if side == Side::Golden { flow.golden.layer(id) } else { flow.candidate.layer(partner.layer) };
    let pairs = flow.inputs(id);
    let shapes: Vec<Option<&[usize]>> = layer.inputs.iter().map(|&t| run.dtype_and_shape(t).map(|(_, s)| s)).collect();
    let Some((_, shape)) = run.dtype_and_shape(side.of(pair)) else { return Ok(Vec::new()) };
    let mut reached = vec![false; map.len()];
    for (slot, &input) in layer.inputs.iter().enumerate() {
        if let Some(flags) = unshared(flow, input, &pairs, side)? {
            reach::spread(layer, slot, &shapes, &flags, shape, &mut reached);
        }
    }
    let mut births = Vec::new();
    for kind in [SpecialKind::Inf, SpecialKind::Nan] {
        let mut born = map.unshared(which, kind.filter());
        for (flag, &came_in) in born.iter_mut().zip(&reached) {
            *flag &= !came_in;
        }
        let count = born.iter().filter(|&&flag| flag).count() as u64;
        let Some(first) = born.iter().position(|&flag| flag) else { continue };
        let evidence = cause::of(flow, id, pair, side, kind, &born)?;
        births.push(finish(
            flow,
            Site::Layer(id),
            slot,
            pair,
            side,
            kind,
            count,
            compare::unravel(first as u64, shape),
            evidence,
        ));
    }
    Ok(births)
}

#[expect(clippy::too_many_arguments, reason = "gathers what two callers found")]
fn finish(
    flow: &Flow<'_>,
    site: Site,
    slot: usize,
    pair: TensorPair,
    side: Side,
    kind: SpecialKind,
    count: u64,
    first_index: Vec<u64>,
    evidence: Evidence,
) -> Birth {
    let holds = |layer: LayerId, wanted: &dyn Fn(&compare::SideStats) -> bool| {
        flow.judgement.layer(layer).outputs.iter().any(|(_, pair)| {
            specials(flow, *pair).is_some_and(|m| {
                let stats = if side == Side::Golden { &m.golden } else { &m.candidate };
                m.has_unshared_specials() && wanted(stats)
            })
        })
    };
    // From the birth on, along the golden's data flow, through layers that hold specials.
    let goes = |layer| holds(layer, &|s| s.specials() > 0);
    let went = match site {
        Site::Layer(id) => flow.downstream(&flow.golden.layer(id).outputs, &goes),
        Site::Stretch { before, .. } if goes(before) => {
            let mut went = flow.downstream(&flow.golden.layer(before).outputs, &goes);
            went.reached.insert(0, before);
            went
        }
        Site::Stretch { before, .. } => Downstream { reached: Vec::new(), stopped: vec![before], is_cut: false },
    };
    let Downstream { mut reached, stopped, is_cut } = went;
    reached.sort_unstable();
    let own = if let Site::Layer(id) = site { Some(id) } else { None };
    let first_nan = match kind {
        SpecialKind::Nan => own.or_else(|| reached.first().copied()),
        SpecialKind::Inf => reached.iter().copied().find(|&layer| holds(layer, &|s| s.nan > 0)),
    };
    // It reaches the end where a layer that holds it has an output that nothing consumes.
    let is_end =
        |layer: LayerId| flow.golden.layer(layer).outputs.iter().all(|&t| flow.golden.tensor(t).consumers.is_empty());
    let reaches_end = own.into_iter().chain(reached.iter().copied()).any(is_end);
    let ended = if reaches_end || is_cut { None } else { stopped.last().copied() };
    let _ = slot;
    let side = match side {
        Side::Golden => In::Golden,
        Side::Candidate => In::Candidate,
    };
    Birth {
        site,
        pair,
        side,
        kind,
        count,
        first_index,
        cause: evidence.cause,
        cause_layer: evidence.layer,
        first_nan,
        ended,
        reached,
        why: if is_cut {
            format!("{}; not followed further: births were followed to {MOST_FOLLOWED} layers in all", evidence.why)
        } else {
            evidence.why
        },
    }
}

/// Special values that both runs hold at the same place and that no input holds.
fn shared_births(flow: &Flow<'_>, layer: &Layer, pair: TensorPair) -> Result<Vec<Birth>> {
    let came_in = flow.inputs(layer.id).iter().any(|&input| {
        specials(flow, input).is_some_and(|m| {
            m.specials.shared_nan > 0 || m.specials.shared_inf > m.sentinels || m.has_unshared_specials()
        })
    });
    if came_in {
        return Ok(Vec::new());
    }
    let Some(map) = map_of(flow, pair)? else { return Ok(Vec::new()) };
    let Some((_, shape)) = flow.golden.dtype_and_shape(pair.0) else { return Ok(Vec::new()) };
    let mut births = Vec::new();
    for kind in [SpecialKind::Inf, SpecialKind::Nan] {
        let Some(first) = map.first_shared(kind.filter()) else { continue };
        let count = map.count_shared(kind.filter());
        let is_source = layer.op.class() == Class::Source;
        let why = if is_source {
            "the source holds it in both runs: data, not an operator".to_string()
        } else {
            format!(
                "both runs make it here at the same places: the model or its data, not the device ({})",
                layer.op_name
            )
        };
        births.push(Birth {
            site: Site::Layer(layer.id),
            pair,
            side: In::Both,
            kind,
            count,
            first_index: compare::unravel(first as u64, shape),
            cause: if is_source { Cause::Source } else { Cause::Shared },
            cause_layer: None,
            first_nan: (kind == SpecialKind::Nan).then_some(layer.id),
            ended: None,
            reached: Vec::new(),
            why,
        });
    }
    Ok(births)
}

/// Special values that a stretch without partner made.
fn in_stretch(flow: &Flow<'_>, site: Site, pair: TensorPair) -> Result<Vec<Birth>> {
    let Some(map) = map_of(flow, pair)? else { return Ok(Vec::new()) };
    let mut births = Vec::new();
    for (side, which) in [(Side::Candidate, compare::Side::Candidate), (Side::Golden, compare::Side::Golden)] {
        let Some((_, shape)) = side.run(flow).dtype_and_shape(side.of(pair)) else { continue };
        for kind in [SpecialKind::Inf, SpecialKind::Nan] {
            let born = map.unshared(which, kind.filter());
            let Some(first) = born.iter().position(|&flag| flag) else { continue };
            let count = born.iter().filter(|&&flag| flag).count() as u64;
            let evidence = cause::by_range(flow, pair, side, kind, &born)?.unwrap_or_else(|| Evidence {
                cause: Cause::Unexplained,
                layer: None,
                why: "made by layers that only one run has; their inputs are in".into(),
            });
            births.push(finish(
                flow,
                site,
                0,
                pair,
                side,
                kind,
                count,
                compare::unravel(first as u64, shape),
                evidence,
            ));
        }
    }
    Ok(births)
}
