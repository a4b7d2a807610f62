//! Makes batches from the parcels of feeds.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::acks::Outstanding;
use super::budget::Charge;
use crate::receiver::{BatchLimits, SeriesName, StreamItem};

/// An item that is being sent to a receiver.
#[derive(Debug)]
pub struct Parcel {
    pub item: Arc<StreamItem>,
    /// The bytes that the item takes from the memory of its feed and its lane; `None` if the next
    /// item includes them.
    pub _charges: Option<[Charge; 2]>,
    pub outstanding: Arc<Outstanding>,
    pub ticket: u64,
}

/// The queue of a lane, and the first parcel of its next batch.
#[derive(Debug)]
pub struct Gatherer {
    inbox: UnboundedReceiver<Parcel>,
    limits: BatchLimits,
    /// The parcel that did not fit into the last batch.
    next: Option<Parcel>,
}

impl Gatherer {
    pub const fn new(inbox: UnboundedReceiver<Parcel>, limits: BatchLimits) -> Self {
        Self {
            inbox,
            limits,
            next: None,
        }
    }

    /// Adds parcels to `batch` until it is full, the time is over, or the next item's shape differs
    /// from its series' shape in the batch. Returns false if no parcel is left and none will come.
    pub async fn fill(&mut self, batch: &mut Vec<Parcel>) -> bool {
        let mut open = OpenBatch::default();
        batch.iter().for_each(|parcel| open.add(parcel));
        let mut until = (!batch.is_empty()).then(Instant::now);
        loop {
            let parcel = match (self.next.take(), until) {
                (Some(parcel), _) => parcel,
                (None, None) => match self.inbox.recv().await {
                    Some(parcel) => parcel,
                    None => return false,
                },
                (None, Some(until)) => tokio::select! {
                    biased;
                    parcel = self.inbox.recv() => match parcel {
                        Some(parcel) => parcel,
                        None => return true,
                    },
                    () = sleep_until(until) => return true,
                },
            };
            if !batch.is_empty() && !open.takes(&parcel, &self.limits) {
                self.next = Some(parcel);
                return true;
            }
            until.get_or_insert_with(|| Instant::now() + self.limits.linger);
            open.add(&parcel);
            batch.push(parcel);
            if open.items >= self.limits.items || open.bytes >= self.limits.bytes {
                return true;
            }
        }
    }
}

/// The content of a batch so far.
#[derive(Default)]
struct OpenBatch {
    items: usize,
    bytes: usize,
    /// The digest of the shape of each series.
    shapes: HashMap<Arc<SeriesName>, String>,
}

impl OpenBatch {
    fn takes(&self, parcel: &Parcel, limits: &BatchLimits) -> bool {
        let size = parcel.item.size();
        let fits = self.items < limits.items && self.bytes + size <= limits.bytes;
        let StreamItem::Window(window) = &*parcel.item else {
            return fits;
        };
        let known = self.shapes.get(&window.name.series);
        fits && known.is_none_or(|digest| *digest == window.shape.digest)
    }

    fn add(&mut self, parcel: &Parcel) {
        self.items += 1;
        self.bytes += parcel.item.size();
        if let StreamItem::Window(window) = &*parcel.item {
            self.shapes
                .insert(Arc::clone(&window.name.series), window.shape.digest.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use twinprobe_ebpf_common::window::shape::WindowShape;

    use super::*;
    use crate::receiver::{ItemName, StreamWindow};
    use crate::run::acks::AckBoard;

    #[tokio::test]
    async fn a_batch_ends_where_a_layout_was_replaced() {
        let (sender, inbox) = mpsc::unbounded_channel();
        let outstanding = AckBoard::new(1).lane(0);
        let windows = [
            ("p", 1, "a"),
            ("q", 1, "b"),
            ("p", 2, "a"),
            ("p", 3, "c"),
            ("q", 2, "b"),
            ("p", 4, "a"),
        ];
        for (probe, seq, digest) in windows {
            let series = SeriesName {
                node: "n".into(),
                instance: "i".into(),
                probe: probe.into(),
            };
            let name = ItemName {
                series: Arc::new(series),
                seq,
                start: "".into(),
                end: "".into(),
            };
            let shape = Arc::new(WindowShape {
                digest: digest.into(),
                ..WindowShape::default()
            });
            let window = StreamWindow {
                name,
                document: "{}".into(),
                shape,
            };
            let parcel = Parcel {
                item: Arc::new(StreamItem::Window(window)),
                _charges: None,
                outstanding: Arc::clone(&outstanding),
                ticket: 0,
            };
            sender.send(parcel).unwrap();
        }
        drop(sender);
        let (mut queue, mut batches) = (Gatherer::new(inbox, BatchLimits::default()), Vec::new());
        loop {
            let mut batch = Vec::new();
            queue.fill(&mut batch).await;
            let names = batch.iter().map(|parcel| parcel.item.name());
            let names: Vec<String> = names
                .map(|name| format!("{}{}", name.series.probe, name.seq))
                .collect();
            if names.is_empty() {
                break;
            }
            batches.push(names.join(" "));
        }
        assert_eq!(batches, ["p1 q1 p2", "p3 q2", "p4"]);
    }
}
