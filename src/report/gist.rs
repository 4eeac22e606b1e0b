//! What a person must know in ten seconds: where, why, what to do next, what was left out.
//!
//! In goes a [`Report`], out comes a [`Gist`], the same lines for terminal, Markdown and HTML.
//! Names stay apart from prose ([`Piece`]), so that each renderer sets and escapes them its way.

use std::collections::BTreeMap;

use super::decisive::{deciding_metric, deciding_output};
use super::figure::{counted, figure, grouped, metric_figure, times};
use super::model::{Birth, LayerRow, Origin, Report, Side};

/// How many origins, births or remedies the gist spells out; the rest is counted.
const SPELLED_OUT: usize = 3;

/// A stretch of text: not yet escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Prose.
    Text(String),
    /// A name of a layer, tensor or path.
    Name(String),
}

/// One line.
pub type Line = Vec<Piece>;

/// The lines of one kind, under one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// `where`, `why`, `next` …
    pub label: &'static str,
    /// Its lines, most important first.
    pub lines: Vec<Line>,
}

/// A report in a few lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gist {
    /// `pass`, `drift` …
    pub verdict: String,
    /// Case, step and rank.
    pub title: String,
    /// Whether the outcome is the expected one.
    pub expected: bool,
    /// Sections that have something to say, in reading order.
    pub sections: Vec<Section>,
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

fn name(name: &str) -> Piece {
    Piece::Name(if name.is_empty() { "(unnamed)".into() } else { name.into() })
}

/// Case, step and rank in one phrase; a comparison without a case is named by its two paths.
pub fn title(report: &Report) -> String {
    let mut title = match &report.case {
        Some(case) if !case.is_empty() => case.clone(),
        _ => format!("{} against {}", report.candidate.path, report.golden.path),
    };
    if let Some(step) = report.step {
        title.push_str(&format!(" step {step}"));
    }
    if let Some(rank) = report.rank {
        title.push_str(&format!(" rank {rank}"));
    }
    title
}

/// Reads the gist out of a report.
pub fn gist(report: &Report) -> Gist {
    let candidates = [
        ("runs", runs(report)),
        ("where", places(report)),
        ("why", reasons(report)),
        ("next", next(report)),
        ("fp32", blacklist(report)),
        ("looks", signatures(report)),
        ("truth", truth(report)),
        ("bitwise", bitwise(report)),
        ("counts", counts(report)),
        ("left out", left_out(report)),
        ("differ", few(report.differences.iter().map(|d| vec![text(d)]).collect(), "difference")),
        ("notes", few(report.notes.iter().map(|n| vec![text(n)]).collect(), "note")),
    ];
    Gist {
        verdict: report.verdict.clone(),
        title: title(report),
        expected: report.outcome == "expected",
        sections: candidates
            .into_iter()
            .filter(|(_, lines)| !lines.is_empty())
            .map(|(label, lines)| Section { label, lines })
            .collect(),
    }
}

/// Keeps the first few lines and counts the others.
fn few(mut lines: Vec<Line>, noun: &str) -> Vec<Line> {
    let hidden = lines.len().saturating_sub(SPELLED_OUT);
    // One line more is shorter than saying that one is hidden.
    if hidden > 1 {
        lines.truncate(SPELLED_OUT);
        lines.push(vec![text(format!("and {}", counted(hidden as u64, &format!("more {noun}"))))]);
    }
    lines
}

fn runs(report: &Report) -> Vec<Line> {
    vec![side("golden", &report.golden), side("candidate", &report.candidate)]
}

fn side(which: &str, side: &Side) -> Line {
    let mut about: Vec<&str> = Vec::new();
    about.extend(side.environment.get("device").map(String::as_str));
    about.extend(side.compute.as_deref());
    let mut line = vec![text(format!("{which:<9} ")), name(&side.path)];
    if !about.is_empty() {
        line.push(text(format!(" ({})", about.join(", "))));
    }
    line
}

