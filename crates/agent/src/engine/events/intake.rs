//! The intake of one event source: records that were copied out of its ring, and rendered events
//! that are not sent yet.

use std::time::Duration;

use tokio::time::Instant;
use twinprobe_ebpf_common::Context;
use twinprobe_exporter::Decoder;
use twinprobe_kernel::{EventRecord, ReadingEnd, clock};

use crate::engine::events::batch::EventBatch;
use crate::engine::events::event_metric::EventMetric;
use crate::engine::events::records::Records;

/// The number of bytes of a ring that are read before other tasks of the thread run.
pub const SLICE: usize = 64 << 10;
/// The number of copied bytes that are rendered between two looks at the ring.
const PIECE: usize = 32 << 10;
/// The number of slices that are copied before other tasks of the thread run.
const SLICES: usize = 64;
/// The fill of a ring, as the part 1 / HASTE, above which records are copied before they are
/// rendered.
const HASTE: u64 = 8;
/// The free room in bytes with which the records of a large ring are rendered in place. Copying
/// costs more, and packets do not fill so much room in the time of a rendering.
const AMPLE: u64 = 8 << 20;
/// The interval at which a surge is checked. The surge is over if less than 1 / [`HASTE`] of the
/// ring was filled in this time.
const SURGE: Duration = Duration::from_millis(1);
/// The longest time of a surge.
const LONGEST: Duration = Duration::from_millis(20);

/// The result of a turn of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntakeTurn {
    Read(ReadingEnd),
    /// The ring is empty, but it was filled so fast that the next records must be copied before any
    /// of them is rendered.
    Surge,
    /// No client has room for more events, but the ring still has room.
    Later,
    /// No client is left.
    Alone,
    Closed,
}

/// The records and events of one source that were read, but not sent yet.
pub struct Intake {
    /// Records that were copied out of the ring. The records in the ring come after them.
    pub records: Records,
    pub output: EventBatch,
    /// True if the last slice held an event.
    pub has_read: bool,
    surge: Surge,
}

impl Intake {
    pub fn new(source: &EventMetric) -> Self {
        Self {
            records: Records::new(source.budget.clone()),
            output: EventBatch::default(),
            has_read: false,
            surge: Surge::new(Instant::now()),
        }
    }

    /// Reads a slice for the clients that listen now. Clients can't join during the slice, because
    /// of the lock, so that each client gets all events from its first slice on.
    pub fn turn(&mut self, source: &EventMetric, context: &Context) -> IntakeTurn {
        let mut audience = source.audience.lock();
        if audience.closed {
            return IntakeTurn::Closed;
        }
        let fresh = std::mem::take(&mut audience.fresh);
        if fresh > 0 {
            // New clients get no events that were rendered earlier.
            self.output
                .send(source, &audience.clients[..audience.clients.len() - fresh]);
        }
        audience.clients.retain(|client| !client.state.lock().gone);
        if audience.clients.is_empty() {
            audience.reading = false;
            // The next client's task begins after this: the lock keeps clients from joining
            // meanwhile.
            if let Some(reader) = source.reader.lock().as_mut() {
                reader.unmap();
            }
            return IntakeTurn::Alone;
        }
        let has_room = audience.clients.iter().any(|client| client.has_room());
        let fill = source.fill();
        // Events that wait in the ring are not lost yet. Without room for them, the daemon reads
        // them only when the ring is nearly full. Then it counts them as lost for each client,
        // which the kernel would not do.
        if !has_room && fill < source.room / 4 * 3 {
            return IntakeTurn::Later;
        }
        if has_room
            && (presses(fill, source.room) || !self.records.is_empty())
            && self.keep_up(source)
        {
            return IntakeTurn::Surge;
        }
        self.output.write_for(source, &audience.clients);
        if self.records.is_empty() {
            return IntakeTurn::Read(self.slice(source, context));
        }
        self.render(source, context, PIECE);
        IntakeTurn::Read(ReadingEnd::More)
    }

