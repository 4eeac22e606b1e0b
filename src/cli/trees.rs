//! Trees of steps and ranks: which runs of two sides are compared, and what is found across them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::target::{Baseline, How, compare_with};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::golden::Golden;
use crate::judge::agreement::{self, disagreements, disagreements_in_copies};
use crate::report::model::{Disagreement, SuiteEntry, Unpaired};
use crate::report::suite::Across;
use crate::run::Run;
use crate::run::join::{Member, Part, groups};

/// Where a run stands in a tree; both `None` for a run that stands alone.
type Place = (Option<u64>, Option<u64>);

/// What stands there: a run, or those of the ranks that are joined.
enum Leaf {
    One(PathBuf),
    Joined(PathBuf, Vec<(u64, PathBuf)>),
    /// Ranks that were to be joined, had this one been there.
    Lacks(PathBuf, u64),
}

/// One side of a comparison.
type Tree = BTreeMap<Place, Leaf>;

/// What came of comparing two paths.
pub(super) struct Compared {
    pub(super) entries: Vec<SuiteEntry>,
    pub(super) across: Across,
}

/// Compares two paths: runs, or trees of steps and ranks, which pair by step and rank, after the case's
/// `shards` were joined where the sides have different numbers of ranks. A third run pairs likewise.
pub(super) fn compare_paths(golden: &Path, candidate: &Path, case: &Case, how: How<'_>) -> Result<Compared> {
    let (mut left, mut right) = (located(golden)?, located(candidate)?);
    meet(&mut left, &mut right);
    join_shards(&mut left, &mut right, case, [golden, candidate]);
    let truths = how.truth().map(located).transpose()?;
    let alone = left.len() == 1 && right.len() == 1;
    let is_joined = |tree: &Tree| tree.values().any(|leaf| matches!(leaf, Leaf::Joined(..)));
    if truths.as_ref().is_some_and(|truths| truths.len() > 1) && (is_joined(&left) || is_joined(&right)) {
        return Err(Error::new("expected one run as the truth of joined ranks, found a tree"));
    }
    let truth_at = |place: Place| -> Result<Option<Baseline>> {
        let Some(truths) = &truths else { return Ok(None) };
        match (truths.get(&place), truths.values().next()) {
            (Some(leaf), _) => open(leaf, case, &Baseline::open),
            // Runs that stand alone answer each other wherever they stood.
            (None, Some(leaf)) if alone && truths.len() == 1 => open(leaf, case, &Baseline::open),
            _ => Err(Error::new("the truth has no such step or rank")),
        }
        .map(Some)
    };
    let mut compared = Compared { entries: Vec::new(), across: Across::default() };
    let places: BTreeSet<Place> = left.keys().chain(right.keys()).copied().collect();
    let steps: BTreeSet<Option<u64>> = places.iter().map(|(step, _)| *step).collect();
    for step in steps {
        let mut ranks = [Vec::new(), Vec::new()];
        let mut joined = [Vec::new(), Vec::new()];
        for place in places.iter().copied().filter(|place| place.0 == step) {
            let (Some(golden), Some(candidate)) = (left.get(&place), right.get(&place)) else {
                let side = if left.contains_key(&place) { "golden" } else { "candidate" };
                compared.lacks(place, side, case, [&left, &right]);
                continue;
            };
            let result = open(golden, case, &Baseline::open).and_then(|mut golden| {
                let mut candidate = open(candidate, case, &plain)?;
                golden.stands_at(place);
                candidate.stands_at(place);
                let report = compare_with(&golden, candidate.run(), truth_at(place)?.as_ref(), case, how)?;
                Ok((golden, candidate, report))
            });
            match result {
                Ok((golden, candidate, report)) => {
                    compared.entries.push(SuiteEntry::Report(Box::new(report)));
                    for (side, (tree, baseline)) in [(&left, golden), (&right, candidate)].into_iter().enumerate() {
                        match tree.get(&place) {
                            Some(Leaf::Joined(..)) => joined[side].push(baseline),
                            _ => ranks[side].extend(place.1.map(|rank| (rank, baseline))),
                        }
                    }
                }
                // What stands alone has nothing beside it that an error would hide.
                Err(error) if alone => return Err(error),
                Err(error) => compared
                    .entries
                    .push(SuiteEntry::Failed { case: place_name(&case.name, place), error: error.to_string() }),
            }
        }
        if let Err(error) = compared.agreement(step, case, &ranks, &joined) {
            let case = place_name(&case.name, (step, None));
            compared.entries.push(SuiteEntry::Failed { case, error: error.to_string() });
        }
    }
    Ok(compared)
}

