//! One run out of the runs of several ranks that hold shards of its tensors.
//!
//! In go the ranks' runs and rules that say which tensors are stretches, terms or copies; out comes a
//! [`Run`] like any other, whose tensors are put together when they are loaded. Layers of one name,
//! pass and call are one layer, tensors at one slot of it one tensor. What no rule matches is a copy,
//! taken from the first rank that has it. The invariant: a tensor of the joined run that counts as
//! stored has a part on every rank that its rule needs, and these parts fit each other.

mod combine;
mod layers;
mod rule;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

pub use rule::{Group, How, ShardRule, groups};

use super::assemble::Parts;
use super::{Run, RunMeta, Stored, TensorId};
use crate::error::{Error, Result};
use crate::tensor::{DType, Tensor};
use layers::{Merged, Slot};

/// The run of one rank, and how its tensors are read (a golden's with their digests checked).
pub trait Part: fmt::Debug + Send + Sync {
    /// Its metadata.
    fn run(&self) -> &Run;

    /// Reads a stored tensor; `None` where it was not stored.
    ///
    /// # Errors
    /// Those of [`Run::load`], and a tensor that is not as it was recorded.
    fn load(&self, id: TensorId) -> Result<Option<Tensor>>;
}

impl Part for Run {
    fn run(&self) -> &Run {
        self
    }

    fn load(&self, id: TensorId) -> Result<Option<Tensor>> {
        Self::load(self, id)
    }
}

/// One rank of a group.
#[derive(Debug)]
pub struct Member {
    /// Its number.
    pub rank: u64,
    /// Its run.
    pub part: Box<dyn Part>,
}

/// What a joined run is made of.
#[derive(Debug)]
pub(crate) struct Joined {
    members: Vec<Member>,
    recipes: HashMap<TensorId, Recipe>,
}

/// How one tensor is made.
#[derive(Debug)]
struct Recipe {
    how: How,
    /// The rule that says so; `None` where none matches.
    rule: Option<String>,
    /// Members, by position, and their tensors.
    pieces: Vec<(usize, TensorId)>,
}

/// A tensor that several ranks of a joined run hold, by a rule or since none matches.
#[derive(Debug)]
pub struct Copies<'a> {
    /// The joined run's tensor.
    pub tensor: TensorId,
    /// Whether a rule says that they are copies.
    pub by_rule: bool,
    /// The ranks and what they hold.
    pub held: Vec<(u64, &'a dyn Part, TensorId)>,
}

impl Run {
    /// Joins the runs of the ranks of one group, given in the group's order.
    ///
    /// Of several rules that match a tensor the last wins. Arguments of a layer that count elements
    /// (`size`, `num_heads` …) say something of a shard, so that those of a layer which reads or writes
    /// shards are not known in the joined run.
    ///
    /// # Errors
    /// Parts that do not fit each other (dtype, shape, no such dim); more layers or tensors than ids.
    pub fn join(path: PathBuf, members: Vec<Member>, rules: &[ShardRule]) -> Result<Self> {
        let merged = layers::merge(&members);
        let mut joining =
            Joining { members: &members, rules, files: Vec::new(), stored: Vec::new(), warnings: Vec::new() };
        let recipes = joining.recipes(&path, &merged)?;
        let Joining { files, stored, mut warnings, .. } = joining;
        warnings.extend(warnings_of(&members));
        let layers = merged.layers(&members, &|slot| {
            recipes.get(slot).is_some_and(|recipe| recipe.how != How::Replica && recipe.pieces.len() > 1)
        });
        // Statistics of a shard say nothing of the whole.
        let stats = merged.slots.iter().enumerate().filter_map(|(slot, found)| {
            let (member, id) =
                *found.held.first().filter(|_| recipes.get(slot).is_some_and(|r| r.how == How::Replica))?;
            Some((found.name.clone(), members.get(member)?.part.run().tensor(id).stats.clone()?))
        });
        let stats = stats.collect();
        let meta = meta_of(&members);
        let parts = Parts { layers_file: path.clone(), path, meta, layers, files, stored, stats, warnings };
        let mut run = parts.assemble()?;
        let by_name: HashMap<&str, TensorId> =
            run.tensors.iter().zip(0u32..).map(|(info, id)| (info.name.as_str(), TensorId(id))).collect();
        let recipes = merged
            .slots
            .iter()
            .zip(recipes)
            .filter_map(|(slot, recipe)| by_name.get(slot.name.as_str()).map(|id| (*id, recipe)));
        let recipes = recipes.collect();
        run.joined = Some(Box::new(Joined { members, recipes }));
        Ok(run)
    }

    /// The tensors of a joined run that are taken from one of several ranks, ascending; none of any other
    /// run.
    pub fn copies(&self) -> Vec<Copies<'_>> {
        let Some(joined) = &self.joined else { return Vec::new() };
        let mut copies: Vec<Copies<'_>> = joined
            .recipes
            .iter()
            .filter(|(_, recipe)| recipe.how == How::Replica && recipe.pieces.len() > 1)
            .map(|(id, recipe)| Copies {
                tensor: *id,
                by_rule: recipe.rule.is_some(),
                held: recipe
                    .pieces
                    .iter()
                    .filter_map(|(at, id)| joined.members.get(*at).map(|m| (m.rank, m.part.as_ref(), *id)))
                    .collect(),
            })
            .collect();
        copies.sort_by_key(|copies| copies.tensor);
        copies
    }
}

