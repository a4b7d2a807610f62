//! Rendered events that are not sent yet. There is one buffer for each framing that clients have
//! requested.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Bytes;
use jiff::Timestamp;
use twinprobe_exporter::{Decoder, EventEncoder};
use twinprobe_kernel::EventRecord;
use twinprobe_kernel::clock::rfc3339;

use crate::engine::events::client::StreamWriter;
use crate::engine::events::event_metric::EventMetric;
use crate::engine::events::framing::{Framing, lost_line};

/// The number of sent pieces that are kept. Once all clients have sent a piece, its memory is used
/// again. The latest piece comes first: it is still in the CPU's cache.
const POOL: usize = 32;
/// The largest number of bytes that a perf ring appends to an event for alignment.
const PADDING: usize = 7;

/// The events of one source that are rendered and not yet sent.
#[derive(Default)]
pub struct EventBatch {
    labels: Arc<str>,
    pieces: [Piece; 2],
    /// The number of events in each piece, including events that the kernel has lost between them.
    count: u64,
    /// The time that the prefixes of the pieces have.
    time: Option<Timestamp>,
}

#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    wanted: bool,
    /// The text `{"time":...,"direction":...,"metric":...,`, after the beginning of the framing.
    prefix: Vec<u8>,
    sent: VecDeque<Bytes>,
}

impl EventBatch {
    /// Sets the framings that are rendered from now on: the framings of clients whose queues have
    /// room. Events of other framings are only counted.
    pub fn write_for(&mut self, source: &EventMetric, clients: &[Arc<StreamWriter>]) {
        let wanted = Framing::ALL.map(|framing| {
            clients
                .iter()
                .any(|client| client.framing == framing && client.has_room())
        });
        if self
            .pieces
            .iter()
            .zip(wanted)
            .any(|(piece, wanted)| piece.wanted != wanted)
        {
            // A piece holds either all events since the last send or none, so a change of framings
            // needs a send.
            self.send(source, clients);
            self.labels = Arc::clone(&source.labels);
            self.time = None;
            for (piece, wanted) in self.pieces.iter_mut().zip(wanted) {
                piece.wanted = wanted;
            }
        }
    }

    /// Returns the size of the larger piece in bytes.
    pub fn len(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| piece.bytes.len())
            .max()
            .unwrap_or(0)
    }

    /// Tells whether no event was added since the last send.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Renders an event that was read at this time.
    pub fn write(
        &mut self,
        event: EventRecord<'_>,
        time: Timestamp,
        encoder: &EventEncoder,
        decoder: &mut Decoder<'_>,
    ) {
        let Self {
            labels,
            pieces,
            count,
            time: last,
        } = self;
        if last.replace(time) != Some(time) {
            let members = format!("{{\"time\":\"{}\",{labels},", rfc3339(time));
            for (piece, framing) in pieces.iter_mut().zip(Framing::ALL) {
                piece.prefix.clear();
                piece.prefix.extend_from_slice(framing.begin());
                piece.prefix.extend_from_slice(members.as_bytes());
            }
        }
        for (piece, framing) in pieces
            .iter_mut()
            .zip(Framing::ALL)
            .filter(|(piece, _)| piece.wanted)
        {
            match event {
                EventRecord::Sample { cpu, bytes } => {
                    piece.sample(framing, cpu, bytes, encoder, decoder);
                }
                EventRecord::Lost { count, .. } => {
                    lost_line(framing, count, labels, &mut piece.bytes);
                }
            }
        }
        *count += match event {
            EventRecord::Sample { .. } => 1,
            EventRecord::Lost { count, .. } => count,
        };
    }

    /// Passes on the gathered events to all clients.
    pub fn send(&mut self, source: &EventMetric, clients: &[Arc<StreamWriter>]) {
        if self.is_empty() {
            return;
        }
        for (piece, framing) in self.pieces.iter_mut().zip(Framing::ALL) {
            let bytes = piece.wanted.then(|| piece.take());
            for client in clients.iter().filter(|client| client.framing == framing) {
                let missed = client.push(bytes.as_ref(), self.count, &source.labels);
                source.missed.fetch_add(missed, Ordering::Relaxed);
            }
            piece.sent.extend(bytes);
        }
        self.count = 0;
    }
}

impl Piece {
    fn sample(
        &mut self,
        framing: Framing,
        cpu: Option<u32>,
        bytes: &[u8],
        encoder: &EventEncoder,
        decoder: &mut Decoder<'_>,
    ) {
        let out = &mut self.bytes;
        out.extend_from_slice(&self.prefix);
        if let Some(cpu) = cpu {
            out.extend_from_slice(b"\"cpu\":");
            out.extend_from_slice(itoa::Buffer::new().format(cpu).as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(b"\"event\":");
        let rest = encoder.value(decoder, bytes, out);
        if rest.len() > if cpu.is_some() { PADDING } else { 0 } {
            out.extend_from_slice(b",\"rest\":");
            EventEncoder::hex(decoder, rest, out);
        }
        out.push(b'}');
        out.extend_from_slice(framing.end());
    }

    /// Returns the gathered bytes. The next bytes get the memory of a piece that all clients have
    /// sent, if there is one.
    fn take(&mut self) -> Bytes {
        let unused = self.sent.iter().rposition(Bytes::is_unique);
        let mut next = unused
            .and_then(|at| self.sent.remove(at))
            .map(Vec::from)
            .unwrap_or_default();
        next.clear();
        if self.sent.len() > POOL {
            self.sent.pop_front();
        }
        Bytes::from(std::mem::replace(&mut self.bytes, next))
    }
}
