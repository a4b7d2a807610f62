//! The changes that a client follows: the state of each probe, each closed window, and what interfaces count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::mpsc::{self, error::SendError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout_at};
use twinprobe_client::ProbeStatus;
use twinprobe_ebpf_common::window::{Entry, Statistics};
use twinprobe_kernel::clock::{Moment, rfc3339};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::traffic::{self, Traffic};
use twinprobe_windows::Closed;

use crate::engine::engine::Engine;
use twinprobe_serve::{Principal, Role};

/// The time between two looks at the states of probes: most of what a status shows changes without anybody telling.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two counts of interfaces.
const COUNT: Duration = Duration::from_secs(2);
/// The number of messages that may wait for a client before the daemon waits for it.
const WAITING: usize = 64;
/// The number of interfaces without a probe that those are told of who may deploy one.
const OTHERS: usize = 64;

/// The first message.
#[derive(Serialize)]
struct Hello<'a> {
    node: &'a str,
    version: &'a str,
    who: String,
    role: Option<String>,
}

#[derive(Serialize)]
struct Removed<'a> {
    probe: &'a str,
}

#[derive(Serialize)]
struct Window<'a> {
    probe: &'a str,
    window: &'a Entry,
    /// `None` if the probe is gone, as after the last window of a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<Statistics>,
}

#[derive(Serialize)]
struct Missed {
    windows: u64,
}

/// The counts of interfaces so far.
#[derive(Serialize)]
struct Counts {
    time: String,
    interfaces: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<PathBuf>,
    interface: String,
    ifindex: u32,
    received: Amount,
    sent: Amount,
}

#[derive(Serialize)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Engine {
    /// Follows the changes for one client. The answer begins with the state of all probes, and ends when the daemon
    /// stops, or when the client has missed windows since it was too slow. `only` names the one probe to be told of.
    pub fn follow_changes(self: &Arc<Self>, by: &Principal, only: Option<String>) -> mpsc::Receiver<Bytes> {
        let (out, changes) = mpsc::channel(WAITING);
        let hello = message(
            "hello",
            &Hello {
                node: &self.node,
                version: env!("CARGO_PKG_VERSION"),
                who: by.who.to_string(),
                role: by.role.map(|role| role.to_string()),
            },
        );
        let teller = Teller {
            out,
            only,
            may_deploy: by.need(Role::Operator).is_ok(),
            told: BTreeMap::new(),
            closed: self.windows.closed.subscribe(),
            disturbed: self.disturbed.subscribe(),
        };
        tokio::spawn(teller.tell(Arc::clone(self), hello));
        changes
    }

    /// Counts what the interfaces that probes are attached to have received and sent.
    /// With `all`, also the other interfaces of the daemon's own namespace, up to [`OTHERS`].
    fn count(&self, all: bool) -> Vec<Counted> {
        let mut wanted: BTreeMap<Option<PathBuf>, BTreeSet<u32>> = BTreeMap::new();
        if all {
            wanted.insert(None, BTreeSet::new());
        }
        for probe in self.list() {
            let Some(namespace) = &probe.namespace else { continue };
            let attached = probe.shown.lock().interfaces().into_iter().filter_map(|at| at.ifindex).collect();
            wanted.entry(namespace.clone()).or_default().append(&mut { attached });
        }
        let mut counted = Vec::new();
        for (netns, indices) in wanted {
            let opened = netns.as_deref().map_or_else(Netns::own, Netns::open);
            // An interface that can't be counted is left out, as one that has gone.
            let present = opened.and_then(|netns| traffic::traffic(&netns)).unwrap_or_default();
            let of = |one: Traffic| Counted {
                netns: netns.clone(),
                interface: one.name,
                ifindex: one.index,
                received: Amount { packets: one.received_packets, bytes: one.received_bytes },
                sent: Amount { packets: one.sent_packets, bytes: one.sent_bytes },
            };
            let mut others = if all && netns.is_none() { OTHERS } else { 0 };
            let mut is_told = |one: &Traffic| {
                let is_other = !indices.contains(&one.index);
                let fits = !is_other || others > 0;
                others -= usize::from(is_other && fits);
                fits
            };
            counted.extend(present.into_iter().filter(|one| is_told(one)).map(of));
        }
        counted
    }
}

/// The client has gone.
struct Gone;

impl From<SendError<Bytes>> for Gone {
    fn from(_: SendError<Bytes>) -> Self {
        Self
    }
}

