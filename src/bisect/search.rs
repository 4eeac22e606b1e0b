//! The order in which tensors are read.

use std::collections::{BTreeSet, VecDeque};

use super::confirm::origins_in;
use super::cut::{Cut, Plan, plan};
use super::ledger::Ledger;
use super::model::{BISECT_SCHEMA, Bisection, Outcome, Purpose};
use crate::case::Case;
use crate::diagnose;
use crate::error::Result;
use crate::judge::{CaseVerdict, Noise, OnGolden, Probe};
use crate::op::Class;
use crate::pairing::{self, TensorPair};
use crate::run::{LayerId, Pass, Run, TensorId};

/// Least number of pairs that the scan reads between two looks at the result.
const SCAN_CHUNK: usize = 16;
/// Most looks of one scan: each costs time in proportion to the number of layers.
const SCAN_LOOKS: usize = 64;

/// Choices of one search.
pub struct Options<'a> {
    /// Ends the search where the final outputs and all cut points agree. That proves nothing about
    /// the layers between them; by default the scan follows.
    pub trust_output: bool,
    /// Called with every golden tensor as it is read, so that its digest is checked.
    pub on_golden: OnGolden<'a>,
    /// How far approved runs of the golden lie apart; widens limits.
    pub noise: Noise<'a>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { trust_output: false, on_golden: &|_, _| Ok(()), noise: &|_, _| None }
    }
}

/// Finds the first layer of `candidate` that drifts from `golden`, reading few tensors.
///
/// # Errors
/// A tensor that cannot be read, or that `options.on_golden` refuses.
pub fn search(golden: &Run, candidate: &Run, case: &Case, options: &Options<'_>) -> Result<Bisection> {
    let rename = |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
    let pairing = pairing::pair(golden, candidate, &rename)?;
    let probe = Probe::new(golden, candidate, pairing, case, options.on_golden)?.with_noise(options.noise);
    let mut search = Search { case, ledger: Ledger::new(golden, candidate, probe), fell_back: None };
    let (outcome, caveats) = search.run(options.trust_output)?;
    let verdict = match (&outcome, search.ledger.judgement().verdict) {
        (Outcome::Incomparable { .. }, _) => CaseVerdict::Incomparable,
        // What was not read is not compared, which a whole judgement would call incomparable.
        (Outcome::Nothing { .. }, CaseVerdict::Incomparable) => CaseVerdict::Pass,
        (_, verdict) => verdict,
    };
    let (steps, loaded) = search.ledger.close();
    Ok(Bisection {
        schema: BISECT_SCHEMA.into(),
        verdict: verdict.as_str().into(),
        outcome,
        steps,
        loaded,
        fell_back: search.fell_back,
        caveats,
    })
}

struct Search<'a> {
    case: &'a Case,
    ledger: Ledger<'a>,
    fell_back: Option<String>,
}

/// What one stage came to.
enum Stage {
    /// The answer, with its caveats.
    Done(Outcome, Vec<String>),
    /// Nothing there: go on.
    Clean,
    /// The stage cannot tell, for this reason: scan.
    Unsure(String),
}

