//! The task that reads one event map while a client listens. It renders a batch of events directly
//! from the ring into JSON, and passes the batch to all clients as one shared piece of memory.
//! Events that come faster than that are copied out of the ring first and rendered later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use twinprobe_ebpf_common::Context;
use twinprobe_kernel::{Affinity, EventReader, ReadingEnd, Waiter, clock};

use crate::engine::events::event_metric::EventMetric;
use crate::engine::events::intake::{Intake, IntakeTurn, SLICE};
use crate::engine::placement::{self, Namespace};

/// The number of rendered bytes that are sent without waiting for more.
const FULL: usize = 64 << 10;
/// The longest time for which less than [`FULL`] bytes are gathered while events come fast, so that
/// the events share one wake-up of the clients.
const GATHER: Duration = Duration::from_millis(20);
/// The number of events in [`GATHER`] above which events come fast. Fewer events are passed on
/// immediately, one by one.
const MANY: u32 = 50;
/// The highest rate at which a program is expected to fill a ring, in bytes per second.
const FLOOD: u32 = 1 << 30;
/// The time for which the task avoids the CPUs that handle packets, after these have delayed the
/// task.
const AWAY: Duration = Duration::from_secs(60);
/// The time without events after which the memory for copied records is released.
const KEPT: Duration = Duration::from_secs(1);
/// The interval of checks of the ring while no client has room.
const PATIENCE: Duration = Duration::from_millis(1);
/// The age after which the names of interfaces are listed again.
const CONTEXT_AGE: Duration = Duration::from_secs(5);
/// The interval of checks for CPUs that have come online: a new CPU gets its ring at the next
/// check.
const CPUS_AGE: Duration = Duration::from_secs(5);

/// Reads the source until no client listens or the source is closed.
pub async fn run(source: Arc<EventMetric>) {
    let waiter = source
        .reader
        .lock()
        .as_mut()
        .map(|reader| reader.map().and_then(|()| reader.waiter()));
    let closed = match waiter {
        Some(Ok(waiter)) => read(&source, waiter).await,
        None => true,
        Some(Err(error)) => {
            tracing::error!(metric = source.metric, %error, "the daemon can't wait for events; streams end");
            true
        }
    };
    if closed {
        source.reading_ended();
    }
}

/// Reads until the source is closed (returns true) or no client listens (returns false).
async fn read(source: &EventMetric, mut waiter: Waiter) -> bool {
    let mut context = RenderingNames::new(source).await;
    let mut intake = Intake::new(source);
    let mut sent = Instant::now();
    let mut pace = Pace::new(source.delivered.load(Ordering::Relaxed), sent);
    let pause = pause(source.room);
    let nap = (Duration::from_secs(source.room) / FLOOD / 4).min(Duration::from_millis(1));
    let mut affinity = Affinity::new();
    // The number of slices that were read since the last wait.
    let mut slices = 0;
    let mut look = Instant::now();
    let grows = source
        .reader
        .lock()
        .as_ref()
        .is_some_and(EventReader::grows);
    loop {
        if grows && Instant::now() >= look {
            follow_cpus(source, &mut waiter);
            look = Instant::now() + CPUS_AGE;
        }
        match intake.turn(source, context.fresh()) {
            IntakeTurn::Alone => return false,
            IntakeTurn::Closed => {
                intake.close(source, context.fresh());
                return true;
            }
            IntakeTurn::Later => {
                intake.output.send(source, &source.audience.lock().clients);
                tokio::select! {
                    () = source.changed.notified() => {}
                    () = tokio::time::sleep(PATIENCE) => {}
                }
            }
            IntakeTurn::Surge => {
                // A timer of the runtime takes too long. A wait for each next record would cost one
                // wake-up per few records. Each wake-up might move this task to the CPU that
                // handles the packets.
                std::thread::sleep(nap);
                tokio::task::yield_now().await;
            }
            IntakeTurn::Read(ReadingEnd::More) => {
                slices += 1;
                if intake.output.len() >= FULL {
                    intake.output.send(source, &source.audience.lock().clients);
                    sent = Instant::now();
                }
                tokio::task::yield_now().await;
            }
            IntakeTurn::Read(ReadingEnd::Drained) => {
                let now = Instant::now();
                let fast = pace.is_fast(source.delivered.load(Ordering::Relaxed), now);
                let due = sent + GATHER;
                let output = &mut intake.output;
                if !output.is_empty() && (!fast || output.len() >= FULL || now >= due) {
                    output.send(source, &source.audience.lock().clients);
                    sent = now;
                }
                if !fast {
                    intake.records.shrink();
                }
                let output = &intake.output;
                // A look at the ring at intervals is cheaper than a wake-up for each event while
                // events flow.
                let flows = fast && intake.has_read && (slices * SLICE) as u64 <= source.room / 4;
                affinity.return_after(AWAY);
                tokio::select! {
                    () = waiter.readable(), if !(flows && pause.is_some()) => {}
                    () = source.changed.notified() => {}
                    () = tokio::time::sleep_until(due), if !output.is_empty() => {}
                    () = tokio::time::sleep_until(look), if grows => {}
                    () = tokio::time::sleep(KEPT), if intake.records.is_large() => {}
                    () = tokio::time::sleep(pause.unwrap_or_default()), if flows && pause.is_some() => {}
                }
                slices = 0;
                if source.fill() >= source.room / 4 * 3 {
                    // The task was woken too late: packets have kept this CPU from it.
                    affinity.leave_packets();
                }
            }
        }
    }
}