impl Compared {
    fn lacks(&mut self, place: Place, side: &str, case: &Case, trees: [&Tree; 2]) {
        let other = if side == "golden" { "candidate" } else { "golden" };
        let (here, there) = if side == "golden" { (trees[0], trees[1]) } else { (trees[1], trees[0]) };
        let mut error = format!("only in the {side}: the {other} has no such step or rank");
        if ranks_of(there).len() == 1 && ranks_of(here).len() > 1 && case.shards.is_empty() {
            error.push_str(" (`shards` of a case joins ranks of which each holds a part)");
        }
        self.entries.push(SuiteEntry::Failed { case: place_name(&case.name, place), error });
        self.across.unpaired.push(Unpaired { case: named(case), step: place.0, rank: place.1, side: side.to_string() });
    }

    /// What ranks of one step should hold alike and do not.
    fn agreement(
        &mut self,
        step: Option<u64>,
        case: &Case,
        ranks: &[Vec<(u64, Baseline)>; 2],
        joined: &[Vec<Baseline>; 2],
    ) -> Result<()> {
        let mut found: Vec<(&str, agreement::Disagreement)> = Vec::new();
        if ranks[0].len() > 1 {
            let told = disagreements(&parts(&ranks[0]), &parts(&ranks[1]), case)?;
            found.extend(told.into_iter().map(|told| ("candidate", told)));
        }
        for (side, baselines) in ["golden", "candidate"].iter().zip(joined) {
            for baseline in baselines {
                found.extend(disagreements_in_copies(baseline.run())?.into_iter().map(|told| (*side, told)));
            }
        }
        self.across.disagreements.extend(found.into_iter().map(|(side, told)| Disagreement {
            case: named(case),
            step,
            side: side.to_string(),
            layer: told.layer,
            op: told.op,
            pass: told.pass.to_string(),
            tensor: told.tensor,
            ranks: told.ranks,
            more: told.more,
            why: told.why,
        }));
        Ok(())
    }
}

fn parts(ranks: &[(u64, Baseline)]) -> Vec<(u64, &dyn Part)> {
    ranks.iter().map(|(rank, baseline)| (*rank, baseline as &dyn Part)).collect()
}

fn named(case: &Case) -> Option<String> {
    Some(case.name.clone()).filter(|name| !name.is_empty())
}

fn located(path: &Path) -> Result<Tree> {
    if Golden::is_golden(path) {
        return Ok(BTreeMap::from([((None, None), Leaf::One(path.to_path_buf()))]));
    }
    Ok(Run::discover(path)?.into_iter().map(|(step, rank, path)| ((step, rank), Leaf::One(path))).collect())
}

/// What one side does not tell is taken from the other: a run answers the only run of a tree, ranks
/// without a step those of the only step.
fn meet(left: &mut Tree, right: &mut Tree) {
    let steps = |tree: &Tree| tree.keys().map(|(step, _)| *step).collect::<BTreeSet<_>>();
    let (ours, theirs) = (steps(left), steps(right));
    if let (Some(&a), Some(&b)) = (ours.first(), theirs.first())
        && ours.len() == 1
        && theirs.len() == 1
        && a != b
        && (a.is_none() || b.is_none() || (left.len() == 1 && right.len() == 1))
    {
        let step = a.or(b);
        for tree in [&mut *left, &mut *right] {
            *tree = std::mem::take(tree).into_iter().map(|((_, rank), leaf)| ((step, rank), leaf)).collect();
        }
    }
    if left.len() == 1 && right.len() == 1 {
        let rank = [&*left, &*right].iter().find_map(|tree| tree.keys().next()?.1);
        for tree in [left, right] {
            *tree = std::mem::take(tree).into_iter().map(|((step, _), leaf)| ((step, rank), leaf)).collect();
        }
    }
}

/// The ranks of a tree, whatever the step: one that a step lacks is missing there.
fn ranks_of(tree: &Tree) -> BTreeSet<Option<u64>> {
    tree.keys().map(|(_, rank)| *rank).collect()
}

