//! Functions applied element by element.
//!
//! In goes a call whose operands broadcast against one another; out comes one reference in their
//! joint shape. Results follow IEEE 754 on NaN and infinities. A scalar attribute takes the place of
//! a tensor that was not recorded under its name, rounded as kernels round it.

mod activation;
mod apply;
mod arithmetic;
mod backward;
mod budget;
mod curve;
mod dropout;
mod fused;
mod gradients;
mod logic;
#[cfg(test)]
mod tests;

pub(super) use apply::{Argument, apply, argument, broadcast_shape, evaluate};

use super::Replay;

pub(super) fn family(function: &str) -> Option<Replay> {
    let families = [
        curve::family,
        activation::family,
        arithmetic::family,
        fused::family,
        logic::family,
        backward::family,
        gradients::family,
        dropout::family,
    ];
    families.iter().find_map(|family| family(function))
}
