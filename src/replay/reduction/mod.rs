//! Reductions over axes, scans along one, and orderings.
//!
//! In goes a recorded call; out come references for its outputs. Invariant: a sum is held against
//! what was summed (Σ|x|, with Σx² for the error model), values that were only picked must be
//! bit-equal, and indices, truth values and integers are discrete.

mod axes;
mod extremum;
mod logic;
mod order;
mod scan;
mod total;
mod variance;
mod vector_norm;

pub(super) use axes::reduced_axes;

use super::Replay;

/// The replay of a reduction, a scan or an ordering.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "sum" => total::sum_over,
        "mean" => total::mean,
        "prod" => total::prod,
        "var" | "std" | "var_mean" | "std_mean" => variance::variance,
        "amax" | "amin" => extremum::extreme,
        "max" | "min" => extremum::maximum,
        "argmax" | "argmin" => extremum::index_of,
        "aminmax" => extremum::both,
        "norm" | "linalg_vector_norm" | "frobenius_norm" => vector_norm::vector_norm,
        "cumsum" => scan::cumsum,
        "cumprod" => scan::cumprod,
        "logcumsumexp" => scan::logcumsumexp,
        "cummax" | "cummin" => scan::running_extreme,
        "any" | "all" => logic::truth,
        "count_nonzero" => logic::count_nonzero,
        "topk" => order::topk,
        "sort" | "argsort" | "msort" => order::sort,
        _ => return None,
    })
}
