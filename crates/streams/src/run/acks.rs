//! Acknowledgements: a window of a probe is acknowledged once all receivers have it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::stopping::Stopping;
use crate::receiver::SeriesName;
use crate::sources::daemon::SourceDaemon;

/// The time in which windows are gathered for one acknowledgement, because each acknowledgement is
/// a write to the daemon's disk.
const TOGETHER: Duration = Duration::from_millis(100);

/// The progress of each receiver with the windows of one probe.
#[derive(Debug)]
pub struct AckBoard {
    /// The last window up to which the receiver has all windows, by the number of the lane.
    positions: Mutex<Vec<Option<u64>>>,
    /// The last window up to which all receivers have every window; 0 at the beginning.
    common: watch::Sender<u64>,
}

/// The windows of one probe that are being sent to one receiver, oldest first.
#[derive(Debug)]
pub struct Outstanding {
    board: Arc<AckBoard>,
    lane: usize,
    items: Mutex<VecDeque<OutstandingItem>>,
}

#[derive(Debug)]
struct OutstandingItem {
    ticket: u64,
    /// The number up to which windows may be acknowledged once this item and all items before it
    /// are stored; `None` for a gap.
    seq: Option<u64>,
    /// The end of the window.
    end: Option<Timestamp>,
    stored: bool,
}

impl AckBoard {
    /// A board for this many receivers.
    pub fn new(lanes: usize) -> Arc<Self> {
        Arc::new(Self {
            positions: Mutex::new(vec![None; lanes]),
            common: watch::Sender::new(0),
        })
    }

    /// Returns the view of one lane.
    pub fn lane(self: &Arc<Self>, lane: usize) -> Arc<Outstanding> {
        Arc::new(Outstanding {
            board: Arc::clone(self),
            lane,
            items: Mutex::default(),
        })
    }

    fn reached(&self, lane: usize, seq: u64) {
        let mut positions = self.positions.lock();
        positions[lane] = Some(seq);
        if let Some(common) = positions.iter().copied().min().flatten() {
            self.common.send_if_modified(|sent| {
                let is_new = common > *sent;
                *sent = common.max(*sent);
                is_new
            });
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.common.subscribe()
    }
}

impl Outstanding {
    /// Notes an item that is being sent. Returns the item's ticket.
    pub fn begin(&self, seq: Option<u64>, end: Option<Timestamp>) -> u64 {
        let mut items = self.items.lock();
        let ticket = items.back().map_or(0, |last| last.ticket + 1);
        items.push_back(OutstandingItem {
            ticket,
            seq,
            end,
            stored: false,
        });
        ticket
    }

    /// Notes that the receiver has stored the item with this ticket.
    pub fn stored(&self, ticket: u64) {
        let mut items = self.items.lock();
        if let Some(item) = items.iter_mut().find(|item| item.ticket == ticket) {
            item.stored = true;
        }
        let mut reached = None;
        while let Some(first) = items.pop_front_if(|first| first.stored) {
            reached = first.seq.or(reached);
        }
        drop(items);
        if let Some(seq) = reached {
            self.board.reached(self.lane, seq);
        }
    }

    /// The number of items on their way.
    pub fn len(&self) -> usize {
        self.items.lock().len()
    }

    /// Returns the end of the oldest window that is being sent.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.items.lock().iter().find_map(|item| item.end)
    }
}

/// Acknowledges windows of a series as the board advances, until the board is dropped. `collector`
/// is the collector's name in the requests, if the probe names any. Returns false if the daemon did
/// not get the last acknowledgement.
pub async fn acknowledge(
    daemon: Arc<SourceDaemon>,
    series: Arc<SeriesName>,
    collector: Option<String>,
    mut common: watch::Receiver<u64>,
    stopping: Stopping,
) -> bool {
    let mut backoff = Backoff::default();
    let mut last = 0;
    loop {
        let seq = *common.borrow_and_update();
        if seq > last {
            let client = daemon.client();
            let call =
                client.acknowledge_of(&series.probe, &series.instance, seq, collector.as_deref());
            match daemon.ask(call).await {
                Ok(()) => {
                    last = seq;
                    backoff.reset();
                    gather(&mut common).await;
                    continue;
                }
                Err(error) if error.status() == Some(404) => return true,
                Err(error) => {
                    tracing::warn!(server = daemon.name, %series, seq, %error, "a window could not be acknowledged");
                    daemon.renew();
                    // A window that is not acknowledged is sent again, and receivers recognize it.
                    if !backoff.wait(&stopping).await {
                        return false;
                    }
                    continue;
                }
            }
        }
        if common.changed().await.is_err() {
            return true;
        }
    }
}

/// Waits while further windows may share the next acknowledgement, at most until the end of all
/// feeds.
async fn gather(common: &mut watch::Receiver<u64>) {
    let _ = timeout(TOGETHER, async { while common.changed().await.is_ok() {} }).await;
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn windows_share_an_acknowledgement_until_the_feeds_end() {
        let (sender, mut common) = watch::channel(1);
        let began = Instant::now();
        sender.send_replace(2);
        gather(&mut common).await;
        assert_eq!(began.elapsed(), TOGETHER);
        sender.send_replace(3);
        drop(sender);
        gather(&mut common).await;
        assert_eq!((began.elapsed(), *common.borrow()), (TOGETHER, 3));
    }

    #[test]
    fn a_window_counts_once_all_before_it_and_all_receivers_have_it() {
        let board = AckBoard::new(2);
        let common = board.subscribe();
        let (first, second) = (board.lane(0), board.lane(1));
        let tickets = [Some(4), None, Some(7)].map(|seq| first.begin(seq, None));
        first.stored(tickets[2]);
        assert_eq!((*common.borrow(), first.len()), (0, 3));
        first.stored(tickets[0]);
        first.stored(tickets[1]);
        assert_eq!(
            (*common.borrow(), first.len()),
            (0, 0),
            "the other receiver has nothing yet"
        );
        let ticket = second.begin(Some(4), None);
        second.stored(ticket);
        assert_eq!(*common.borrow(), 4);
        let ticket = second.begin(Some(7), None);
        second.stored(ticket);
        assert_eq!(*common.borrow(), 7);
    }
}
