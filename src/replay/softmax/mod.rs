//! Softmax, its logarithm and their gradients, and the losses.
//!
//! In goes a recorded call; out come references for its outputs. Invariant: a result is held against
//! the magnitudes that cancel in it (softmax y·(1+|x-max|), log_softmax |x|+|logsumexp|, a loss the
//! terms it sums), and labels outside the classes make a call unmodelled, never a wrong read.

mod backward;
mod cross_entropy;
mod loss;
mod nll;
mod probabilities;
mod reduce;

use super::Replay;

/// ULP that a healthy softmax or log-softmax may be off by against its scale: the exponential, the
/// sum, the division or logarithm and the last rounding (nine clean fp32 softmaxes reached 2.6).
const SOFTMAX_ULP: f64 = 4.0;

/// ULP of a term of a loss: two functions or products at most, and the additions between them.
const LOSS_ULP: f64 = 4.0;

/// The replay of a member of the softmax family or of a loss.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "softmax" | "_softmax" | "softmin" => probabilities::softmax,
        "log_softmax" | "_log_softmax" => probabilities::log_softmax,
        "logsumexp" => probabilities::logsumexp,
        "_softmax_backward_data" | "softmax_backward" => backward::softmax_backward,
        "_log_softmax_backward_data" | "log_softmax_backward" => backward::log_softmax_backward,
        "cross_entropy" | "cross_entropy_loss" => cross_entropy::cross_entropy,
        "nll_loss" | "nll_loss_forward" | "nll_loss2d" | "nll_loss2d_forward" | "nll_loss_nd" => nll::nll_loss,
        "mse_loss" => loss::mse_loss,
        "l1_loss" => loss::l1_loss,
        "smooth_l1_loss" => loss::smooth_l1_loss,
        "huber_loss" => loss::huber_loss,
        "binary_cross_entropy" => loss::binary_cross_entropy,
        "binary_cross_entropy_with_logits" => loss::binary_cross_entropy_with_logits,
        "kl_div" => loss::kl_div,
        _ => return None,
    })
}