impl Search<'_> {
    fn run(&mut self, trust_output: bool) -> Result<(Outcome, Vec<String>)> {
        let reason = match self.sources()? {
            Stage::Done(outcome, caveats) => return Ok((outcome, caveats)),
            Stage::Unsure(reason) => reason,
            Stage::Clean => match self.by_probes()? {
                Stage::Done(outcome, caveats) => return Ok((outcome, caveats)),
                Stage::Unsure(reason) => reason,
                Stage::Clean if trust_output => {
                    let why = "the final outputs and all cut points agree; that does not prove that no layer \
                               drifts, for a drift may vanish before the next cut point";
                    let unread = "layers between the cut points were not read: scan them to be sure".to_string();
                    return Ok((Outcome::Nothing { why: why.into() }, vec![unread]));
                }
                Stage::Clean => "the final outputs and all cut points agree, which does not prove that no layer \
                                 drifts: a drift may vanish before the next cut point"
                    .into(),
            },
        };
        self.fell_back = Some(reason);
        self.scan()
    }

    /// Inputs and parameters: where they differ no operator can be blamed.
    fn sources(&mut self) -> Result<Stage> {
        let golden = self.ledger.golden;
        let pairs: Vec<TensorPair> = golden
            .layers
            .iter()
            .filter(|layer| layer.op.is_source())
            .flat_map(|layer| self.ledger.pairs_of(layer.id).to_vec())
            .collect();
        self.ledger.read(&pairs, Purpose::Source, "the runs must have been given the same tensors")?;
        let judgement = self.ledger.judgement();
        if judgement.pairing.paired() == 0 {
            let why = "no layer of the candidate answers a layer of the golden".to_string();
            return Ok(Stage::Done(Outcome::Incomparable { origins: Vec::new(), why }, Vec::new()));
        }
        let origins: Vec<diagnose::Origin> = self.ledger.origins();
        if !origins.is_empty() {
            let unread = "no operator was read: none can be blamed while sources differ".to_string();
            return Ok(Stage::Done(self.outcome(&origins), vec![unread]));
        }
        let differs = |a: bool, b: bool| a && b;
        let (g, c) = (&golden.meta, &self.ledger.candidate.meta);
        let undecided = differs(g.seed.is_some() && c.seed.is_some(), g.seed != c.seed)
            || differs(g.inputs_digest.is_some() && c.inputs_digest.is_some(), g.inputs_digest != c.inputs_digest);
        if undecided && !pairs.iter().any(|&pair| self.ledger.is_compared(pair)) {
            // The case's verdict rests on seed and digest alone where no source was recorded.
            let why = judgement.why.clone();
            return Ok(Stage::Done(Outcome::Incomparable { origins: Vec::new(), why }, Vec::new()));
        }
        Ok(Stage::Clean)
    }

    fn by_probes(&mut self) -> Result<Stage> {
        let golden = self.ledger.golden;
        let without_flow = golden.layers.iter().filter(|layer| is_computed(layer) && layer.inputs.is_empty()).count();
        if without_flow > 0 {
            return Ok(Stage::Unsure(format!(
                "{without_flow} layers have no recorded inputs, so that no cut point is sure to see what came before it"
            )));
        }
        let outputs = self.output_pairs();
        self.ledger.read(&outputs, Purpose::Output, "no layer reads it: a final output")?;
        // The earliest output that is out must have an origin among what it depends on.
        let target = outputs.iter().filter(|&&pair| self.ledger.is_out(pair)).filter_map(|&p| self.ledger.writer_of(p));
        if let Some(target) = target.min() {
            let Plan { mut side, cuts } = self.plan(golden.layer(target).pass);
            // What is written later cannot lead to it.
            side.retain(|&id| golden.tensor(id).producer.is_some_and(|(writer, _)| writer < target));
            let target = self.read_side(&side)?.filter(|&side| side < target).unwrap_or(target);
            return self.narrow(target, &cuts);
        }
        for pass in [Pass::Forward, Pass::Backward, Pass::Optimizer] {
            let Plan { side, cuts } = self.plan(pass);
            let target = match self.read_side(&side)? {
                Some(target) => Some(target),
                None => self.any_cut_out(&cuts)?,
            };
            if let Some(target) = target {
                return self.narrow(target, &cuts);
            }
        }
        if self.ledger.judgement().uncompared_ends.is_empty() {
            Ok(Stage::Clean)
        } else {
            Ok(Stage::Unsure("not every final output of the golden has an answer in the candidate".into()))
        }
    }

    fn plan(&self, pass: Pass) -> Plan {
        let golden = self.ledger.golden;
        let (ledger, case) = (&self.ledger, self.case);
        let is_known = |run: &Run, id: TensorId| run.tensor(id).stored.is_some() || run.tensor(id).stats.is_some();
        plan(golden, pass, &|tensor| {
            ledger.output_pair(tensor).is_some_and(|pair| {
                is_known(golden, pair.0)
                    && is_known(ledger.candidate, pair.1)
                    && ledger.layer_of(pair).is_some_and(|id| case.layers.decides(&golden.display_name(id)).is_none())
            })
        })
    }

    /// Final outputs that are judged: by-products of an operator are none.
    fn output_pairs(&self) -> Vec<TensorPair> {
        let golden = self.ledger.golden;
        let is_result = |tensor: &TensorId| {
            golden.tensor(*tensor).producer.is_some_and(|(id, slot)| !golden.layer(id).op.is_auxiliary(slot))
        };
        let tensors = golden.terminal_tensors().into_iter().filter(is_result);
        tensors.filter_map(|tensor| self.ledger.output_pair(tensor)).collect()
    }

    /// Reads the side tensors; the first layer among them that is out.
    fn read_side(&mut self, side: &[TensorId]) -> Result<Option<LayerId>> {
        let pairs: Vec<TensorPair> = side.iter().filter_map(|&id| self.ledger.output_pair(id)).collect();
        self.ledger.read(&pairs, Purpose::Side, "layers on both sides of cut points read it")?;
        let out = pairs.iter().filter(|&&pair| self.ledger.is_out(pair));
        Ok(out.filter_map(|&pair| self.ledger.writer_of(pair)).min())
    }

    fn cut_is_out(&mut self, cut: Cut, reason: &str) -> Result<bool> {
        let Some(pair) = self.ledger.output_pair(cut.tensor) else { return Ok(false) };
        self.ledger.read(&[pair], Purpose::Cut, reason)?;
        Ok(self.ledger.is_out(pair))
    }

    /// Looks for a cut point that is out, middles first: a fault is soon seen if any later point
    /// still shows it. All are read where none is out.
    fn any_cut_out(&mut self, cuts: &[Cut]) -> Result<Option<LayerId>> {
        let mut ranges = VecDeque::from([(0, cuts.len())]);
        let mut order = Vec::with_capacity(cuts.len());
        while let Some((from, to)) = ranges.pop_front() {
            let middle = from + (to - from) / 2;
            let Some(&cut) = cuts.get(middle).filter(|_| from < to) else { continue };
            order.extend(self.ledger.output_pair(cut.tensor));
            ranges.extend([(from, middle), (middle + 1, to)]);
        }
        let (singly, rest) = order.split_at(order.len().min(SCAN_LOOKS));
        let together = rest.len().div_ceil(SCAN_LOOKS).max(1);
        for pairs in singly.chunks(1).chain(rest.chunks(together)) {
            let reason = "the final outputs agree: looking for a drift that vanished before them";
            self.ledger.read(pairs, Purpose::Cut, reason)?;
            let out = pairs.iter().filter(|&&pair| self.ledger.is_out(pair));
            if let Some(writer) = out.filter_map(|&pair| self.ledger.writer_of(pair)).min() {
                return Ok(Some(writer));
            }
        }
        Ok(None)
    }

    /// Bisects the cut points before `target`, which is out, and reads the block that is left.
    fn narrow(&mut self, target: LayerId, cuts: &[Cut]) -> Result<Stage> {
        let before = cuts.partition_point(|cut| cut.after < target);
        let (mut known_in, mut out) = (None, before);
        let (mut from, mut target) = (0, target);
        while from < out {
            let middle = from + (out - from) / 2;
            let Some(&cut) = cuts.get(middle) else { break };
            let reason = format!("middle of {} cut points before {}", out - from, self.name(target));
            if self.cut_is_out(cut, &reason)? {
                out = middle;
                let pair = self.ledger.output_pair(cut.tensor);
                target = pair.and_then(|pair| self.ledger.writer_of(pair)).unwrap_or(target);
            } else {
                known_in = Some(cut);
                from = middle + 1;
            }
        }
        self.block(known_in, target)
    }

    /// The guard: the block between the last cut point that is in and the layer that is out must hold a
    /// layer that is out although all that came into it is in.
    fn block(&mut self, known_in: Option<Cut>, target: LayerId) -> Result<Stage> {
        let golden = self.ledger.golden;
        let pass = golden.layer(target).pass;
        let mut region: BTreeSet<LayerId> = golden.ancestors(target).into_iter().collect();
        region.insert(target);
        region.retain(|&id| {
            golden.layer(id).pass == pass
                && !golden.layer(id).op.is_source()
                && known_in.is_none_or(|cut| id > cut.after)
        });
        let start = match known_in.and_then(|cut| golden.tensor(cut.tensor).producer) {
            Some((id, _)) => format!("behind {}, which is in", self.name(id)),
            None => "at the start".to_string(),
        };
        let reason = format!("in the block that begins {start} and ends with {}, which is out", self.name(target));
        let pairs: Vec<TensorPair> = region.iter().flat_map(|&id| self.ledger.pairs_of(id).to_vec()).collect();
        self.ledger.read(&pairs, Purpose::Block, &reason)?;
        let origins = origins_in(&mut self.ledger, &region)?;
        if origins.is_empty() {
            return Ok(Stage::Unsure(format!(
                "the block that begins {start} and ends with {} holds no layer that is out although its inputs are in",
                self.name(target)
            )));
        }
        let unread = "layers that were not read are not judged: an earlier drift that vanishes before the next \
                      cut point, or a second one later, is not excluded"
            .to_string();
        Ok(Stage::Done(self.outcome(&origins), vec![unread]))
    }

    /// Every pair in execution order, up to the first origin.
    fn scan(&mut self) -> Result<(Outcome, Vec<String>)> {
        let pairs = self.ledger.all_pairs();
        let chunk = SCAN_CHUNK.max(pairs.len().div_ceil(SCAN_LOOKS));
        let mut region = BTreeSet::new();
        for chunk in pairs.chunks(chunk) {
            region.extend(chunk.iter().filter_map(|&pair| self.ledger.layer_of(pair)));
            self.ledger.read(chunk, Purpose::Scan, "next in execution order")?;
            let origins = origins_in(&mut self.ledger, &region)?;
            if !origins.is_empty() {
                let later = "layers after it that were not read are not judged".to_string();
                return Ok((self.outcome(&origins), vec![later]));
            }
        }
        let judgement = self.ledger.judgement();
        let why = judgement.why.clone();
        Ok(match judgement.verdict {
            CaseVerdict::Incomparable => (Outcome::Incomparable { origins: Vec::new(), why }, Vec::new()),
            CaseVerdict::Pass => (Outcome::Nothing { why: format!("every tensor pair was read: {why}") }, Vec::new()),
            _ => {
                let why = format!("{why}, yet none of them is out by itself: all that came into it is not in either");
                (Outcome::Nothing { why }, Vec::new())
            }
        })
    }

    fn outcome(&self, origins: &[diagnose::Origin]) -> Outcome {
        let described = origins.iter().map(|origin| self.ledger.describe(origin)).collect();
        let judgement = self.ledger.judgement();
        if judgement.verdict == CaseVerdict::Incomparable && !judgement.differing_sources.is_empty() {
            return Outcome::Incomparable { origins: described, why: judgement.why.clone() };
        }
        Outcome::Found { origins: described }
    }

    fn name(&self, id: LayerId) -> String {
        self.ledger.golden.display_name(id)
    }
}

/// Whether a layer depends on what ran before it, unlike what makes a tensor from nothing.
fn is_computed(layer: &crate::run::Layer) -> bool {
    !matches!(layer.op.class(), Class::Source | Class::Factory | Class::Uninitialised | Class::Random)
}