/// ` (softmax, layer 3 of 12, backward)`; the index counts from 0, as in the table.
fn about(op: &str, pass: &str, index: Option<u64>, layers: u64) -> Piece {
    let mut words = format!(" ({op}");
    match index {
        Some(index) => words.push_str(&format!(", layer {} of {}", grouped(index), grouped(layers))),
        None => words.push_str(", a stretch without partner"),
    }
    if pass != "forward" {
        words.push_str(&format!(", {pass}"));
    }
    text(words + ")")
}

/// A second line where the candidate calls the layer otherwise.
fn alias(candidate: Option<&str>) -> Option<Line> {
    candidate.map(|candidate| vec![text("the candidate calls it "), name(candidate)])
}

fn places(report: &Report) -> Vec<Line> {
    let layers = report.summary.layers;
    let mut lines = Vec::new();
    let births: Vec<Line> = report.nonfinite_origins.iter().map(|birth| born(birth, layers)).collect();
    lines.extend(few(births, "birth"));
    if let [birth] = report.nonfinite_origins.as_slice() {
        lines.extend(alias(birth.candidate_layer.as_deref()));
    }
    // An origin that is a birth as well has been named already.
    let origins: Vec<Line> = report
        .origins
        .iter()
        .filter(|origin| !is_birth(report, origin))
        .map(|origin| originated(origin, layers))
        .collect();
    lines.extend(few(origins, "origin"));
    if let ([origin], []) = (report.origins.as_slice(), report.nonfinite_origins.as_slice()) {
        lines.extend(alias(origin.candidate_layer.as_deref()));
    }
    if let Some(first) = &report.first_drift {
        let same = |layer: &str, pass: &str| layer == first.layer && pass == first.pass;
        let named = report.origins.iter().any(|o| same(&o.layer, &o.pass))
            || report.nonfinite_origins.iter().any(|b| same(&b.layer, &b.pass));
        if !named {
            lines.push(vec![
                text("first out: "),
                name(&first.layer),
                about(&first.op, &first.pass, first.index, layers),
            ]);
        }
    }
    lines
}

fn is_birth(report: &Report, origin: &Origin) -> bool {
    report.nonfinite_origins.iter().any(|b| b.layer == origin.layer && b.pass == origin.pass && b.side == origin.side)
}

fn originated(origin: &Origin, layers: u64) -> Line {
    let about = about(&origin.op, &origin.pass, origin.index, layers);
    let role = match origin.role.as_str() {
        "introduced" => format!("introduced {}", located(&origin.side)),
        "amplified" => format!("amplified {}, an ill-conditioned step", located(&origin.side)),
        "source" => "a source: the two runs were given different data".to_owned(),
        "accumulated" => "accumulated: no single layer jumps".to_owned(),
        other => format!("{other} {}", located(&origin.side)),
    };
    vec![name(&origin.layer), about, text(format!(": {role}"))]
}

fn located(side: &str) -> String {
    if side == "both" { "in both runs".into() } else { format!("in the {side}") }
}

fn born(birth: &Birth, layers: u64) -> Line {
    let kind = match birth.kind.as_str() {
        "nan" => "NaN",
        "inf" => "Inf",
        other => other,
    };
    let mut line = vec![name(&birth.layer)];
    line.push(about(&birth.op, &birth.pass, birth.index, layers));
    let first: Vec<String> = birth.first_index.iter().map(u64::to_string).collect();
    line.push(text(format!(
        " {} {} {kind} {}, first at [{}]: {}",
        if birth.side == "both" { "holds" } else { "makes" },
        grouped(birth.count),
        located(&birth.side),
        first.join(", "),
        birth.cause.replace('_', " "),
    )));
    if let Some(cause) = &birth.cause_layer {
        line.extend([text(" after an underflow in "), name(cause)]);
    }
    if birth.side != "both" {
        match &birth.first_nan_layer {
            Some(layer) if *layer != birth.layer => line.extend([text("; first NaN in "), name(layer)]),
            None if birth.kind != "nan" => line.push(text("; no NaN follows")),
            _ => {}
        }
        match &birth.ended {
            Some(layer) => line.extend([text("; vanishes in "), name(layer)]),
            None => line.push(text("; reaches the end")),
        }
    }
    line
}

