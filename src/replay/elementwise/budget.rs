//! Error budgets of functions, in ULP of the compute dtype against the reference's scale.
//!
//! Source: maximum errors that vendors document for their fp32 math libraries (1 to 4 ULP for the
//! functions here), doubled where a composed formula is common, and the measured budgets of the
//! numerics notes (gelu about 6).

/// exp, tanh, sigmoid, log and functions of about their cost.
pub(super) const TRANSCENDENTAL: f64 = 4.0;
/// sqrt, rsqrt, reciprocal: a hardware approximation with one refining step.
pub(super) const ROOT: f64 = 2.0;
/// gelu: an error function or tanh of a rounded argument, times x.
pub(super) const GELU: f64 = 6.0;
/// Piecewise linear functions and fused arithmetic: a few roundings and no approximation.
pub(super) const FEW_ROUNDINGS: f64 = 2.0;
