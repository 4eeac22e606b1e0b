//! What a test asks of a report.

use goldline::report::model::{Birth, BlacklistEntry, LayerRow, Origin, Report};

/// The row of a layer.
pub(crate) fn row<'r>(report: &'r Report, layer: &str) -> &'r LayerRow {
    report.layers.iter().find(|row| row.layer == layer).unwrap_or_else(|| panic!("no row of {layer}"))
}

pub(crate) fn verdict_of<'r>(report: &'r Report, layer: &str) -> &'r str {
    &row(report, layer).verdict
}

pub(crate) fn role_of<'r>(report: &'r Report, layer: &str) -> Option<&'r str> {
    row(report, layer).role.as_deref()
}

pub(crate) fn paired_by<'r>(report: &'r Report, layer: &str) -> Option<&'r str> {
    row(report, layer).paired_by.as_deref()
}

/// Names of the origins, in their order.
pub(crate) fn origins(report: &Report) -> Vec<&str> {
    report.origins.iter().map(|origin| origin.layer.as_str()).collect()
}

/// The one origin.
pub(crate) fn origin(report: &Report) -> &Origin {
    let [origin] = report.origins.as_slice() else { panic!("expected one origin, found {:?}", report.origins) };
    origin
}

/// The birth at a layer.
pub(crate) fn birth<'r>(report: &'r Report, layer: &str) -> &'r Birth {
    let found = report.nonfinite_origins.iter().find(|birth| birth.layer == layer);
    found.unwrap_or_else(|| panic!("no birth at {layer} in {:?}", report.nonfinite_origins))
}

/// Layers where something is born, in their order.
pub(crate) fn births(report: &Report) -> Vec<&str> {
    report.nonfinite_origins.iter().map(|birth| birth.layer.as_str()).collect()
}

pub(crate) fn entry<'r>(report: &'r Report, op: &str) -> &'r BlacklistEntry {
    let found = report.blacklist.iter().find(|entry| entry.op == op);
    found.unwrap_or_else(|| panic!("{op} is not on the blacklist: {:?}", report.blacklist))
}

/// Every layer on the blacklist, in its order.
pub(crate) fn blacklisted(report: &Report) -> Vec<&str> {
    report.blacklist.iter().flat_map(|entry| entry.layers.iter().map(String::as_str)).collect()
}

pub(crate) fn remedies(report: &Report) -> Vec<&str> {
    report.remedies.iter().map(|remedy| remedy.kind.as_str()).collect()
}

pub(crate) fn first_drift(report: &Report) -> Option<&str> {
    report.first_drift.as_ref().map(|place| place.layer.as_str())
}

/// Everything that a report says, but for where the runs lay.
pub(crate) fn summary(report: &Report) -> String {
    format!(
        "{}: {}\nfirst {:?}\norigins {:#?}\nbirths {:#?}\nremedies {:#?}\nblacklist {:#?}",
        report.verdict,
        report.why,
        report.first_drift,
        report.origins,
        report.nonfinite_origins,
        report.remedies,
        report.blacklist
    )
}
