//! `shards` of a case: entries that mean something, and groups that do not contradict each other.

use std::collections::HashMap;

use super::document::quote;
use super::frame::Mistake;
use super::raw::{At, RawGroup, RawShard};
use super::validate::glob;
use crate::run::join::{Group, How, ShardRule};

/// Ranks that a group may name: far beyond any model's, and a bound for what is built of them.
const MAX_RANKS: usize = 1 << 16;

pub(super) const HOWS: [&str; 3] = ["concat", "sum", "replica"];

/// The rules, in the order of the file.
pub(super) fn shards(raw: Vec<RawShard>) -> Result<Vec<ShardRule>, Mistake> {
    let mut rules: Vec<ShardRule> = Vec::with_capacity(raw.len());
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for entry in raw {
        let place = entry.group.as_ref().map_or_else(|| entry.pattern.span.clone(), |group| group.span.clone());
        let rule = ShardRule {
            matcher: glob(&entry.pattern)?,
            how: how(entry.how, entry.dim)?,
            group: entry.group.map_or(Ok(Group::All), group)?,
            pattern: entry.pattern.value,
        };
        if let Some(other) = contradicted(&rules, &mut owners, &rule.group) {
            return Err(Mistake::new(&place, "two groups share a rank and are not the same")
                .label(format!("not that of {}", quote(&other.pattern)))
                .help(
                    "a rank belongs to one group: write it alike, in one order, in each entry; all ranks are `all`",
                ));
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn how(how: Option<At<String>>, dim: Option<At<i64>>) -> Result<How, Mistake> {
    let name = how.as_ref().map_or("concat", |how| how.value.as_str());
    match (name, dim, &how) {
        ("concat", Some(dim), _) => Ok(How::Concat(dim.value)),
        ("concat", None, Some(how)) => Err(no_dim(&how.span)),
        ("sum", None, _) => Ok(How::Sum),
        ("replica", None, _) => Ok(How::Replica),
        ("sum" | "replica", Some(dim), _) => {
            Err(Mistake::new(&dim.span, format!("`dim` has no meaning for `how: {name}`")).help("remove `dim`"))
        }
        (_, _, Some(how)) => {
            let mistake = Mistake::new(&how.span, format!("unknown `how` {}", quote(&how.value)))
                .help(format!("allowed: {}", HOWS.join(", ")));
            Err(match super::raw::nearest(&how.value, HOWS) {
                Some(near) => mistake.label(format!("did you mean `{near}`?")),
                None => mistake.label("not known here"),
            })
        }
        // Without `how` and `dim`: the reader has seen to it that one of them is there.
        (_, _, None) => Err(no_dim(&(0..0))),
    }
}

fn no_dim(span: &std::ops::Range<usize>) -> Mistake {
    Mistake::new(span, "`concat` needs the dim along which the parts lie").help("for example `dim: 0`, or `dim: -1`")
}

fn group(raw: At<RawGroup>) -> Result<Group, Mistake> {
    let ranks = match raw.value {
        RawGroup::Name(name) if name == "all" => return Ok(Group::All),
        RawGroup::Name(name) => {
            return Err(Mistake::new(&raw.span, format!("unknown group {}", quote(&name)))
                .help("write `group: all`, or the ranks: `group: [0, 1]`"));
        }
        RawGroup::Ranks(ranks) => ranks,
    };
    if ranks.len() > MAX_RANKS {
        return Err(
            Mistake::new(&raw.span, format!("a group of more than {MAX_RANKS} ranks")).help("write `group: all`")
        );
    }
    let mut seen = std::collections::HashSet::new();
    let mut numbers = Vec::with_capacity(ranks.len());
    for rank in &ranks {
        let Ok(number) = u64::try_from(rank.value) else {
            return Err(Mistake::new(&rank.span, "a rank is not negative").help("the first rank is 0"));
        };
        if !seen.insert(number) {
            return Err(Mistake::new(&rank.span, format!("rank {number} stands twice in this group"))
                .help("each rank holds one part"));
        }
        numbers.push(number);
    }
    if numbers.len() < 2 {
        return Err(Mistake::new(&raw.span, "a group has at least two ranks")
            .help("what one rank holds needs no joining; all ranks are `group: all`"));
    }
    Ok(Group::Ranks(numbers))
}

/// A rule whose group shares a rank with `group` and is another one. `owners`: the first rule that names
/// a rank.
fn contradicted<'a>(rules: &'a [ShardRule], owners: &mut HashMap<u64, usize>, group: &Group) -> Option<&'a ShardRule> {
    let Group::Ranks(ranks) = group else { return rules.first().filter(|first| first.group != Group::All) };
    if let Some(first) = rules.first().filter(|first| first.group == Group::All) {
        return Some(first);
    }
    for rank in ranks {
        if let Some(other) = owners.get(rank).and_then(|at| rules.get(*at)) {
            return (other.group != *group).then_some(other);
        }
    }
    owners.extend(ranks.iter().map(|rank| (*rank, rules.len())));
    None
}
