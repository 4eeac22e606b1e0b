//! The judged data flow: what came into a layer, and whether it was in.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::judge::{Judgement, Measured, Replayed, Verdict};
use crate::op::Class;
use crate::pairing::TensorPair;
use crate::run::{LayerId, Run, TensorId};

/// A place in the golden's execution: a layer, or a stretch without partner before one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// A golden layer.
    Layer(LayerId),
    /// Layers without partner that lead to an input of `before`; named by the layer nearest to it.
    Stretch {
        /// The paired golden layer that reads what the stretch made.
        before: LayerId,
        /// The last candidate layer of the stretch.
        candidate: Option<LayerId>,
        /// The last golden layer of the stretch.
        golden: Option<LayerId>,
    },
}

impl Site {
    /// Position in the golden's execution order: a stretch stands just before the layer it feeds.
    pub fn order(self) -> (u32, u8) {
        match self {
            Self::Layer(id) => (id.0, 1),
            Self::Stretch { before, .. } => (before.0, 0),
        }
    }
}

/// Layers to which births are followed, all births together. Each of many births may reach each layer,
/// and a list of all of them would grow with the square of the run.
pub(super) const MOST_FOLLOWED: usize = 2_000_000;

/// Slot and pair of a layer's inputs, by candidate tensor.
type InputPairs = HashMap<TensorId, (usize, TensorPair)>;

/// Where something went.
pub(super) struct Downstream {
    /// Layers that it reached, in execution order.
    pub(super) reached: Vec<LayerId>,
    /// Layers at which it stopped, in execution order.
    pub(super) stopped: Vec<LayerId>,
    /// Whether it went further, but was not followed for [`MOST_FOLLOWED`].
    pub(super) is_cut: bool,
}

pub(super) struct Flow<'a> {
    pub(super) golden: &'a Run,
    pub(super) candidate: &'a Run,
    pub(super) judgement: &'a Judgement,
    /// By golden and by candidate tensor, see [`Flow::is_out_upstream`].
    out_upstream: [OnceCell<Vec<bool>>; 2],
    /// By golden layer, see [`Flow::swallows_specials`].
    swallowing: OnceCell<Vec<bool>>,
    /// Layers to which births were followed so far.
    followed: Cell<usize>,
}

impl<'a> Flow<'a> {
    pub(super) fn new(golden: &'a Run, candidate: &'a Run, judgement: &'a Judgement) -> Self {
        Self {
            golden,
            candidate,
            judgement,
            out_upstream: [OnceCell::new(), OnceCell::new()],
            swallowing: OnceCell::new(),
            followed: Cell::new(0),
        }
    }

    /// Whether the golden records no data flow at all: bare tensors in some order.
    pub(super) fn is_flowless(&self) -> bool {
        self.golden.tensors.iter().all(|tensor| tensor.consumers.is_empty())
    }

    /// Whether a golden layer's own outputs are out.
    pub(super) fn is_out(&self, layer: LayerId) -> bool {
        self.judgement.layer(layer).verdict.is_out()
    }

    /// Pairs at the input slots of a layer.
    pub(super) fn inputs(&self, layer: LayerId) -> Vec<TensorPair> {
        self.judgement.input_pairs(self.golden, self.candidate, layer)
    }

    /// Whether both tensors of a pair were written by layers that answer each other.
    pub(super) fn is_output_pair(&self, pair: TensorPair) -> bool {
        self.judgement.pairing.output_of(pair.0) == Some(pair.1)
    }

    /// Whether a pair is out. A pair that was taken out of the judgement (aliasing) is not.
    pub(super) fn pair_is_out(&self, pair: TensorPair) -> bool {
        self.judgement.is_out(pair)
    }

    /// Whether a layer that is in read NaN or infinities that are not shared: what it made of them
    /// (1/Inf = 0, a clamp) is wrong at those places, however small it looks as a whole.
    pub(super) fn swallows_specials(&self, layer: LayerId) -> bool {
        // A layer is asked once for each of its readers, of which there may be as many as layers.
        let all = self
            .swallowing
            .get_or_init(|| self.golden.layers.iter().map(|layer| self.does_swallow_specials(layer.id)).collect());
        all.get(layer.0 as usize).copied().unwrap_or(false)
    }

