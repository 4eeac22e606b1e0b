//! Several cases, steps or ranks as one document.
//!
//! In go the cases' entries and what was found across ranks, out comes a [`Suite`]: the worst verdict,
//! the totals, and which of them comes first.

use std::collections::BTreeMap;

use super::gist::{Line, Piece, title};
use super::model::{Disagreement, Report, SUITE_SCHEMA, Suite, SuiteEntry, SuitePlace, Unpaired};

/// What was found across the steps and ranks of cases.
#[derive(Debug, Default)]
pub struct Across {
    /// See [`Suite::disagreements`].
    pub disagreements: Vec<Disagreement>,
    /// See [`Suite::unpaired`].
    pub unpaired: Vec<Unpaired>,
}

impl Across {
    /// Adds what was found across another case.
    pub fn extend(&mut self, other: Self) {
        self.disagreements.extend(other.disagreements);
        self.unpaired.extend(other.unpaired);
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.disagreements.is_empty() && self.unpaired.is_empty()
    }
}

/// The suite document of several cases.
pub fn suite(entries: Vec<SuiteEntry>, across: Across) -> Suite {
    let Across { disagreements, unpaired } = across;
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |key: &str, count: usize| {
        if count > 0 {
            *totals.entry(key.to_string()).or_default() += count as u64;
        }
    };
    let rank = |verdict: &str| {
        ["pass", "incomparable", "drift", "nonfinite", "error"].iter().position(|v| *v == verdict).unwrap_or(0)
    };
    let mut worst = "pass".to_string();
    let mut worsen = |verdict: &str| {
        if rank(verdict) > rank(&worst) {
            worst = verdict.to_string();
        }
    };
    for entry in &entries {
        match entry {
            SuiteEntry::Report(report) => {
                add(&report.outcome, 1);
                add(&report.verdict, 1);
                worsen(&report.verdict);
            }
            SuiteEntry::Failed { .. } => {
                add("error", 1);
                // What could not be read was not compared.
                worsen("incomparable");
            }
        }
    }
    if !disagreements.is_empty() {
        worsen("drift");
    }
    add("disagreements", disagreements.len());
    add("unpaired", unpaired.len());
    let out = earliest(&entries);
    let mut first = entries.iter().find(|entry| is_unexpected(entry)).map(|entry| match entry {
        SuiteEntry::Report(report) => title(out.unwrap_or(report)),
        SuiteEntry::Failed { case, .. } => case.clone(),
    });
    let first_drift = out.and_then(place);
    if first.is_none() {
        first = disagreements.first().map(where_found);
    }
    Suite {
        schema: SUITE_SCHEMA.into(),
        verdict: worst,
        totals,
        first,
        first_drift,
        disagreements,
        unpaired,
        cases: entries,
    }
}

fn is_unexpected(entry: &SuiteEntry) -> bool {
    match entry {
        SuiteEntry::Report(report) => report.outcome != "expected",
        SuiteEntry::Failed { .. } => true,
    }
}

/// The first report that is not as expected: in the order of the cases and their steps, and of a step's
/// ranks the one whose first layer that is out has the lowest index.
fn earliest(entries: &[SuiteEntry]) -> Option<&Report> {
    let mut reports = entries.iter().filter(|entry| is_unexpected(entry)).filter_map(|entry| match entry {
        SuiteEntry::Report(report) => Some(report.as_ref()),
        SuiteEntry::Failed { .. } => None,
    });
    let first = reports.next()?;
    // Reports without a rank are cases of their own.
    let ranks = reports.take_while(|other| {
        other.rank.is_some() && first.rank.is_some() && (&other.case, other.step) == (&first.case, first.step)
    });
    let index = |report: &Report| report.first_drift.as_ref().and_then(|place| place.index).unwrap_or(u64::MAX);
    std::iter::once(first).chain(ranks).min_by_key(|report| index(report))
}

fn place(report: &Report) -> Option<SuitePlace> {
    let first = report.first_drift.as_ref()?;
    Some(SuitePlace {
        case: report.case.clone(),
        step: report.step,
        rank: report.rank,
        layer: first.layer.clone(),
        op: first.op.clone(),
        pass: first.pass.clone(),
        index: first.index,
    })
}

/// Case, step and first rank that stands apart.
pub fn where_found(disagreement: &Disagreement) -> String {
    let parts = [
        disagreement.case.clone().filter(|case| !case.is_empty()),
        disagreement.step.map(|step| format!("step {step}")),
        disagreement.ranks.first().map(|rank| format!("rank {rank}")),
        Some("of the golden".to_string()).filter(|_| disagreement.side == "golden"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What ranks disagree about, in one line.
pub fn line_of(disagreement: &Disagreement) -> Line {
    let mut line =
        vec![Piece::Text(format!("{}: ", where_found(disagreement))), Piece::Name(disagreement.layer.clone())];
    if !disagreement.op.is_empty() {
        line.push(Piece::Text(format!(" ({})", disagreement.op)));
    }
    line.push(Piece::Text(format!(": {}", disagreement.why)));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn at(step: u64, rank: u64, index: Option<u64>) -> SuiteEntry {
        let mut report = Report { step: Some(step), rank: Some(rank), ..example::drift() };
        match index {
            Some(index) => report.first_drift.iter_mut().for_each(|place| place.index = Some(index)),
            None => report.outcome = "expected".into(),
        }
        SuiteEntry::Report(Box::new(report))
    }

    #[test]
    fn of_a_steps_ranks_the_earliest_layer_comes_first() {
        let entries = vec![at(0, 0, None), at(1, 0, Some(9)), at(1, 1, Some(3)), at(1, 2, Some(3)), at(2, 0, Some(0))];
        let suite = suite(entries, Across::default());
        assert!(suite.first.unwrap().ends_with("step 1 rank 1"));
        let place = suite.first_drift.unwrap();
        assert_eq!((place.step, place.rank, place.index), (Some(1), Some(1), Some(3)));
    }

    #[test]
    fn a_disagreement_alone_makes_the_suite_drift() {
        let found = example::suite().disagreements;
        let suite = suite(vec![at(0, 0, None)], Across { disagreements: found, unpaired: Vec::new() });
        assert_eq!(suite.totals["disagreements"], 1);
        assert_eq!(suite.first.unwrap(), "minilm-encode step 3 rank 2");
        assert_eq!(suite.first_drift, None);
        assert!(suite.verdict == "drift");
    }
}