fn reasons(report: &Report) -> Vec<Line> {
    let mut said: Vec<&str> = vec![&report.why];
    let mut lines = Vec::new();
    if !report.why.is_empty() {
        lines.push(vec![text(&report.why)]);
    }
    let causes = report
        .nonfinite_origins
        .iter()
        .map(|birth| (&birth.layer, &birth.why))
        .chain(report.origins.iter().map(|origin| (&origin.layer, &origin.why)));
    let mut spelled = Vec::new();
    for (layer, why) in causes {
        if why.is_empty() || said.iter().any(|s| s.contains(why.as_str())) {
            continue;
        }
        said.push(why);
        spelled.push(vec![name(layer), text(format!(": {why}"))]);
    }
    lines.extend(few(spelled, "reason"));
    if lines.is_empty() {
        lines.extend(report.first_drift.as_ref().and_then(|first| {
            let row = report.layers.iter().find(|row| row.layer == first.layer && row.pass == first.pass)?;
            Some(vec![text(over(row)?)])
        }));
    }
    if let Some(why) = report.outcome_why.as_deref().filter(|why| !why.is_empty()) {
        lines.push(vec![text(format!("{}: {why}", report.outcome))]);
    }
    lines
}

/// `rel_l2 9.99e-3 is 29 000 times the limit 3.1e-7`, for a row that is over a limit.
pub fn over(row: &LayerRow) -> Option<String> {
    let decisive = deciding_metric(deciding_output(row)?)?;
    if decisive.excess <= 1.0 {
        return None;
    }
    let value = metric_figure(decisive.metric, Some(decisive.value));
    let limit = metric_figure(decisive.metric, Some(decisive.limit.value));
    let metric = decisive.metric;
    Some(if decisive.excess.is_finite() && !super::decisive::is_floor(metric) {
        format!("{metric} {value} is {} the limit {limit}", times(decisive.excess))
    } else {
        format!("{metric} {value}, limit {limit}")
    })
}

fn next(report: &Report) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for remedy in &report.remedies {
        let mut line = vec![text(deed(&remedy.kind))];
        match remedy.layers.as_slice() {
            [] => {}
            [one] => line.extend([text(" "), name(one)]),
            [first, rest @ ..] => {
                line.extend([text(" "), name(first), text(format!(" and {} more", grouped(rest.len() as u64)))]);
            }
        }
        if !remedy.why.is_empty() {
            line.push(text(format!(": {}", remedy.why)));
        }
        lines.push(line);
    }
    let mut lines = few(lines, "suggestion");
    if report.verdict != "pass" && report.blacklist.is_empty() {
        lines.push(vec![text("the blacklist stays empty: no evidence that fp32 would help")]);
    }
    lines
}

fn deed(kind: &str) -> String {
    match kind {
        "align_sources" => "align the sources".into(),
        "align_environment" => "align the environments".into(),
        "complete_run" => "record the run to its end".into(),
        "accumulated" => "weigh the precision as a whole at".into(),
        "check_model" => "check model and data at".into(),
        "fix_defect" => "fix the defect in".into(),
        "bf16" => "use bf16 for".into(),
        "keep_fp32" => "keep in fp32".into(),
        "loss_scale" => "scale the loss".into(),
        "eps" => "enlarge eps of".into(),
        "fp32_state" => "keep the optimizer state in fp32".into(),
        other => other.replace('_', " "),
    }
}