    fn does_swallow_specials(&self, layer: LayerId) -> bool {
        let specials = |pair: TensorPair| {
            let metrics = self.judgement.measurements.get(pair).and_then(Measured::metrics);
            metrics.is_some_and(|m| m.has_unshared_specials()) && self.pair_is_out(pair)
        };
        !self.is_out(layer) && self.inputs(layer).into_iter().any(specials)
    }

    /// Whether anything that came into a golden layer is out: a pair at its slots, or, where slots
    /// do not answer each other, the layer that made the tensor.
    pub(super) fn has_input_out(&self, layer: LayerId) -> bool {
        let producers = self.golden.layer(layer).inputs.iter().filter_map(|&id| self.golden.tensor(id).producer);
        if producers.into_iter().any(|(producer, _)| producer != layer && self.swallows_specials(producer)) {
            return true;
        }
        let pairs = self.inputs(layer);
        let out = |pair: TensorPair| {
            if self.is_rewired(pair) {
                // The runs read different tensors, which says nothing about either.
                self.is_out_upstream(pair.0, Side::Golden) || self.is_out_upstream(pair.1, Side::Candidate)
            } else {
                self.pair_is_out(pair)
            }
        };
        if pairs.iter().any(|&pair| out(pair)) {
            return true;
        }
        let slotted: BTreeSet<TensorId> = pairs.iter().map(|pair| pair.0).collect();
        let unslotted = self.golden.layer(layer).inputs.iter().filter(|id| !slotted.contains(id));
        unslotted.into_iter().any(|&id| self.is_out_upstream(id, Side::Golden))
    }

    /// Whether the nearest paired tensors behind `tensor` hold one that is out.
    pub(super) fn is_out_upstream(&self, tensor: TensorId, side: Side) -> bool {
        let slot = match side {
            Side::Golden => &self.out_upstream[0],
            Side::Candidate => &self.out_upstream[1],
        };
        slot.get_or_init(|| self.tensors_with_out_upstream(side)).get(tensor.0 as usize).copied().unwrap_or(false)
    }

    /// Every tensor of which [`Flow::is_out_upstream`] holds, found from the paired layers that are out
    /// forwards: one sweep over the edges, where a search backwards from each tensor would walk a long
    /// stretch without partner again and again.
    fn tensors_with_out_upstream(&self, side: Side) -> Vec<bool> {
        let run = side.run(self);
        let mut found = vec![false; run.tensors.len()];
        let mut queue = Vec::new();
        for (id, tensor) in (0u32..).map(TensorId).zip(&run.tensors) {
            let paired = tensor.producer.and_then(|(producer, _)| self.paired_golden(producer, side));
            if paired.is_some_and(|layer| self.is_out(layer)) {
                found[id.0 as usize] = true;
                queue.push(id);
            }
        }
        let mut passed = HashSet::new();
        while let Some(at) = queue.pop() {
            for &(reader, _) in &run.tensor(at).consumers {
                // Without partner: what it hands on is looked through.
                if self.paired_golden(reader, side).is_some() || !passed.insert(reader) {
                    continue;
                }
                for &output in &run.layer(reader).outputs {
                    let is_its_own = run.tensor(output).producer.is_some_and(|(producer, _)| producer == reader);
                    if is_its_own && !std::mem::replace(&mut found[output.0 as usize], true) {
                        queue.push(output);
                    }
                }
            }
        }
        found
    }

    fn paired_golden(&self, layer: LayerId, side: Side) -> Option<LayerId> {
        match side {
            Side::Golden => self.judgement.pairing.partner(layer).map(|_| layer),
            Side::Candidate => self.judgement.pairing.golden_of(layer),
        }
    }

    /// Whether both tensors of a slot were written by paired layers that do not answer each other: the
    /// runs are wired differently, or a recorder named an in-place result after its operand.
    pub(super) fn is_rewired(&self, pair: TensorPair) -> bool {
        let paired = |tensor: TensorId, side: Side| {
            side.run(self).tensor(tensor).producer.is_some_and(|(layer, _)| self.paired_golden(layer, side).is_some())
        };
        !self.is_output_pair(pair) && paired(pair.0, Side::Golden) && paired(pair.1, Side::Candidate)
    }

