//! The task that reads one event map while somebody listens: from the ring straight into JSON, a batch at a
//! time, and each batch as one piece of memory to all clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use twinprobe_exporter::Context;
use twinprobe_kernel::{EventReader, Progress, Waiter, clock};

use super::output::Output;
use super::source::Source;
use crate::engine::interfaces::{self, Namespace};

/// Bytes of a ring that are read before others get their turn.
const SLICE: usize = 64 << 10;
/// Rendered bytes that are sent without waiting for more.
const FULL: usize = 64 << 10;
/// How long fewer than that wait for company: what a client's wake-up costs is shared by all that comes
/// meanwhile. The first event after a pause does not wait.
const GATHER: Duration = Duration::from_millis(20);
/// The fastest that a program is expected to fill a ring, in bytes per second.
const FLOOD: u32 = 1 << 30;
/// How long to wait for clients that have no room, before looking at the ring again.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long names of interfaces are taken for right.
const CONTEXT_AGE: Duration = Duration::from_secs(5);
/// How long a CPU that has come online waits for its ring.
const CPUS_AGE: Duration = Duration::from_secs(5);

/// Whether there is a reason to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Read(Progress),
    /// No client has room for more, but the ring has.
    Later,
    /// No client is left.
    Alone,
    Closed,
}

pub(super) async fn run(source: Arc<Source>) {
    let waiter = source.reader().as_ref().map(EventReader::waiter);
    let closed = match waiter {
        Some(Ok(waiter)) => read(&source, waiter).await,
        None => true,
        Some(Err(error)) => {
            tracing::error!(metric = source.metric, %error, "events can't be waited for");
            true
        }
    };
    if closed {
        source.reading_ended();
    }
}

/// Reads until the source is closed (true) or nobody listens.
async fn read(source: &Source, mut waiter: Waiter) -> bool {
    let mut context = Names::new(source).await;
    let mut output = Output::new();
    let mut sent = Instant::now();
    let pause = pause(source.room());
    // Slices that were read since the last wait.
    let mut slices = 0;
    let mut look = Instant::now();
    let grows = source.reader().as_ref().is_some_and(EventReader::grows);
    loop {
        if grows && Instant::now() >= look {
            follow_cpus(source, &mut waiter);
            look = Instant::now() + CPUS_AGE;
        }
        match turn(source, context.fresh(), &mut output) {
            Turn::Alone => return false,
            Turn::Closed => {
                // What is there still belongs to the clients; what comes meanwhile is bounded by the slices.
                let mut slices = 0;
                while slices < 1024 && slice(source, context.fresh(), &mut output) == Progress::More {
                    output.send(source, &source.audience().clients);
                    slices += 1;
                }
                output.send(source, &source.audience().clients);
                return true;
            }
            Turn::Later => {
                output.send(source, &source.audience().clients);
                tokio::select! {
                    () = source.changed() => {}
                    () = tokio::time::sleep(PATIENCE) => {}
                }
            }
            Turn::Read(Progress::More) => {
                slices += 1;
                if output.len() >= FULL {
                    output.send(source, &source.audience().clients);
                    sent = Instant::now();
                }
                tokio::task::yield_now().await;
            }
            Turn::Read(Progress::Drained) => {
                let due = sent + GATHER;
                if !output.is_empty() && (output.len() >= FULL || Instant::now() >= due) {
                    output.send(source, &source.audience().clients);
                    sent = Instant::now();
                }
                // While events flow, the ring is looked at now and then instead of waking up for each of them.
                let flows = output.has_read() && (slices * SLICE) as u64 <= source.room() / 4;
                tokio::select! {
                    () = waiter.readable(), if !(flows && pause.is_some()) => {}
                    () = source.changed() => {}
                    () = tokio::time::sleep_until(due), if !output.is_empty() => {}
                    () = tokio::time::sleep_until(look), if grows => {}
                    () = tokio::time::sleep(pause.unwrap_or_default()), if flows && pause.is_some() => {}
                }
                slices = 0;
            }
        }
    }
}

fn follow_cpus(source: &Source, waiter: &mut Waiter) {
    if let Some(Err(error)) = source.reader().as_mut().map(|reader| reader.follow_cpus(waiter)) {
        tracing::warn!(metric = source.metric, %error, "no ring for a CPU that came online");
    }
}

/// How long a ring with this much room may be left alone; `None`: not for the shortest time there is.
fn pause(room: u64) -> Option<Duration> {
    let pause = Duration::from_secs(room) / FLOOD;
    (pause >= Duration::from_millis(1)).then_some(pause.min(GATHER))
}

/// Reads for those who listen now. Nobody joins meanwhile, so that each client gets all events from the
/// first slice on.
fn turn(source: &Source, context: &Context, output: &mut Output) -> Turn {
    let mut audience = source.audience();
    if audience.closed {
        return Turn::Closed;
    }
    let fresh = std::mem::take(&mut audience.fresh);
    if fresh > 0 {
        // What was read before they came is not theirs.
        output.send(source, &audience.clients[..audience.clients.len() - fresh]);
    }
    audience.clients.retain(|client| !client.is_gone());
    if audience.clients.is_empty() {
        audience.reading = false;
        return Turn::Alone;
    }
    // What waits in the ring is lost to nobody yet. Only when that is about to run full is it taken out, to be
    // counted for each client: the kernel would not count it.
    if !audience.clients.iter().any(|client| client.has_room()) && source.fill() < source.room() / 4 * 3 {
        return Turn::Later;
    }
    output.write_for(source, &audience.clients);
    Turn::Read(slice(source, context, output))
}

fn slice(source: &Source, context: &Context, output: &mut Output) -> Progress {
    let mut reader = source.reader();
    let Some(reader) = reader.as_mut() else { return Progress::Drained };
    let (progress, events) = output.read(reader, SLICE, &source.encoder, context, &clock::now());
    source.delivered.fetch_add(events, Ordering::Relaxed);
    progress
}

/// The names and the clock that renderings need, renewed now and then. Interfaces are listed only for events that
/// contain interface indices, and on another thread: a namespace that does not answer delays no stream.
struct Names {
    namespace: Option<Namespace>,
    context: Context,
    since: Instant,
    /// The task that lists the interfaces, while one runs.
    listed: Option<JoinHandle<Option<HashMap<u32, String>>>>,
}

impl Names {
    async fn new(source: &Source) -> Self {
        let mut names = Self {
            namespace: source.names_interfaces_of.clone(),
            context: Context { boot_time_ns: clock::monotonic_zero_ns(), interfaces: HashMap::new() },
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
            self.listed = Some(tokio::task::spawn_blocking(move || interfaces::names(namespace.as_deref())));
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
            && let Some(Ok(Some(listed))) = self.listed.take().and_then(|listed| listed.now_or_never())
        {
            self.context.interfaces = listed;
        }
        &self.context
    }
}
