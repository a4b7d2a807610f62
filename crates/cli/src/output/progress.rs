//! Progress of long work, on a terminal only: pipes and logs get nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time after which work counts as long.
const LONG: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(100);

/// A line on stderr that disappears when the work is done.
#[derive(Debug)]
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Work of `steps` parts.
    pub fn steps(steps: usize) -> Self {
        // A single step has no parts to show.
        let template = "{spinner} {msg} {pos}/{len} {wide_bar} {elapsed}";
        Self::new(
            Some(steps as u64),
            if steps > 1 {
                template
            } else {
                "{spinner} {msg} {elapsed}"
            },
        )
    }

    /// An upload of `bytes`; `sent` counts the bytes that are under way.
    pub fn upload(bytes: u64, sent: Arc<AtomicU64>) -> Self {
        let template = "{spinner} {msg} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}";
        let progress = Self::new(Some(bytes), template);
        let bar = progress.0.downgrade();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) else {
                    return;
                };
                bar.set_position(sent.load(Ordering::Relaxed));
            }
        });
        progress
    }

    fn new(length: Option<u64>, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let bar =
            ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden()).with_style(style);
        let shown = bar.downgrade();
        // Work that ends immediately is not worth a line.
        tokio::spawn(async move {
            tokio::time::sleep(LONG).await;
            if let Some(bar) = shown.upgrade().filter(|bar| !bar.is_finished()) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(TICK);
            }
        });
        Self(bar)
    }

    /// Names the current step.
    pub fn at(&self, what: String) {
        self.0.set_message(what);
    }

    /// Counts a part as done.
    pub fn done(&self) {
        self.0.inc(1);
    }

    /// Prints something while the line is hidden.
    pub fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