    /// The stretch that leads to `pair` at an input of `before`, where the pair and `before` are out
    /// although the paired tensors behind the stretch are in. The stretch may hold no layer at all:
    /// a tensor that nothing recorded wrote. `None` where the difference came from before it.
    fn stretch_origin(&self, before: LayerId, pair: TensorPair) -> Option<Site> {
        if self.is_output_pair(pair) || self.is_rewired(pair) || !self.pair_is_out(pair) || !self.is_out(before) {
            return None;
        }
        if self.is_out_upstream(pair.0, Side::Golden) || self.is_out_upstream(pair.1, Side::Candidate) {
            return None;
        }
        let unpaired = |tensor: TensorId, side: Side| {
            let producer = side.run(self).tensor(tensor).producer?.0;
            self.paired_golden(producer, side).is_none().then_some(producer)
        };
        Some(Site::Stretch {
            before,
            candidate: unpaired(pair.1, Side::Candidate),
            golden: unpaired(pair.0, Side::Golden),
        })
    }

    /// Stretches that are origins, each once, in execution order, with the pair that shows it.
    pub(super) fn stretch_origins(&self) -> Vec<(Site, TensorPair)> {
        let mut found: Vec<(Site, TensorPair)> = Vec::new();
        let mut known = HashSet::new();
        for layer in &self.golden.layers {
            for pair in self.inputs(layer.id) {
                let Some(site) = self.stretch_origin(layer.id, pair) else { continue };
                let Site::Stretch { candidate, golden, .. } = site else { continue };
                // Tensors that nothing wrote are places of their own.
                let nothing_wrote = candidate.is_none() && golden.is_none();
                if known.insert((candidate, golden, nothing_wrote.then_some(pair))) {
                    found.push((site, pair));
                }
            }
        }
        found
    }

