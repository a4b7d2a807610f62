//! The interface of a receiver of windows: takes a batch, and returns the items that are stored for
//! good.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::shape::WindowShape;

/// A connection to a system that keeps windows.
///
/// A stream calls [`Receiver::send`] with one batch at a time. After an error, and for items that
/// are [`ItemFate::Pending`], it waits and sends them again, until the receiver has them. Each
/// start of a stream begins with a new receiver.
pub trait Receiver: Send {
    /// The batches that the receiver wants.
    fn limits(&self) -> BatchLimits {
        BatchLimits::default()
    }

    /// The format of the documents that the receiver wants.
    fn format(&self) -> Format {
        Format::Json
    }

    /// Sends the items and waits until the system has stored them for good. Returns the fate of
    /// each. An error is about all of them: the receiver may have some. So the receiver must
    /// recognize repeats by their identity, or else document that it can't.
    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>>;

    /// Returns one line that describes the item and the place where the receiver stores it.
    /// Contacts no server.
    fn preview(&self, item: &ItemName) -> String;

    /// Returns the beginning of a window's content as the receiver gets it, for people: at most
    /// `most` lines. Contacts nothing. By default the receiver gets the document.
    fn content(&self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        Ok(vec![String::from_utf8_lossy(&window.document).into_owned()]
            .into_iter()
            .take(most)
            .collect())
    }
}

/// The size of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most items.
    pub items: usize,
    /// The most bytes of documents; a larger document is a batch of its own.
    pub bytes: usize,
    /// The time that a batch waits for more items after its first one.
    pub linger: Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            items: 256,
            bytes: 4 << 20,
            linger: Duration::from_millis(50),
        }
    }
}

/// The contents of a batch. Items of one series are in the order of their numbers, and all items of
/// one series in a batch have the same shape.
#[derive(Clone, Debug)]
pub enum StreamItem {
    Window(StreamWindow),
    Gap(StreamGap),
}

/// A window as its daemon has it.
#[derive(Clone, Debug)]
pub struct StreamWindow {
    pub name: ItemName,
    /// The document in the receiver's format. Its bytes are the same each time.
    pub document: Bytes,
    /// The meaning of the document's keys and values.
    pub shape: Arc<WindowShape>,
}

/// A gap: windows that their daemon has removed before this receiver got them.
#[derive(Clone, Debug)]
pub struct StreamGap {
    /// The series that has the gap, and the number of the first window in the gap.
    pub name: ItemName,
    /// The number of the last window.
    pub last: u64,
    /// The number of windows in the gap.
    pub windows: u64,
}

/// The identity of a window, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemName {
    pub series: Arc<SeriesName>,
    pub seq: u64,
    /// The start of the window, RFC 3339; empty for a gap.
    pub start: Arc<str>,
    /// The end of the window, RFC 3339; empty for a gap.
    pub end: Arc<str>,
}

/// The windows of one probe of one node, from the probe's creation to its removal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesName {
    pub node: String,
    pub instance: String,
    pub probe: String,
}

/// The fate of each item of a batch, in the order of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt(pub Vec<ItemFate>);

/// The answer of a receiver about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemFate {
    /// The receiver has stored the item for good.
    Stored,
    /// The receiver already had the item.
    Repeat,
    /// The receiver has not stored the item, for this reason. The stream sends the item again
    /// later, and continues with items of other series.
    Pending(String),
    /// The receiver refuses samples of the window for good. The stream reports this and continues.
    Refused(RefusedSamples),
}

/// An item that a receiver refuses at each attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSamples {
    /// The number of samples that are missing at the receiver.
    pub samples: u64,
    /// True if the receiver has stored nothing of the window.
    pub is_whole: bool,
    /// The receiver's words.
    pub reason: String,
}

/// The reason why a batch was not sent. Logs show it, so it must not contain secrets.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    message: String,
    /// The time for which the receiver wants no message.
    pause: Option<Duration>,
}

impl SendError {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            pause: None,
        }
    }

    /// Adds the pause that the receiver asks for.
    pub fn after(self, pause: Option<Duration>) -> Self {
        Self { pause, ..self }
    }

    pub const fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// Makes an error from a library's error, with all its causes.
    pub fn caused(what: &str, error: &dyn std::error::Error) -> Self {
        let (mut message, mut cause) = (format!("{what}: {error}"), error.source());
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self {
            message,
            pause: None,
        }
    }
}

impl Receipt {
    /// Returns the receipt of a batch whose items all have this fate.
    pub fn all(batch: &[Arc<StreamItem>], fate: &ItemFate) -> Self {
        Self(vec![fate.clone(); batch.len()])
    }
}

impl StreamItem {
    pub const fn name(&self) -> &ItemName {
        match self {
            Self::Window(window) => &window.name,
            Self::Gap(gap) => &gap.name,
        }
    }

    /// The bytes that the item takes.
    pub fn size(&self) -> usize {
        match self {
            Self::Window(window) => window.document.len(),
            Self::Gap(_) => 128,
        }
    }

    /// The identity of this item: `node/instance/probe/seq`, of a gap with `gap/first-last` in
    /// place of `seq`.
    pub fn identity(&self) -> String {
        match self {
            Self::Window(window) => window.name.to_string(),
            Self::Gap(StreamGap { name, last, .. }) => {
                format!("{}/gap/{}-{last}", name.series, name.seq)
            }
        }
    }
}

impl StreamWindow {
    /// Parses the document.
    pub fn parsed(&self) -> Result<Value, SendError> {
        serde_json::from_slice(&self.document).map_err(|error| self.malformed(&error))
    }

    /// Returns the error for a document that can't be read.
    pub fn malformed(&self, error: &serde_json::Error) -> SendError {
        SendError::caused(&format!("window {} is not JSON", self.name), error)
    }
}

impl StreamGap {
    /// Returns the part of the gap that is new to a receiver; `None` if there is none. The receiver
    /// has all windows up to `known`, or knows their loss. The first windows of a gap may be among
    /// them: daemons can lose windows that the receiver has stored.
    pub fn after(&self, known: u64) -> Option<Self> {
        let mut rest = self.clone();
        if self.name.seq <= known {
            rest.windows = rest.windows.min(self.last.saturating_sub(known));
            rest.name.seq = known + 1;
        }
        (known < self.last).then_some(rest)
    }

    /// Returns the gap as a record in JSON, for receivers that store documents.
    pub fn record(&self) -> Value {
        let SeriesName {
            node,
            instance,
            probe,
        } = &*self.name.series;
        serde_json::json!({
            "probe": probe, "node": node, "instance": instance,
            "gap": { "first": self.name.seq, "last": self.last, "windows": self.windows },
        })
    }
}

impl fmt::Display for SeriesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.node, self.instance, self.probe)
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.series, self.seq)
    }
}
