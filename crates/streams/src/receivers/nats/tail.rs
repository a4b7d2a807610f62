//! The last message of a subject, and the windows that the subject contains.

use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;

use crate::receiver::StreamItem;

/// The names of the headers that identify the window of a message.
pub const INSTANCE: &str = "Twinprobe-Instance";
pub const LAST: &str = "Twinprobe-Seq";
const SHAPE: &str = "Twinprobe-Shape";

/// The last message of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The number of the message in the stream; 0 if there is no message.
    pub sequence: u64,
    pub instance: String,
    /// The number of the window up to which the subject contains all windows of the instance.
    pub last: u64,
}

impl Tail {
    /// Tells whether the subject contains the item, and therefore all items before it.
    pub fn has(&self, item: &StreamItem) -> bool {
        self.sequence > 0 && self.instance == item.name().series.instance && last(item) <= self.last
    }

    /// Returns the item without the windows that the subject contains.
    pub fn rest_of(&self, item: &Arc<StreamItem>) -> Arc<StreamItem> {
        match &**item {
            StreamItem::Gap(gap) if self.instance == gap.name.series.instance => gap
                .after(self.last)
                .map_or_else(|| Arc::clone(item), |rest| Arc::new(StreamItem::Gap(rest))),
            _ => Arc::clone(item),
        }
    }

    pub fn after(item: &StreamItem, sequence: u64) -> Self {
        Self {
            sequence,
            instance: item.name().series.instance.clone(),
            last: last(item),
        }
    }
}

/// The last window that an item is about.
const fn last(item: &StreamItem) -> u64 {
    match item {
        StreamItem::Window(window) => window.name.seq,
        StreamItem::Gap(gap) => gap.last,
    }
}

/// Returns the headers and the content of an item's message.
pub fn message(item: &StreamItem) -> (HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    headers.insert(INSTANCE, item.name().series.instance.as_str());
    headers.insert(LAST, last(item).to_string());
    match item {
        StreamItem::Window(window) => {
            headers.insert(SHAPE, window.shape.digest.as_str());
            (headers, window.document.clone())
        }
        StreamItem::Gap(gap) => (headers, gap.record().to_string().into()),
    }
}
