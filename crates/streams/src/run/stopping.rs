//! The signal for the end of a stream, for all of its parts.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells all parts of a stream, or some of them, to stop.
#[derive(Clone, Debug)]
pub struct Stopping {
    own: StopSignal,
    /// The signal for the whole stream, if `own` is the signal for a part of it.
    whole: Option<StopSignal>,
}

type StopSignal = Arc<watch::Sender<bool>>;

impl Default for Stopping {
    fn default() -> Self {
        Self {
            own: signal(),
            whole: None,
        }
    }
}

impl Stopping {
    /// Returns a signal for some parts of the stream. These parts also stop when the whole stream
    /// stops. They can't be divided further.
    pub fn part(&self) -> Self {
        Self {
            own: signal(),
            whole: Some(Arc::clone(&self.own)),
        }
    }

    pub fn stop(&self) {
        self.own.send_replace(true);
    }

    pub fn is_stopped(&self) -> bool {
        *self.own.borrow() || self.whole.as_ref().is_some_and(|whole| *whole.borrow())
    }

    /// Waits until [`Self::stop`] is called.
    pub async fn stopped(&self) {
        match &self.whole {
            None => told(&self.own).await,
            Some(whole) => tokio::select! {
                () = told(&self.own) => {}
                () = told(whole) => {}
            },
        }
    }
}

fn signal() -> StopSignal {
    Arc::new(watch::Sender::new(false))
}

async fn told(signal: &StopSignal) {
    // The caller holds the sender, so the channel stays open.
    let _ = signal.subscribe().wait_for(|stopped| *stopped).await;
}