    /// Copies records out of the ring until the ring is empty or no memory is left. Returns true if
    /// rendering can wait.
    fn keep_up(&mut self, source: &EventMetric) -> bool {
        if self.records.is_empty() {
            self.surge = Surge::new(Instant::now());
        }
        let time = clock::now();
        let mut bytes = 0;
        // The limit of slices ends this loop even if programs fill the ring as fast as the daemon
        // skips records.
        for _ in 0..SLICES {
            if self.records.room() == 0 {
                break;
            }
            let records = &mut self.records;
            let progress = source.read(SLICE, |event| {
                if let EventRecord::Sample { bytes: event, .. } = event {
                    bytes += event.len();
                }
                records.push(event, time);
            });
            if progress == ReadingEnd::Drained {
                return self
                    .surge
                    .goes_on(bytes as u64, source.room, Instant::now());
            }
        }
        false
    }

    /// Renders a slice of the ring.
    fn slice(&mut self, source: &EventMetric, context: &Context) -> ReadingEnd {
        let output = &mut self.output;
        let (mut decoder, time) = (Decoder::new(context), clock::now());
        let mut has_read = false;
        let progress = source.read(SLICE.min((source.room / HASTE) as usize), |event| {
            has_read = true;
            output.write(event, time, &source.encoder, &mut decoder);
        });
        self.has_read = has_read;
        progress
    }

    /// Renders records that were copied.
    fn render(&mut self, source: &EventMetric, context: &Context, limit: usize) {
        let Self {
            records, output, ..
        } = self;
        let mut decoder = Decoder::new(context);
        records.read(limit, |event, time| {
            output.write(event, time, &source.encoder, &mut decoder);
        });
    }

    /// Passes on the events that were read, and the events in the ring, to the clients of a source
    /// that was closed.
    pub fn close(&mut self, source: &EventMetric, context: &Context) {
        let send = |output: &mut EventBatch| output.send(source, &source.audience.lock().clients);
        while !self.records.is_empty() {
            self.render(source, context, PIECE);
            send(&mut self.output);
        }
        // Events in the ring still belong to the clients. The limit of slices ends this even while
        // events come.
        let mut slices = 0;
        while slices < 1024 && self.slice(source, context) == ReadingEnd::More {
            send(&mut self.output);
            slices += 1;
        }
        send(&mut self.output);
    }
}

/// Tells whether a ring of `room` bytes may be full before its records are rendered.
const fn presses(fill: u64, room: u64) -> bool {
    let left = room - room / HASTE;
    room.saturating_sub(fill) < if left < AMPLE { left } else { AMPLE }
}

/// A time in which records come so fast that the daemon copies them before it renders any.
struct Surge {
    begin: Instant,
    /// The beginning of the interval, at least [`SURGE`] long, in which bytes are counted.
    since: Instant,
    bytes: u64,
    over: bool,
}

impl Surge {
    const fn new(now: Instant) -> Self {
        Self {
            begin: now,
            since: now,
            bytes: 0,
            over: false,
        }
    }

    /// Tells whether the surge of a ring of `room` bytes continues after this many further bytes.
    fn goes_on(&mut self, bytes: u64, room: u64, now: Instant) -> bool {
        self.bytes += bytes;
        let time = now - self.since;
        if time >= SURGE {
            let over = (self.bytes as f64)
                < (room / HASTE) as f64 * time.as_secs_f64() / SURGE.as_secs_f64();
            let begin = if self.over && !over { now } else { self.begin };
            *self = Self {
                begin,
                since: now,
                bytes: 0,
                over,
            };
        }
        !self.over && now - self.begin < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_large_ring_lie_longer() {
        let least = |room: u64| (0..=room >> 10).find(|kib| presses(kib << 10, room));
        assert_eq!(least(256 << 10), Some(33));
        assert_eq!(least(16 << 20), Some((8 << 10) + 1));
    }

    #[test]
    fn a_surge_ends_with_a_quiet_time_and_after_the_longest() {
        let room = 256 << 10;
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        let mut surge = Surge::new(begin);
        assert!(surge.goes_on(room / HASTE, room, at(0)));
        assert!(
            surge.goes_on(0, room, at(1000)),
            "the ring was filled fast in this time"
        );
        assert!(surge.goes_on(0, room, at(1999)));
        assert!(!surge.goes_on(100, room, at(2000)), "it was not");
        assert!(!surge.goes_on(room, room, at(2500)));
        assert!(surge.goes_on(room, room, at(3000)), "another one");
        let ends = (3..)
            .find(|ms| !surge.goes_on(room, room, at(ms * 1000)))
            .unwrap();
        assert_eq!(Duration::from_millis(ends - 3), LONGEST);
    }
}