/// The rate of the events, which decides whether they are gathered.
struct Pace {
    /// The beginning of the interval, at least [`GATHER`] long, in which events are counted.
    begin: Instant,
    /// The number of events that were read before this interval.
    before: u64,
    fast: bool,
}

impl Pace {
    const fn new(read: u64, now: Instant) -> Self {
        Self {
            begin: now,
            before: read,
            fast: false,
        }
    }

    /// Tells whether more than [`MANY`] events have come in the latest [`GATHER`]; `read` is the
    /// number of all events that were read so far.
    fn is_fast(&mut self, read: u64, now: Instant) -> bool {
        let (events, time) = (read.saturating_sub(self.before), now - self.begin);
        if time >= GATHER {
            let intervals = time.as_secs_f64() / GATHER.as_secs_f64();
            *self = Self {
                begin: now,
                before: read,
                fast: events as f64 > f64::from(MANY) * intervals,
            };
        } else if events > MANY.into() {
            self.fast = true;
        }
        self.fast
    }
}

fn follow_cpus(source: &EventMetric, waiter: &mut Waiter) {
    if let Some(Err(error)) = source
        .reader
        .lock()
        .as_mut()
        .map(|reader| reader.follow_cpus(waiter))
    {
        tracing::warn!(metric = source.metric, %error, "no ring could be opened for a CPU that came online");
    }
}

/// Returns the time in which a ring of `room` bytes can't become full; `None` if this time is below
/// a timer's resolution of 1 ms.
fn pause(room: u64) -> Option<Duration> {
    let pause = Duration::from_secs(room) / FLOOD;
    (pause >= Duration::from_millis(1)).then_some(pause.min(GATHER))
}

/// The names and the clock that renderings need, renewed now and then. Interfaces are listed only
/// for events that contain interface indices, and on another thread: a namespace that does not
/// answer does not delay the streams.
struct RenderingNames {
    namespace: Option<Namespace>,
    context: Context,
    since: Instant,
    /// The task that lists the interfaces, if it is running.
    listed: Option<JoinHandle<Option<HashMap<u32, String>>>>,
}

impl RenderingNames {
    async fn new(source: &EventMetric) -> Self {
        let mut names = Self {
            namespace: source.names_interfaces_of.clone(),
            context: Context {
                boot_time_ns: clock::monotonic_zero_ns(),
                interfaces: HashMap::new(),
                ..Context::default()
            },
            since: Instant::now(),
            listed: None,
        };
        names.list();
        if let Some(listed) = names.listed.take() {
            names.context.interfaces = listed.await.ok().flatten().unwrap_or_default();
        }
        names
    }

    fn list(&mut self) {
        if let Some(namespace) = self.namespace.clone() {
            self.listed = Some(tokio::task::spawn_blocking(move || {
                placement::names(namespace.as_deref())
            }));
        }
    }

    fn fresh(&mut self) -> &Context {
        if self.since.elapsed() > CONTEXT_AGE {
            self.context.boot_time_ns = clock::monotonic_zero_ns();
            self.since = Instant::now();
            if self.listed.is_none() {
                self.list();
            }
        }
        // A failed listing changes nothing.
        let is_listed = self.listed.as_ref().is_some_and(JoinHandle::is_finished);
        if is_listed
            && let Some(Ok(Some(listed))) =
                self.listed.take().and_then(|listed| listed.now_or_never())
        {
            self.context.interfaces = listed;
        }
        &self.context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the looks in one second, at events of this rate, at which the events came fast.
    fn fast_looks(pace: &mut Pace, read: &mut u64, now: &mut Instant, rate: u64) -> u64 {
        let before = *read;
        (1..=rate)
            .map(|event| {
                *now += Duration::from_secs(1) / rate as u32;
                *read = before + event;
                u64::from(pace.is_fast(*read, *now))
            })
            .sum()
    }

    #[test]
    fn events_are_gathered_while_they_come_fast() {
        let (mut read, mut now) = (7, Instant::now());
        let mut pace = Pace::new(read, now);
        let mut looks = |rate| fast_looks(&mut pace, &mut read, &mut now, rate);
        assert_eq!((looks(10), looks(1_000), looks(2_000)), (0, 0, 0));
        let many = looks(50_000);
        assert!(
            (49_000..=50_000).contains(&many),
            "{many}: all but the first"
        );
        let few = looks(1_000);
        assert!(few <= 45, "{few}: only until the pace was measured");
    }

    #[test]
    fn the_first_event_after_a_pause_does_not_wait() {
        let mut now = Instant::now();
        let mut pace = Pace::new(0, now);
        assert!(pace.is_fast(10_000, now), "a flood");
        now += Duration::from_secs(10);
        assert!(!pace.is_fast(10_001, now));
    }
}