    /// What replay of the candidate's answer to a golden layer gave.
    pub(super) fn own(&self, layer: LayerId) -> Option<&'a Replayed> {
        self.judgement.replays.candidate(self.judgement.pairing.partner(layer)?.layer)
    }

    /// Candidate layers without partner that made an error of their own, with the pair that shows it.
    pub(super) fn extra_origins(&self) -> Vec<(Site, TensorPair, LayerId)> {
        let mut found = Vec::new();
        if self.judgement.replays.extra_out.is_empty() {
            return found;
        }
        let next_paired = self.next_paired();
        // Input pairs by candidate tensor, of the layer that was asked for last: many lead to one.
        let mut read_by: Option<(LayerId, InputPairs)> = None;
        for &id in &self.judgement.replays.extra_out {
            let Some(before) = next_paired.get(id.0 as usize).copied().flatten() else { continue };
            let outputs = &self.candidate.layer(id).outputs;
            let (_, pairs) = match read_by.take().filter(|(layer, _)| *layer == before) {
                Some(known) => read_by.insert(known),
                None => {
                    let mut pairs = InputPairs::new();
                    for (slot, pair) in self.inputs(before).into_iter().enumerate() {
                        pairs.entry(pair.1).or_insert((slot, pair));
                    }
                    read_by.insert((before, pairs))
                }
            };
            let shown = outputs.iter().filter_map(|output| pairs.get(output)).min().map(|(_, pair)| *pair);
            let read = self.golden.layer(before).inputs.first().or(self.golden.layer(before).outputs.first());
            if let Some(pair) = shown.or_else(|| Some((*read?, *outputs.first()?))) {
                found.push((Site::Stretch { before, candidate: Some(id), golden: None }, pair, id));
            }
        }
        found
    }

    /// By candidate layer: the first golden layer whose answer reads, through layers without partner,
    /// what it made; where nothing does, the one whose answer ran next.
    fn next_paired(&self) -> Vec<Option<LayerId>> {
        let mut writers: Vec<Vec<LayerId>> = vec![Vec::new(); self.candidate.tensors.len()];
        for layer in &self.candidate.layers {
            for output in &layer.outputs {
                writers[output.0 as usize].push(layer.id);
            }
        }
        // Backwards from each golden layer's answer, the earliest first, so that the first to come to a
        // tensor is the one that counts and no tensor is looked at twice.
        let mut next: Vec<Option<LayerId>> = vec![None; self.candidate.layers.len()];
        let mut seen = vec![false; self.candidate.tensors.len()];
        for golden in &self.golden.layers {
            let Some(partner) = self.judgement.pairing.partner(golden.id) else { continue };
            let mut queue = self.candidate.layer(partner.layer).inputs.clone();
            while let Some(tensor) = queue.pop() {
                if std::mem::replace(&mut seen[tensor.0 as usize], true) {
                    continue;
                }
                for &writer in &writers[tensor.0 as usize] {
                    let slot = &mut next[writer.0 as usize];
                    if slot.is_none() {
                        *slot = Some(golden.id);
                        if self.judgement.pairing.golden_of(writer).is_none() {
                            queue.extend(&self.candidate.layer(writer).inputs);
                        }
                    }
                }
            }
        }
        let mut ran_next = None;
        for layer in self.candidate.layers.iter().rev() {
            ran_next = self.judgement.pairing.golden_of(layer.id).or(ran_next);
            let slot = &mut next[layer.id.0 as usize];
            *slot = slot.or(ran_next);
        }
        next
    }

    /// The first place that is out.
    pub(super) fn first_out(&self) -> Option<Site> {
        if self.judgement.verdict == crate::judge::CaseVerdict::Pass {
            return None;
        }
        if let Some(&source) = self.judgement.differing_sources.first()
            && self.judgement.verdict == crate::judge::CaseVerdict::Incomparable
        {
            return Some(Site::Layer(source));
        }
        let layers = self.judgement.layers.iter().filter(|l| l.verdict.is_out()).map(|l| Site::Layer(l.layer));
        let stretches = self.stretch_origins().into_iter().map(|(site, _)| site);
        let extra = self.extra_origins().into_iter().map(|(site, ..)| site);
        layers.chain(stretches).chain(extra).min_by_key(|site| site.order())
    }

    /// Golden layers downstream of `from` through `goes` (asked per layer).
    pub(super) fn downstream(&self, from: &[TensorId], goes: &dyn Fn(LayerId) -> bool) -> Downstream {
        let (mut reached, mut stopped) = (BTreeSet::new(), BTreeSet::new());
        let mut is_cut = false;
        let mut queue: Vec<TensorId> = from.to_vec();
        while let Some(tensor) = queue.pop() {
            for &(consumer, _) in &self.golden.tensor(tensor).consumers {
                if reached.contains(&consumer) || stopped.contains(&consumer) {
                    continue;
                }
                if !goes(consumer) {
                    stopped.insert(consumer);
                } else if self.followed.get() < MOST_FOLLOWED {
                    self.followed.set(self.followed.get() + 1);
                    reached.insert(consumer);
                    queue.extend(&self.golden.layer(consumer).outputs);
                } else {
                    is_cut = true;
                }
            }
        }
        Downstream { reached: reached.into_iter().collect(), stopped: stopped.into_iter().collect(), is_cut }
    }

    /// Whether a golden layer is a by-stander: a source, a factory, or not compared.
    pub(super) fn is_compared(&self, layer: LayerId) -> bool {
        !matches!(self.judgement.layer(layer).verdict, Verdict::Missing | Verdict::Skipped)
            && !matches!(self.golden.layer(layer).op.class(), Class::Uninitialised)
    }
}

/// One of the two runs of a [`Flow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Golden,
    Candidate,
}

impl Side {
    pub(super) fn run<'a>(self, flow: &Flow<'a>) -> &'a Run {
        match self {
            Self::Golden => flow.golden,
            Self::Candidate => flow.candidate,
        }
    }

    pub(super) fn of(self, pair: TensorPair) -> TensorId {
        match self {
            Self::Golden => pair.0,
            Self::Candidate => pair.1,
        }
    }
}
