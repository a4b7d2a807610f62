//! Several windows in one answer, for a feed that lags.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use twinprobe_client::{WindowDocuments, WindowLine};
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::shape::WindowShape;

use super::feed::{FeedEnd, OVERHEAD, SeriesFeed, steps};

/// The most windows of an answer.
const WINDOWS: usize = 100;
/// The longest time that an answer waits for room.
const STALL: Duration = Duration::from_secs(1);

/// The result of a request.
enum CatchUp {
    /// The request has fetched everything that the daemon sends in one answer.
    Whole,
    /// The lane had no room for a window of this size.
    Stalled(usize),
    /// The request has fetched nothing, because the daemon does not know it.
    Nothing,
}

impl SeriesFeed {
    /// Puts windows into the lane, up to the one with the number `last`, many with each request.
    /// Returns false if that is not possible: the receiver wants another format than JSON, or the
    /// daemon is of an earlier version.
    pub async fn catch_up(&self, after: &mut Option<u64>, last: u64) -> Result<bool, FeedEnd> {
        if self.inlet.format != Format::Json {
            return Ok(false);
        }
        let (first, mut wanted) = (*after, OVERHEAD);
        while *after < Some(last) && !self.daemon.sends_single() {
            // An answer holds one of few connections, so the answer must not wait for a blocked
            // receiver.
            drop(self.charges(wanted).await);
            let before = *after;
            match self.some(after).await? {
                CatchUp::Whole if *after == before => break,
                CatchUp::Whole => wanted = OVERHEAD,
                CatchUp::Stalled(bytes) => wanted = bytes,
                CatchUp::Nothing => self.daemon.note_single(),
            }
        }
        match self.daemon.sends_single() {
            true if *after == first => Ok(false),
            // The first windows of the caller's list were already sent.
            true => Err(FeedEnd::Missed),
            false => Ok(true),
        }
    }

    /// Puts the next windows into the lane.
    async fn some(&self, after: &mut Option<u64>) -> Result<CatchUp, FeedEnd> {
        let first = after.unwrap_or_default();
        let Ok(_place) = self.daemon.requests.acquire().await else {
            return Err(FeedEnd::Gone);
        };
        let client = self.daemon.client();
        let asked = self
            .daemon
            .ask(client.documents(&self.series.probe, first, WINDOWS))
            .await;
        let mut documents = match asked {
            Err(error) if error.status() == Some(400) => return Ok(CatchUp::Nothing),
            asked => asked?,
        };
        let listing = std::mem::take(&mut documents.listing);
        if !listing.instance.is_empty() && listing.instance != self.series.instance {
            return Err(FeedEnd::Gone);
        }
        let mut shape = None;
        for step in steps(&listing, first, self.collector.is_some()) {
            let bytes = self.guess(&step);
            let Ok(charges) = timeout(STALL, self.charges(bytes)).await else {
                return Ok(CatchUp::Stalled(bytes));
            };
            let (document, shape) = self.next(&mut documents, &mut shape).await?;
            self.deliver(&step, document.into(), shape, charges);
            *after = Some(step.entry.seq);
        }
        // The connection is free for the next request once the answer has ended.
        let _ = self.daemon.ask(documents.next()).await;
        Ok(CatchUp::Whole)
    }

    /// Waits for the document of the next window.
    async fn next(
        &self,
        documents: &mut WindowDocuments,
        shape: &mut Option<Arc<WindowShape>>,
    ) -> Result<(Vec<u8>, Arc<WindowShape>), FeedEnd> {
        loop {
            match self.daemon.ask(documents.next()).await? {
                Some(WindowLine::Shape(new)) => *shape = Some(self.shapes.known(new)),
                Some(WindowLine::Document(document)) => {
                    let shape = shape.clone().ok_or(FeedEnd::Missed)?;
                    return Ok((document, shape));
                }
                Some(WindowLine::Removed) | None => return Err(FeedEnd::Missed),
            }
        }
    }
}
