//! Progress on stderr, on a terminal alone.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over the tensor pairs of one comparison.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// `what` stands before the bar.
    pub(super) fn new(what: &str) -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} tensors, {eta} left") {
            bar.set_style(style);
        }
        bar.set_prefix(crate::error::escape(what));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Shows `done` of `all`.
    pub(super) fn show(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
