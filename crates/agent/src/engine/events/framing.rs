//! The text around each event in a stream of events.

/// The format of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One line of JSON for each event.
    Ndjson,
    /// `text/event-stream`, which browsers read.
    Sse,
}

impl Framing {
    pub const ALL: [Self; 2] = [Self::Ndjson, Self::Sse];

    /// Returns the bytes before an event.
    pub const fn begin(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::Sse => b"data: ",
        }
    }

    /// Returns the bytes before a message about lost events.
    pub const fn begin_lost(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::Sse => b"event: lost\ndata: ",
        }
    }

    /// Returns the bytes after an event or a message.
    pub const fn end(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"\n",
            Self::Sse => b"\n\n",
        }
    }
}

/// Writes `{"lost":n,"direction":"ingress","metric":"name"}`.
pub fn lost_line(framing: Framing, count: u64, labels: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(framing.begin_lost());
    out.extend_from_slice(format!("{{\"lost\":{count},{labels}}}").as_bytes());
    out.extend_from_slice(framing.end());
}
