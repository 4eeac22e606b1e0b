//! The story of one layer: what it read, what it made of it, what became of that.
//!
//! In go a report and a name; out come the layer's rows with every metric beside its limit and the
//! limit's reason, the verdicts of what it read and of what reads it, the births that touched it and
//! the blacklist entries that name it. Producers and consumers are found by the tensors' ids.

use std::io::{self, Write};

use super::style::{Style, Tone, width_of};
use crate::error::{Error, Result, legible};
use crate::report::decisive::{excess, is_floor, is_out};
use crate::report::figure::{ABSENT, figure, grouped, metric_figure, times};
use crate::report::gist::{Line, Piece};
use crate::report::model::{LayerRow, OutputRow, Report};

/// Column in which the lines of a part start.
const INDENT: usize = 12;
/// Names that an error offers.
const NEAR: usize = 5;
/// Producers or consumers that are listed one by one.
const MOST_NEIGHBOURS: usize = 12;

/// The rows of `report.layers` that a person may mean by `name`: the golden's name, else the
/// candidate's, else an ending that only one name has. A layer that ran in several passes has
/// several rows.
///
/// # Errors
/// No such layer, or an ending that several have; the message lists names that are near.
pub fn find(report: &Report, name: &str) -> Result<Vec<usize>> {
    let rows = |fits: &dyn Fn(&LayerRow) -> bool| -> Vec<usize> {
        report.layers.iter().enumerate().filter(|(_, row)| fits(row)).map(|(at, _)| at).collect()
    };
    let by_name = rows(&|row| row.layer == name);
    if !by_name.is_empty() {
        return Ok(by_name);
    }
    let by_candidate = rows(&|row| row.candidate_layer.as_deref() == Some(name));
    if !by_candidate.is_empty() {
        return Ok(by_candidate);
    }
    // Whole components first: `dense` shall find `0.dense` where `0.predense` exists as well.
    let ends = |full: &str| full.strip_suffix(name).is_some_and(|rest| rest.ends_with(['.', '/']));
    for fits in [&ends as &dyn Fn(&str) -> bool, &|full: &str| !name.is_empty() && full.ends_with(name)] {
        let found = rows(&|row| fits(&row.layer) || row.candidate_layer.as_deref().is_some_and(fits));
        let mut names: Vec<&str> =
            found.iter().filter_map(|&at| report.layers.get(at)).map(|row| row.layer.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        match names.len() {
            0 => {}
            1 => return Ok(found),
            several => {
                let list = listed(names.into_iter().take(NEAR));
                let more = if several > NEAR { ", …" } else { "" };
                return Err(Error::new(format_args!("\"{name}\" ends the names of {several} layers: {list}{more}")));
            }
        }
    }
    Err(Error::new(format_args!("no layer is called \"{name}\"{}", near(report, name))))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// `; near: …`, or how many layers there are where nothing is near.
fn near(report: &Report, name: &str) -> String {
    let mut scored: Vec<(f64, &str)> = report
        .layers
        .iter()
        .map(|row| {
            let contained = !name.is_empty() && row.layer.contains(name);
            (if contained { 2.0 } else { strsim::jaro_winkler(name, &row.layer) }, row.layer.as_str())
        })
        .filter(|(score, _)| *score > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    if scored.is_empty() {
        return format!(": the report has {} layers", report.layers.len());
    }
    format!("; near: {}", listed(scored.into_iter().take(NEAR).map(|(_, name)| name)))
}

/// Writes the story of the rows that [`find`] gave.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &Report, rows: &[usize], style: Style, out: &mut dyn Write) -> io::Result<()> {
    for (place, at) in rows.iter().enumerate() {
        let Some(row) = report.layers.get(*at) else { continue };
        if place > 0 {
            writeln!(out)?;
        }
        Story { report, row, style }.write(out)?;
    }
    Ok(())
}

struct Story<'a> {
    report: &'a Report,
    row: &'a LayerRow,
    style: Style,
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

fn name(name: &str) -> Piece {
    Piece::Name(name.to_owned())
}

impl Story<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.head(out)?;
        self.part("why", &self.reasons(), out)?;
        self.part("reads", &self.producers(), out)?;
        for output in &self.row.outputs {
            self.output(output, out)?;
        }
        self.part("truth", &self.truth(), out)?;
        self.part("read by", &self.consumers(), out)?;
        self.part("NaN/Inf", &self.births(), out)?;
        self.part("origin", &self.origins(), out)?;
        self.part("fp32", &self.blacklist(), out)?;
        // These name a layer without its pass: of the passes that share a name, the one that is out is meant.
        if is_out(&self.row.verdict) {
            self.part("looks", &self.signatures(), out)?;
            self.part("next", &self.remedies(), out)?;
        }
        Ok(())
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { row, style, report } = self;
        let place = match row.index {
            Some(index) => format!("layer {} of {}", grouped(index), grouped(report.summary.layers)),
            None => "only in the candidate".to_owned(),
        };
        let verdict = style.paint(Tone::of(&row.verdict), &legible(&row.verdict));
        let role = row.role.as_deref().map(|role| format!(", {}", legible(role))).unwrap_or_default();
        let title = style.paint(Tone::Strong, &legible(&row.layer));
        writeln!(out, "{title}  ({}, {}, {place}): {verdict}{role}", legible(&row.op), legible(&row.pass))?;
        let paired = match (&row.candidate_layer, &row.paired_by) {
            (Some(candidate), Some(by)) => vec![name(candidate), text(format!(" in the candidate (paired by {by})"))],
            (Some(candidate), None) => vec![name(candidate), text(" in the candidate")],
            (None, Some(by)) => vec![text(format!("the same name in the candidate (paired by {by})"))],
            (None, None) => return Ok(()),
        };
        self.part("paired", &[paired], out)
    }

    fn part(&self, label: &str, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
        for (place, line) in lines.iter().enumerate() {
            let label = if place == 0 { label } else { "" };
            let padding = " ".repeat(INDENT.saturating_sub(2 + width_of(label)));
            writeln!(out, "  {}{padding}{}", self.style.paint(Tone::Quiet, label), self.style.flow(line, INDENT))?;
        }
        Ok(())
    }

    fn reasons(&self) -> Vec<Line> {
        if self.row.why.is_empty() { Vec::new() } else { vec![vec![text(&self.row.why)]] }
    }

    fn producers(&self) -> Vec<Line> {
        let lines = self.row.inputs.iter().map(|input| {
            let made_it = |row: &&LayerRow| {
                !std::ptr::eq(*row, self.row) && (row.outputs.iter().any(|o| o.tensor == *input) || row.layer == *input)
            };
            let mut line = vec![name(input)];
            match self.report.layers.iter().find(made_it) {
                Some(row) => {
                    line.push(text(" from "));
                    line.extend(neighbour(row));
                }
                None => line.push(text(": no layer of this report makes it")),
            }
            line
        });
        capped(lines.collect())
    }

    fn consumers(&self) -> Vec<Line> {
        let reads = |row: &&LayerRow| {
            row.inputs.iter().any(|input| self.row.outputs.iter().any(|output| output.tensor == *input))
        };
        capped(self.report.layers.iter().filter(reads).map(neighbour).collect())
    }

    fn output(&self, output: &OutputRow, out: &mut dyn Write) -> io::Result<()> {
        let [golden, candidate] = output.dtype.each_ref().map(|dtype| dtype.as_deref().unwrap_or(ABSENT));
        let dtype = if golden == candidate { golden.to_owned() } else { format!("{golden} / {candidate}") };
        let shape = output
            .shape
            .as_ref()
            .map(|shape| format!(" [{}]", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")));
        let line =
            vec![name(&output.tensor), text(format!("  {dtype}{}: {}", shape.unwrap_or_default(), output.verdict))];
        self.part("makes", &[line], out)?;
        self.metrics(output, out)?;
        let mut lines: Vec<Line> = Vec::new();
        if output.introduced.is_some() || output.propagated.is_some() {
            lines.push(vec![text(format!(
                "rel_l2 introduced here {}, come with the inputs {}",
                figure(output.introduced),
                figure(output.propagated)
            ))]);
        }
        lines.extend(output.detail.as_ref().map(|detail| vec![text(detail)]));
        self.part("", &lines, out)
    }

    /// rho of each output, or why there is none.
    fn truth(&self) -> Vec<Line> {
        let Some(truth) = &self.report.truth else { return Vec::new() };
        if truth.unusable.is_some() {
            return vec![vec![name(&truth.path), text(format!(": {}", truth.why))]];
        }
        let outputs = self.row.outputs.iter().filter(|output| output.metrics.contains_key("rho"));
        let line = |output: &OutputRow| {
            let value = |metric: &str| output.metrics.get(metric).copied().flatten();
            let told = match value("rho") {
                Some(rho) => format!(
                    " has rho {}: against the truth rel_l2 is {} in the candidate and {} in the golden",
                    figure(Some(rho)),
                    figure(value("candidate_truth_rel_l2")),
                    figure(value("golden_truth_rel_l2"))
                ),
                None => " has no rho".to_owned(),
            };
            vec![name(&output.tensor), text(told)]
        };
        outputs.map(line).collect()
    }

    /// Every metric beside its limit: those that have one first.
    fn metrics(&self, output: &OutputRow, out: &mut dyn Write) -> io::Result<()> {
        let mut names: Vec<&str> = output.limits.keys().map(String::as_str).collect();
        names.extend(output.metrics.keys().map(String::as_str).filter(|name| !output.limits.contains_key(*name)));
        let rows: Vec<[String; 5]> = names
            .into_iter()
            .map(|metric| {
                let value = output.metrics.get(metric).copied().flatten();
                let limit = output.limits.get(metric);
                let over = limit.and_then(|limit| excess(metric, value?, limit.value));
                [
                    legible(metric),
                    metric_figure(metric, value),
                    limit.map(|l| metric_figure(metric, Some(l.value))).unwrap_or_default(),
                    match over {
                        Some(over) if over > 1.0 && is_floor(metric) => "below".to_owned(),
                        Some(over) if over > 1.0 => times(over),
                        Some(_) => "within".to_owned(),
                        None => String::new(),
                    },
                    limit.map(|l| legible(&l.why)).unwrap_or_default(),
                ]
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        let heads = ["metric", "value", "limit", "", "because"].map(str::to_owned);
        let widths: [usize; 5] = std::array::from_fn(|column| {
            std::iter::once(&heads)
                .chain(&rows)
                .filter_map(|row| row.get(column))
                .map(|c| width_of(c))
                .max()
                .unwrap_or(0)
        });
        for (place, [metric, value, limit, over, why]) in std::iter::once(&heads).chain(&rows).enumerate() {
            let [a, b, c, d, _] = widths;
            // Padding is computed, not formatted: the width of a column is not its number of characters.
            let right =
                |cell: &str, width: usize| format!("{}{cell}", " ".repeat(width.saturating_sub(width_of(cell))));
            let left = |cell: &str, width: usize| format!("{cell}{}", " ".repeat(width.saturating_sub(width_of(cell))));
            let line =
                format!("{}  {}  {}  {}  {why}", left(metric, a), right(value, b), right(limit, c), left(over, d));
            let tone = match (place, over.as_str()) {
                (0, _) => Tone::Quiet,
                (_, "" | "within") => Tone::Plain,
                _ => Tone::Bad,
            };
            writeln!(out, "{:INDENT$}  {}", "", self.style.paint(tone, line.trim_end()))?;
        }
        Ok(())
    }

    fn births(&self) -> Vec<Line> {
        let layer = &self.row.layer;
        let mut lines = Vec::new();
        for birth in &self.report.nonfinite_origins {
            let what = format!("{} {} ({})", grouped(birth.count), birth.kind, birth.cause.replace('_', " "));
            let is = |other: &Option<String>| other.as_ref() == Some(layer);
            if birth.layer == *layer && birth.pass == self.row.pass {
                lines.push(vec![text(format!("{what} born here: {}", birth.why))]);
                continue;
            }
            let how = if is(&birth.ended) {
                "vanish here"
            } else if is(&birth.first_nan_layer) {
                "become NaN here"
            } else if is(&birth.cause_layer) {
                "come from an underflow here"
            } else if birth.reached.contains(layer) {
                "pass through here"
            } else {
                continue;
            };
            lines.push(vec![text(format!("{what} born in ")), name(&birth.layer), text(format!(" {how}"))]);
        }
        lines
    }

    fn origins(&self) -> Vec<Line> {
        let row = self.row;
        let here = self.report.origins.iter().filter(|origin| origin.layer == row.layer && origin.pass == row.pass);
        here.map(|origin| vec![text(format!("{} in the {}: {}", origin.role, origin.side, origin.why))]).collect()
    }

    fn signatures(&self) -> Vec<Line> {
        let here = self.report.signatures.iter().filter(|signature| signature.layer == self.row.layer);
        here.map(|signature| {
            let share = figure(Some(signature.explains * 100.0));
            vec![text(format!(
                "\"{}\" explains {share} % of the error: {}",
                signature.kind.replace('_', " "),
                signature.why
            ))]
        })
        .collect()
    }

    fn blacklist(&self) -> Vec<Line> {
        let here = self.report.blacklist.iter().filter(|entry| entry.layers.contains(&self.row.layer));
        here.map(|entry| {
            let score = figure(Some(entry.score));
            vec![text(format!(
                "{} for its {} (evidence: {}, {score}): {}",
                entry.op, entry.reason, entry.grade, entry.why
            ))]
        })
        .collect()
    }

    fn remedies(&self) -> Vec<Line> {
        let here = self.report.remedies.iter().filter(|remedy| remedy.layers.contains(&self.row.layer));
        here.map(|remedy| vec![text(format!("{}: {}", remedy.kind.replace('_', " "), remedy.why))]).collect()
    }
}

fn neighbour(row: &LayerRow) -> Line {
    let role = row.role.as_deref().map(|role| format!(", {role}")).unwrap_or_default();
    vec![name(&row.layer), text(format!(" ({}): {}{role}", row.op, row.verdict))]
}

fn capped(mut lines: Vec<Line>) -> Vec<Line> {
    let hidden = lines.len().saturating_sub(MOST_NEIGHBOURS);
    if hidden > 1 {
        lines.truncate(MOST_NEIGHBOURS);
        lines.push(vec![text(format!("and {} more", grouped(hidden as u64)))]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_layer_is_found_by_either_name_or_a_unique_ending() {
        let report = example::drift();
        let origin = vec![20, 40];
        assert_eq!(find(&report, "encoder.layer.1.output.dense.linear").unwrap(), origin);
        assert_eq!(find(&report, "module.encoder.layer.1.output.dense.linear").unwrap(), [20]);
        assert_eq!(find(&report, "linear").unwrap(), origin);
        assert_eq!(find(&report, "bed").unwrap(), [0], "part of a component, where only one name has it");
    }

    #[test]
    fn what_is_not_found_gets_names_that_are_near() {
        let report = example::nonfinite();
        let error = |name: &str| find(&report, name).unwrap_err().to_string();
        assert_eq!(error("ln.powr"), "no layer is called \"ln.powr\"; near: ln.pow");
        assert_eq!(error(""), "no layer is called \"\": the report has 6 layers");
        assert_eq!(error("\u{1b}[31m"), "no layer is called \"\\u{1b}[31m\": the report has 6 layers");
        let drift = example::drift();
        let error = find(&drift, "0").unwrap_err().to_string();
        assert_eq!(error, "\"0\" ends the names of 2 layers: encoder.layer.0.block.10, encoder.layer.1.after.30");
    }
}