impl Joined {
    /// Reads the parts of a tensor and puts them together.
    pub(super) fn load(&self, run: &Run, id: TensorId) -> Result<Option<Tensor>> {
        let Some(recipe) = self.recipes.get(&id).filter(|_| run.tensor(id).stored.is_some()) else { return Ok(None) };
        let needed = if recipe.how == How::Replica { 1 } else { recipe.pieces.len() };
        let mut parts = Vec::with_capacity(needed);
        for (at, part) in recipe.pieces.iter().take(needed) {
            let Some(member) = self.members.get(*at) else { return Ok(None) };
            let Some(tensor) = member.part.load(*part)? else { return Ok(None) };
            parts.push(tensor);
        }
        // One part is the whole, and what is read once need not be copied.
        if needed == 1 {
            return Ok(parts.pop());
        }
        combine::join(recipe.how, &parts)
            .map(Some)
            .map_err(|why| refused(&run.path, recipe, &run.tensor(id).name, &why))
    }
}

fn refused(path: &std::path::Path, recipe: &Recipe, tensor: &str, why: &str) -> Error {
    let rule = recipe.rule.as_deref().unwrap_or("none");
    Error::at(path, format_args!("`shards`, match `{rule}`, how {}: tensor `{tensor}`: {why}", recipe.how.name()))
}

/// A join in the making.
struct Joining<'a> {
    members: &'a [Member],
    rules: &'a [ShardRule],
    files: Vec<PathBuf>,
    stored: Vec<(String, Stored)>,
    warnings: Vec<String>,
}

impl Joining<'_> {
    /// How each tensor of the joined run is made; fills `files`, `stored` and `warnings`.
    fn recipes(&mut self, path: &std::path::Path, merged: &Merged) -> Result<Vec<Recipe>> {
        let mut first_file = Vec::with_capacity(self.members.len());
        for member in self.members {
            first_file.push(self.files.len());
            self.files.extend(member.part.run().files.iter().cloned());
        }
        let mut recipes = Vec::with_capacity(merged.slots.len());
        let mut lacking: Vec<String> = Vec::new();
        for slot in &merged.slots {
            let rule = self.rules.iter().rev().find(|rule| self.is_about(rule, slot));
            let mut recipe = Recipe {
                how: rule.map_or(How::Replica, |rule| rule.how),
                rule: rule.map(|rule| rule.pattern.clone()),
                pieces: slot.held.iter().copied().filter(|&held| self.stored_at(held).is_some()).collect(),
            };
            let parts: Vec<(DType, &[usize])> = recipe
                .pieces
                .iter()
                .filter_map(|&held| self.stored_at(held))
                .map(|s| (s.dtype, s.shape.as_slice()))
                .collect();
            if recipe.how != How::Replica && parts.len() < self.members.len() {
                // A whole with a hole in it is no whole.
                if !parts.is_empty() {
                    lacking.push(slot.name.clone());
                }
                recipe.pieces.clear();
            }
            if let Some(&(at, id)) = recipe.pieces.first()
                && let Some(first) = self.stored_at((at, id))
            {
                let parts = if recipe.how == How::Replica { parts.get(..1).unwrap_or_default() } else { &parts };
                let (dtype, shape) =
                    combine::whole(recipe.how, parts).map_err(|why| refused(path, &recipe, &slot.name, &why))?;
                let len = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).and_then(|n| dtype.byte_len(n));
                let len = len.and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
                let file = first_file.get(at).copied().unwrap_or_default() + first.file;
                let place = Stored::dense(dtype, shape, file, first.offset, len);
                self.stored.push((slot.name.clone(), place));
            }
            recipes.push(recipe);
        }
        if let Some(first) = lacking.first() {
            let text = "tensors of which a rank holds no part, and so none is whole";
            self.warnings.push(format!("{} {text}, `{first}` first", lacking.len()));
        }
        Ok(recipes)
    }

    fn is_about(&self, rule: &ShardRule, slot: &Slot) -> bool {
        let Some((at, id)) = slot.held.first() else { return false };
        let Some(member) = self.members.get(*at) else { return false };
        let run = member.part.run();
        let info = run.tensor(*id);
        rule.matches(&info.name, info.producer.map(|(layer, _)| run.layer(layer)))
    }

    fn stored_at(&self, (at, id): (usize, TensorId)) -> Option<&Stored> {
        self.members.get(at)?.part.run().tensor(id).stored.as_ref()
    }
}

/// The first rank's manifest, without what holds of that rank alone.
fn meta_of(members: &[Member]) -> RunMeta {
    let mut metas = members.iter().map(|member| &member.part.run().meta);
    let Some(first) = metas.next() else { return RunMeta::default() };
    let mut meta = first.clone();
    meta.rank = None;
    meta.world_size = meta.world_size.or(u64::try_from(members.len()).ok());
    for other in metas {
        meta.complete &= other.complete;
        meta.inputs_digest = meta.inputs_digest.filter(|digest| other.inputs_digest.as_ref() == Some(digest));
        meta.seed = meta.seed.filter(|seed| other.seed == Some(*seed));
    }
    meta
}

/// What was odd about the ranks' files, each remark once.
fn warnings_of(members: &[Member]) -> Vec<String> {
    let mut warnings: Vec<(&str, Vec<String>)> = Vec::new();
    for member in members {
        for warning in &member.part.run().warnings {
            match warnings.iter_mut().find(|(text, _)| text == warning) {
                Some((_, ranks)) => ranks.push(member.rank.to_string()),
                None => warnings.push((warning, vec![member.rank.to_string()])),
            }
        }
    }
    warnings.into_iter().map(|(text, ranks)| format!("rank {}: {text}", ranks.join(", "))).collect()
}
