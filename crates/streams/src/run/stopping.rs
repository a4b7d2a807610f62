//! The signal for the end of a stream, for all of its parts.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells all parts of a stream to stop.
#[derive(Clone, Debug)]
pub struct Stopping(Arc<watch::Sender<bool>>);

impl Default for Stopping {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stopping {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until somebody calls [`Self::stop`].
    pub async fn stopped(&self) {
        // `self` holds the sender, so the channel stays open.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}
