//! The search for the first drifting layer with few tensor loads.
//!
//! In go two runs and the case, out comes a [`Bisection`]: where the error first stands, every tensor
//! that was read to find it and why, and what the answer does not say. Sources are checked first,
//! then the final outputs, then cut points by bisection. That predicate is not monotone: after a
//! fault only about half of the later cut points were measured to be out, and more than half of the
//! faults left the last layer looking healthy. Hence the guard, which is the invariant: a layer is
//! named only if it is out although everything that came into it was read and is in; where the block
//! that the bisection ends in holds no such layer, or nothing is out at all, every pair is read in
//! execution order up to the first such layer, and the answer says so.

mod confirm;
mod cut;
mod ledger;
mod model;
mod search;

pub use model::{BISECT_SCHEMA, Bisection, Loaded, Origin, Outcome, Purpose, Step};
pub use search::{Options, search};
