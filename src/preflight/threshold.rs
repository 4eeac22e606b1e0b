//! Every threshold of a preflight, once, with its reason and source.

use crate::judge::threshold::ORDINARY_GROWTH;

/// Bits of range that must be left between the largest value and the dtype's largest. Source: Goldline's
/// numerics notes, "headroom log2(max/amax), flag below 1 bit": another input of the same kind easily
/// doubles the largest value.
pub const HEADROOM_BITS: f64 = 1.0;

/// Energy that subnormals and zeros may cost, as the root of its share, in unit roundoffs. Every rounding
/// costs 0.42 u of a tensor's norm at normal magnitudes; beyond one u the small values cost more than
/// the rounding of all others.
pub const UNDERFLOW_ROUNDOFFS: f64 = 1.0;

/// A sum of n terms in a dtype with unit roundoff u stagnates from n·u = 1 on: a term of average size is
/// then half a unit in the last place of the sum or less, and is rounded away (n > 2048 in float16,
/// n > 256 in bfloat16).
pub const STAGNATION: f64 = 1.0;

/// How much more than roundings of its inputs and its result explain an error of the layer alone may be.
/// The same factor up to which the judgement calls growth through a function ordinary.
pub const GROWTH: f64 = ORDINARY_GROWTH;

/// Share of the dtype's range that scaled gradients may reach is one over this: three bits for gradients
/// that grow from step to step. Source: Goldline's numerics notes, 2^floor(log2(max/(8·amax_grad))).
pub const LOSS_SCALE_RESERVE: f64 = 8.0;
