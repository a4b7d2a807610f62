//! Events as they are sent, gathered into one piece of memory per framing that somebody wants.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Bytes;
use jiff::Timestamp;
use twinprobe_exporter::{Context, Decoder, EventEncoder};
use twinprobe_kernel::{Event, EventReader, Progress};

use super::client::{Client, Framing, lost_line};
use super::source::Source;
use crate::engine::reading::timestamp;

/// Pieces whose memory is used again once all clients have sent them, the latest first: it is in the cache.
const POOL: usize = 32;
/// A perf ring pads events by at most this.
const PADDING: usize = 7;

pub(super) struct Output {
    labels: Arc<str>,
    pieces: [Piece; 2],
    /// Events in each piece, and those the kernel lost in between.
    count: u64,
    /// Whether the last slice held any event.
    has_read: bool,
}

#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    wanted: bool,
    /// `{"time":...,"direction":...,"metric":...,` of this slice, with what the framing puts before it.
    prefix: Vec<u8>,
    sent: VecDeque<Bytes>,
}

impl Output {
    pub fn new() -> Self {
        Self { labels: "".into(), pieces: Default::default(), count: 0, has_read: false }
    }

    /// From now on renders what these clients want and have room for; what nobody has room for is only
    /// counted.
    pub fn write_for(&mut self, source: &Source, clients: &[Arc<Client>]) {
        let wanted = Framing::ALL
            .map(|framing| clients.iter().any(|client| client.framing() == framing && client.has_room()));
        if self.pieces.iter().zip(wanted).any(|(piece, wanted)| piece.wanted != wanted) {
            // A piece holds all events since the last one was sent, or none.
            self.send(source, clients);
            self.labels = Arc::clone(&source.labels);
            for (piece, wanted) in self.pieces.iter_mut().zip(wanted) {
                piece.wanted = wanted;
            }
        }
    }

    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).max().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn has_read(&self) -> bool {
        self.has_read
    }

    /// Renders a slice of the ring; returns the number of events too.
    pub fn read(
        &mut self,
        reader: &mut EventReader,
        limit: usize,
        encoder: &EventEncoder,
        context: &Context,
        now: &Timestamp,
    ) -> (Progress, u64) {
        let mut decoder = Decoder::new(context);
        let mut events = 0;
        let Self { labels, pieces, count, has_read } = self;
        let mut begun = false;
        let progress = reader.read(limit, |event| {
            if !std::mem::replace(&mut begun, true) {
                let members = format!("{{\"time\":\"{}\",{labels},", timestamp(*now));
                for (piece, framing) in pieces.iter_mut().zip(Framing::ALL) {
                    piece.prefix.clear();
                    piece.prefix.extend_from_slice(framing.begin());
                    piece.prefix.extend_from_slice(members.as_bytes());
                }
            }
            for (piece, framing) in pieces.iter_mut().zip(Framing::ALL).filter(|(piece, _)| piece.wanted) {
                match event {
                    Event::Sample { cpu, bytes } => piece.sample(framing, cpu, bytes, encoder, &mut decoder),
                    Event::Lost { count, .. } => lost_line(framing, count, labels, &mut piece.bytes),
                }
            }
            match event {
                Event::Sample { .. } => {
                    events += 1;
                    *count += 1;
                }
                Event::Lost { count: lost, .. } => *count += lost,
            }
        });
        *has_read = begun;
        (progress, events)
    }

    /// Hands what was gathered to all clients.
    pub fn send(&mut self, source: &Source, clients: &[Arc<Client>]) {
        if self.is_empty() {
            return;
        }
        for (piece, framing) in self.pieces.iter_mut().zip(Framing::ALL) {
            let bytes = piece.wanted.then(|| piece.take());
            for client in clients.iter().filter(|client| client.framing() == framing) {
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

    /// What was gathered. In its place comes memory of a piece that all clients are done with, if there is one.
    fn take(&mut self) -> Bytes {
        let unused = self.sent.iter().rposition(Bytes::is_unique);
        let mut next = unused.and_then(|at| self.sent.remove(at)).map(Vec::from).unwrap_or_default();
        next.clear();
        if self.sent.len() > POOL {
            self.sent.pop_front();
        }
        Bytes::from(std::mem::replace(&mut self.bytes, next))
    }
}
