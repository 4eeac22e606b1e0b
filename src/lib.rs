//! Goldline: a golden-test harness for the numerics of neural networks.
//!
//! A *case* fixes seed, inputs and tolerances; a *golden* is the approved run of that case; a
//! *candidate* is a run on another device. Goldline compares the two layer by layer, finds the
//! first layer that drifts and the operator that introduced the error, follows each NaN/Inf to its
//! birth, and derives from that evidence the operators that must stay in fp32 under AMP.
//!
//! The modules form one pipeline, and each imports only what stands left of it:
//!
//! ```text
//! op, tensor -> run -> case -> pairing -> compare -> replay -> judge -> diagnose -> blacklist -> preflight -> golden -> bisect -> report -> pipeline -> cli
//! ```
#![forbid(unsafe_code)]

pub mod bisect;
pub mod blacklist;
pub mod case;
pub mod cli;
pub mod compare;
pub mod diagnose;
pub mod error;
pub mod execute;
pub mod golden;
pub mod judge;
pub mod op;
pub mod pairing;
pub mod pipeline;
pub mod preflight;
pub mod replay;
pub mod report;
pub mod run;
pub mod tensor;

pub use error::{Error, Result};