fn blacklist(report: &Report) -> Vec<Line> {
    report
        .blacklist
        .iter()
        .map(|entry| {
            let mut line = vec![name(&entry.op), text(" in ")];
            for (place, layer) in entry.layers.iter().take(SPELLED_OUT).enumerate() {
                if place > 0 {
                    line.push(text(", "));
                }
                line.push(name(layer));
            }
            let more = entry.layers.len().saturating_sub(SPELLED_OUT);
            if more > 0 {
                line.push(text(format!(" and {more} more")));
            }
            let mut about = format!(" ({}, evidence: {}, {}", entry.reason, entry.grade, figure(Some(entry.score)));
            let listed = entry.layers.len() as u64;
            if entry.total_of_op > listed {
                about.push_str(&format!("; {} of {} {} layers", listed, grouped(entry.total_of_op), entry.op));
            }
            line.push(text(about + ")"));
            line
        })
        .collect()
}

fn signatures(report: &Report) -> Vec<Line> {
    let lines = report
        .signatures
        .iter()
        .map(|signature| {
            let share = figure(Some(signature.explains * 100.0));
            vec![
                name(&signature.layer),
                text(format!(
                    ": \"{}\" explains {share} % of the error: {}",
                    signature.kind.replace('_', " "),
                    signature.why
                )),
            ]
        })
        .collect();
    few(lines, "signature")
}

/// Who is nearer to the third run.
fn truth(report: &Report) -> Vec<Line> {
    let lines = report.truth.as_ref().map(|truth| vec![name(&truth.path), text(format!(": {}", truth.why))]);
    lines.into_iter().collect()
}

/// What is not bit-equal, unless the outcome says it already.
fn bitwise(report: &Report) -> Vec<Line> {
    let Some(bitwise) = &report.bitwise else { return Vec::new() };
    let mut lines = Vec::new();
    let sentence = super::bitwise::sentence(bitwise);
    if report.outcome_why.as_deref() != Some(&sentence) {
        lines.push(vec![text(sentence)]);
    }
    let left_out = match bitwise.not_compared {
        0 => String::new(),
        n => format!("; {} not compared", grouped(n)),
    };
    let (unequal, compared) = (grouped(bitwise.unequal), counted(bitwise.compared, "layer"));
    lines.push(vec![text(format!("{unequal} of {compared} not bit-equal{left_out}"))]);
    lines
}

fn counts(report: &Report) -> Vec<Line> {
    let s = &report.summary;
    let mut parts = vec![format!("{} pass", grouped(s.pass))];
    for (count, verdict) in [
        (s.drift, "drift"),
        (s.nonfinite, "nonfinite"),
        (s.mismatch, "mismatch"),
        (s.missing, "missing"),
        (s.skipped, "skipped"),
    ] {
        if count > 0 {
            parts.push(format!("{} {verdict}", grouped(count)));
        }
    }
    let mut line = format!("{}: {}", counted(s.layers, "layer"), parts.join(", "));
    if s.extra > 0 {
        line.push_str(&format!("; {} only in the candidate", grouped(s.extra)));
    }
    line.push_str(&format!("; {} compared, {} replayed", grouped(s.compared), grouped(s.replayed)));
    if s.unmodelled > 0 {
        line.push_str(&format!(", {} not modelled", grouped(s.unmodelled)));
    }
    vec![vec![text(line)]]
}

/// What was not compared, by verdict and reason, most frequent first.
fn left_out(report: &Report) -> Vec<Line> {
    let mut groups: BTreeMap<(&str, &str), Vec<&LayerRow>> = BTreeMap::new();
    for row in &report.layers {
        if matches!(row.verdict.as_str(), "skipped" | "missing" | "extra") {
            groups.entry((&row.verdict, &row.why)).or_default().push(row);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(&b.0)));
    let lines = groups
        .into_iter()
        .map(|((verdict, why), rows)| {
            let mut line = vec![text(format!("{} {verdict}", grouped(rows.len() as u64)))];
            if !why.is_empty() {
                line.push(text(format!(" ({why})")));
            }
            for (place, row) in rows.iter().take(2).enumerate() {
                line.push(text(if place == 0 { ": " } else { ", " }));
                line.push(name(&row.layer));
            }
            if rows.len() > 2 {
                line.push(text(" …"));
            }
            line
        })
        .collect();
    few(lines, "reason")
}