struct Teller {
    out: mpsc::Sender<Bytes>,
    only: Option<String>,
    /// True if the client may choose interfaces.
    may_deploy: bool,
    /// The state of each probe that the client was told of last.
    told: BTreeMap<String, Known>,
    closed: broadcast::Receiver<Arc<Closed>>,
    disturbed: watch::Receiver<bool>,
}

/// The status of a probe as the client was told it.
#[derive(PartialEq, Eq)]
struct Known {
    /// The status without the figures about windows, which come with each window.
    status: String,
    windows: Statistics,
}

impl Teller {
    async fn tell(mut self, engine: Arc<Engine>, hello: Bytes) {
        let _ = self.follow(&engine, hello).await;
    }

    async fn follow(&mut self, engine: &Arc<Engine>, hello: Bytes) -> Result<(), Gone> {
        self.out.send(hello).await?;
        self.look(engine).await?;
        self.out.send(message("listed", &serde_json::Map::new())).await?;
        let mut next_count = Instant::now();
        loop {
            if Instant::now() >= next_count {
                self.count(engine).await?;
                next_count = Instant::now() + COUNT;
            }
            if *self.disturbed.borrow_and_update() || !self.wait(engine, Instant::now() + LOOK).await? {
                return Ok(());
            }
            self.look(engine).await?;
        }
    }

    /// Tells of windows until it is time to look at the probes. Returns false if the stream has to end.
    async fn wait(&mut self, engine: &Arc<Engine>, until: Instant) -> Result<bool, Gone> {
        loop {
            let Self { out, closed, disturbed, .. } = self;
            let event = timeout_at(until, async {
                tokio::select! {
                    biased;
                    () = out.closed() => Err(Gone),
                    closed = closed.recv() => Ok(Some(closed)),
                    _ = disturbed.changed() => Ok(None),
                }
            });
            match event.await {
                Ok(Ok(Some(Ok(closed)))) => self.window(engine, &closed).await?,
                Ok(Ok(Some(Err(broadcast::error::RecvError::Lagged(windows))))) => {
                    self.out.send(message("missed", &Missed { windows })).await?;
                    return Ok(false);
                }
                Ok(Ok(Some(Err(broadcast::error::RecvError::Closed)))) => return Ok(false),
                Ok(Err(gone)) => return Err(gone),
                Ok(Ok(None)) | Err(_) => return Ok(true),
            }
        }
    }

    async fn window(&mut self, engine: &Arc<Engine>, closed: &Closed) -> Result<(), Gone> {
        if self.only.as_ref().is_some_and(|only| *only != closed.probe) {
            return Ok(());
        }
        let windows = engine.get(&closed.probe).ok().map(|probe| probe.windows.statistics());
        if let (Some(known), Some(windows)) = (self.told.get_mut(&closed.probe), windows) {
            known.windows = windows;
        }
        let told = Window { probe: &closed.probe, window: &closed.window, windows };
        Ok(self.out.send(message("window", &told)).await?)
    }

    /// Tells of the probes whose status is another than the client knows.
    async fn look(&mut self, engine: &Arc<Engine>) -> Result<(), Gone> {
        let mut probes = engine.list();
        probes.retain(|probe| self.only.as_ref().is_none_or(|only| *only == probe.name));
        let names: BTreeSet<&String> = probes.iter().map(|probe| &probe.name).collect();
        let gone: Vec<String> = self.told.keys().filter(|name| !names.contains(name)).cloned().collect();
        for probe in gone {
            self.told.remove(&probe);
            self.out.send(message("removed", &Removed { probe: &probe })).await?;
        }
        for probe in &probes {
            let status = probe.status().without_sources();
            let known = Known::of(&status);
            if self.told.get(&probe.name) != Some(&known) {
                self.told.insert(probe.name.clone(), known);
                self.out.send(message("probe", &status)).await?;
            }
        }
        Ok(())
    }

    async fn count(&mut self, engine: &Arc<Engine>) -> Result<(), Gone> {
        let (engine, all) = (Arc::clone(engine), self.may_deploy);
        // A namespace's path may keep its thread waiting.
        let counted = tokio::task::spawn_blocking(move || (engine.count(all), Moment::now()));
        let Ok((interfaces, moment)) = counted.await else { return Ok(()) };
        let counts = Counts { time: rfc3339(moment.wall), interfaces };
        Ok(self.out.send(message("traffic", &counts)).await?)
    }
}

impl Known {
    fn of(status: &ProbeStatus) -> Self {
        let mut rest = status.clone();
        let windows = std::mem::take(&mut rest.windows.statistics);
        Self { status: serde_json::to_string(&rest).unwrap_or_default(), windows }
    }
}

/// A server-sent event.
fn message(event: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\ndata: {data}\n\n").into()
}
