//! A lane: one receiver with its queue. It sends batches, again and again until the receiver has
//! them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, TRIES};
use super::gather::{Gatherer, Parcel};
use super::stopping::Stopping;
use crate::receiver::{ItemFate, Receiver, RefusedSamples, StreamItem};
use crate::telemetry::meter::LaneMeter;

/// The time between two log lines about a receiver that continues failing.
const REMIND: Duration = Duration::from_secs(60);
/// The longest pause after an attempt in which the receiver refused only some items.
const ITEMS: Duration = Duration::from_secs(1);
/// The time that a last attempt may take when the stream stops.
const LAST: Duration = Duration::from_secs(3);

/// A receiver, and the parcels that wait for it.
pub struct ReceiverLane {
    pub receiver: Box<dyn Receiver>,
    pub queue: Gatherer,
    pub meter: Arc<LaneMeter>,
    pub stopping: Stopping,
    /// True if the stream ends after the last available window. Then an unreachable receiver also
    /// ends the stream.
    pub once: bool,
}

/// The reason why a receiver does not have everything.
enum ReceiverRefusal {
    /// The receiver may have stored any part of the batch. Its answer may say how long the stream
    /// must wait.
    Batch(String, Option<Duration>),
    /// The receiver has not stored the remaining items.
    Items(String),
}

/// The last log lines about a receiver that fails.
#[derive(Default)]
struct FailureLog {
    since: Option<Instant>,
    told: Option<Instant>,
}

impl ReceiverLane {
    /// Runs until no item can arrive any more, or the stream stops. Returns true if the receiver
    /// has stored all items.
    pub async fn run(mut self) -> bool {
        // After an error the receiver may have a part of the batch. It can recognize a repeat only
        // of the same batch.
        let (mut tries, mut again) = (0, false);
        let (mut batch, mut backoff, mut failures) =
            (Vec::new(), Backoff::default(), FailureLog::default());
        loop {
            let stopping = self.stopping.clone();
            if !again {
                tokio::select! {
                    more = self.queue.fill(&mut batch) => if !more && batch.is_empty() { return true },
                    () = stopping.stopped() => {}
                }
            }
            if self.stopping.is_stopped() {
                // A window that is not stored now is sent again at the next start.
                let _ = tokio::time::timeout(LAST, self.attempt(&mut batch)).await;
                return batch.is_empty();
            }
            let before = batch.len();
            let failure = self.attempt(&mut batch).await;
            again = matches!(failure, Some(ReceiverRefusal::Batch(..)));
            if batch.len() < before {
                backoff.reset();
                tries = 0;
            }
            match failure {
                None => failures.over(&self.meter),
                Some(refusal) => {
                    let (reason, pause) = match refusal {
                        ReceiverRefusal::Batch(reason, pause) => (reason, pause),
                        ReceiverRefusal::Items(reason) => (reason, None),
                    };
                    self.meter.failed();
                    failures.tell(&self.meter, &reason);
                    tries += 1;
                    if self.once && tries >= TRIES {
                        self.stopping.stop();
                        return false;
                    }
                    // Other series must not wait long for a series whose items can't be stored.
                    let most = if again { Duration::MAX } else { ITEMS };
                    backoff
                        .wait_between(pause.unwrap_or_default(), most, &self.stopping)
                        .await;
                }
            }
        }
    }

    /// Sends a batch once. Keeps only items that the receiver does not have, and returns the
    /// reason.
    async fn attempt(&mut self, batch: &mut Vec<Parcel>) -> Option<ReceiverRefusal> {
        if batch.is_empty() {
            return None;
        }
        let items: Vec<Arc<StreamItem>> = batch
            .iter()
            .map(|parcel| Arc::clone(&parcel.item))
            .collect();
        let receipt = match self.receiver.send(&items).await {
            Ok(receipt) => receipt.0,
            Err(error) => return Some(ReceiverRefusal::Batch(error.to_string(), error.pause())),
        };
        let (mut reason, mut left) = (None, Vec::new());
        let fates = receipt.into_iter().map(Some).chain(std::iter::repeat(None));
        for (parcel, fate) in batch.drain(..).zip(fates) {
            match fate.unwrap_or_else(|| {
                ItemFate::Pending("the receiver said nothing about it".to_owned())
            }) {
                ItemFate::Pending(failure) => {
                    reason.get_or_insert_with(|| format!("{}: {failure}", parcel.item.identity()));
                    left.push(parcel);
                }
                ItemFate::Refused(refused) => {
                    let RefusedSamples {
                        samples,
                        is_whole,
                        reason,
                    } = &refused;
                    tracing::warn!(
                        receiver = self.meter.target(),
                        window = parcel.item.identity(),
                        samples,
                        is_whole,
                        reason,
                        "the receiver refuses samples for good; they are left out"
                    );
                    self.meter.refused(&parcel.item, &refused);
                    parcel.outstanding.stored(parcel.ticket);
                }
                fate => {
                    self.meter.stored(&parcel.item, fate == ItemFate::Repeat);
                    parcel.outstanding.stored(parcel.ticket);
                }
            }
        }
        *batch = left;
        reason.map(ReceiverRefusal::Items)
    }
}

impl FailureLog {
    fn tell(&mut self, meter: &LaneMeter, reason: &str) {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if self.told.is_none_or(|told| now - told >= REMIND) {
            self.told = Some(now);
            let seconds = (now - since).as_secs();
            tracing::warn!(
                receiver = meter.target(),
                reason,
                seconds,
                "the receiver does not take windows; trying again"
            );
        }
        meter.up(false);
    }

    fn over(&mut self, meter: &LaneMeter) {
        if let Some(since) = self.since.take() {
            let seconds = since.elapsed().as_secs();
            tracing::info!(
                receiver = meter.target(),
                seconds,
                "the receiver takes windows again"
            );
            self.told = None;
        }
        meter.up(true);
    }
}