/// Joins the ranks of each step where the sides have different numbers of them. Joined or left, they then
/// pair by their order.
fn join_shards(left: &mut Tree, right: &mut Tree, case: &Case, paths: [&Path; 2]) {
    let (ours, theirs) = (ranks_of(left), ranks_of(right));
    if case.shards.is_empty() || ours.len() == theirs.len() {
        return;
    }
    let steps: BTreeSet<Option<u64>> = left.keys().chain(right.keys()).map(|(step, _)| *step).collect();
    for step in steps {
        let sides = [
            (join_step(left, &ours, step, ours.len() > theirs.len(), case, paths[0]), &mut *left),
            (join_step(right, &theirs, step, ours.len() < theirs.len(), case, paths[1]), &mut *right),
        ];
        let alone = sides.iter().all(|(leaves, _)| leaves.len() <= 1);
        for (leaves, tree) in sides {
            tree.extend((0..).zip(leaves).map(|(at, leaf)| ((step, (!alone).then_some(at)), leaf)));
        }
    }
}

/// Takes the ranks of a step out of the tree, joined. Groups that name ranks speak of the side with more.
fn join_step(
    tree: &mut Tree,
    ranks: &BTreeSet<Option<u64>>,
    step: Option<u64>,
    has_more: bool,
    case: &Case,
    path: &Path,
) -> Vec<Leaf> {
    let places: Vec<Place> = tree.keys().filter(|place| place.0 == step).copied().collect();
    let mut runs: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for place in places {
        if let Some(Leaf::One(path)) = tree.remove(&place) {
            runs.insert(place.1.unwrap_or_default(), path);
        }
    }
    if runs.is_empty() {
        return Vec::new();
    }
    let groups = match groups(&case.shards) {
        None => vec![ranks.iter().map(|rank| rank.unwrap_or_default()).collect()],
        Some(groups) if has_more => groups,
        Some(_) => Vec::new(),
    };
    let mut leaves: Vec<(u64, Leaf)> = Vec::new();
    for group in groups.into_iter().filter(|group: &Vec<u64>| group.len() > 1) {
        let first = group.iter().min().copied().unwrap_or_default();
        let missing = group.iter().find(|rank| !runs.contains_key(rank)).copied();
        let members = group.iter().filter_map(|rank| Some((*rank, runs.remove(rank)?))).collect();
        let path = path.to_path_buf();
        leaves.push((first, missing.map_or(Leaf::Joined(path.clone(), members), |rank| Leaf::Lacks(path, rank))));
    }
    leaves.extend(runs.into_iter().map(|(rank, path)| (rank, Leaf::One(path))));
    leaves.sort_by_key(|(rank, _)| *rank);
    leaves.into_iter().map(|(_, leaf)| leaf).collect()
}

fn open(leaf: &Leaf, case: &Case, open_one: &dyn Fn(&Path) -> Result<Baseline>) -> Result<Baseline> {
    match leaf {
        Leaf::One(path) => open_one(path),
        Leaf::Lacks(path, rank) => Err(Error::at(
            path,
            format_args!("`shards` of the case joins rank {rank}, found no such rank in this step"),
        )),
        Leaf::Joined(path, ranks) => {
            let member = |(rank, path): &(u64, PathBuf)| -> Result<Member> {
                Ok(Member { rank: *rank, part: Box::new(open_one(path)?) })
            };
            let members = ranks.iter().map(member).collect::<Result<Vec<_>>>()?;
            if groups(&case.shards).is_none() {
                all_there(path, &members)?;
            }
            Run::join(path.clone(), members, &case.shards).map(|run| Baseline::Plain(Box::new(run)))
        }
    }
}

fn plain(path: &Path) -> Result<Baseline> {
    Run::open(path).map(|run| Baseline::Plain(Box::new(run)))
}

/// The whole of a tensor needs all ranks: those before the last, and as many as the runs say there were.
fn all_there(path: &Path, members: &[Member]) -> Result<()> {
    let last = members.iter().map(|member| member.rank.saturating_add(1)).max().unwrap_or_default();
    let world = members.iter().filter_map(|member| member.part.run().meta.world_size).max().unwrap_or_default();
    let count = last.max(world);
    let ranks: BTreeSet<u64> = members.iter().map(|member| member.rank).collect();
    match (0..count).find(|rank| !ranks.contains(rank)) {
        None => Ok(()),
        Some(missing) => Err(Error::at(
            path,
            format_args!("`shards` joins all {count} ranks, found {} and no rank {missing}", ranks.len()),
        )),
    }
}

fn place_name(case: &str, (step, rank): Place) -> String {
    let parts = [
        Some(case.to_string()).filter(|c| !c.is_empty()),
        step.map(|s| format!("step {s}")),
        rank.map(|r| format!("rank {r}")),
    ];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    if name.is_empty() { "(run)".into() } else { name }
}
