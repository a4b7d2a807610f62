//! The operations of clients on windows: closing on demand, listing, waiting, reading again, and
//! acknowledging.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use twinprobe_ebpf_common::DocumentOrigin;
use twinprobe_ebpf_common::window::{Listing, WindowEntry};
use twinprobe_exporter::Metric;
use twinprobe_windows::{AckError, ClosedBy, ListBounds, Missing, WindowError, WindowStore};

use crate::engine::engine::Engine;
use crate::engine::error::{CloseError, EngineError};
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::window::delivery::Delivery;

impl Engine {
    /// Closes the open window, and returns it in its retained form.
    pub async fn close(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        let delivery = self.in_turn(name, |probe| {
            let stored = probe.close_window(ClosedBy::Request)?;
            Ok(probe.deliver(&stored).map_err(CloseError::from)?)
        });
        Ok(self.readings.tracked(delivery.await?))
    }

    /// Returns the retained windows after `after`, or after the last window that `collector` has
    /// acknowledged, and the means to read them. If there are no such windows, waits for one at
    /// most for `wait`.
    pub async fn windows(
        &self,
        name: &str,
        after: Option<u64>,
        collector: Option<&str>,
        wait: Duration,
        bounds: ListBounds,
    ) -> Result<(Listing, WindowRun), EngineError> {
        let until = Instant::now() + wait;
        let mut disturbed = self.registry.disturbed.subscribe();
        loop {
            let retained = self.retained(name)?;
            let RetainedWindows {
                windows, origin, ..
            } = &retained;
            let mut changed = windows.changed();
            let cursor = collector.map_or(Ok(0), |collector| windows.acknowledged(collector));
            let cursor = cursor.map_err(|error| refused(name, error))?;
            let listing = windows.list(after.unwrap_or(cursor), bounds);
            if listing.windows.is_empty() {
                // No window of an expired probe will come any more.
                self.registry.get(name)?;
            }
            let stopping = *disturbed.borrow_and_update();
            if !listing.windows.is_empty() || stopping || Instant::now() >= until {
                let DocumentOrigin { node, instance, .. } = DocumentOrigin::clone(origin);
                let listing = Listing {
                    node,
                    instance,
                    ..listing
                };
                let store = Arc::clone(&self.readings.windows);
                let run = WindowRun::new(retained, store, &listing.windows);
                return Ok((listing, run));
            }
            let change = async {
                tokio::select! {
                    _ = changed.changed() => {}
                    _ = disturbed.changed() => {}
                }
            };
            // The loop finds out whether a window was closed or the time is over.
            let _ = timeout_at(until, change).await;
        }
    }

    /// Returns one retained window.
    pub async fn window(&self, name: &str, seq: u64) -> Result<Delivery, EngineError> {
        let RetainedWindows {
            windows, skipped, ..
        } = self.retained(name)?;
        let name = name.to_owned();
        let found = spawn_blocking(move || {
            let stored = windows
                .get(seq)
                .map_err(|missing| no_window(&name, seq, &missing))?;
            Delivery::of_window(&windows, &stored, skipped, None).map_err(|error| match error {
                WindowError::Gone => no_window(&name, seq, &Missing::Acknowledged),
                error => EngineError::Close(error.into()),
            })
        });
        Ok(self.readings.tracked(found.await??))
    }

    /// Acknowledges all windows up to `seq`, for `collector`, or for all clients. With `instance`,
    /// only if the name still belongs to that instance: a later probe's windows have the same
    /// numbers.
    pub async fn acknowledge(
        self: &Arc<Self>,
        name: &str,
        seq: u64,
        collector: Option<String>,
        instance: Option<&str>,
    ) -> Result<(), EngineError> {
        let RetainedWindows {
            windows, origin, ..
        } = self.retained(name)?;
        if let Some(instance) = instance.filter(|instance| *instance != origin.instance) {
            let message = format!(
                "probe {name} is {} now, not {instance}; nothing was acknowledged",
                origin.instance
            );
            return Err(EngineError::Missing(message));
        }
        let of = name.to_owned();
        let acknowledged = spawn_blocking(move || {
            windows
                .acknowledge(seq, collector.as_deref())
                .map_err(|error| refused(&of, error))
        });
        acknowledged.await??;
        self.forget_acknowledged(name).await
    }
}

/// The bounds for the windows that a run opens at once: small windows share one call of a thread
/// that may wait for the disk.
const AT_ONCE: ListBounds = ListBounds {
    windows: 32,
    bytes: 256 << 10,
};

/// The number of a window, with the window if it still exists.
type OpenedWindow = (u64, Result<Option<Delivery>, CloseError>);

/// Listed windows that a client receives one after the other. Only a few of them are open at a
/// time.
#[derive(Debug)]
pub struct WindowRun {
    of: RetainedWindows,
    store: Arc<WindowStore>,
    /// The numbers and sizes of the windows that are not opened yet.
    left: VecDeque<(u64, u64)>,
    open: VecDeque<OpenedWindow>,
    /// The metrics of the last window.
    metrics: Vec<Arc<Metric>>,
}

/// The next window of a run.
#[derive(Debug)]
pub struct RunWindow {
    pub seq: u64,
    /// The delivery of the window; `None` if the window was removed after it was listed.
    pub delivery: Option<Delivery>,
    /// True if the window has the same metrics as the previous window of the run.
    pub is_alike: bool,
}

impl WindowRun {
    fn new(of: RetainedWindows, store: Arc<WindowStore>, listed: &[WindowEntry]) -> Self {
        let left = listed
            .iter()
            .map(|entry| (entry.seq, entry.bytes))
            .collect();
        Self {
            of,
            store,
            left,
            open: VecDeque::new(),
            metrics: Vec::new(),
        }
    }

    /// Opens the next window; `None` after the last one. An error means that an existing window
    /// can't be read.
    pub async fn next(&mut self) -> Result<Option<RunWindow>, EngineError> {
        if self.open.is_empty() {
            self.open_some().await?;
        }
        let Some((seq, found)) = self.open.pop_front() else {
            return Ok(None);
        };
        let mut delivery = found.map_err(EngineError::Close)?;
        let is_alike = delivery
            .as_mut()
            .is_some_and(|delivery| delivery.share(&mut self.metrics));
        Ok(Some(RunWindow {
            seq,
            delivery,
            is_alike,
        }))
    }

    /// Marks the window as taken. Call this once the client has received everything.
    pub fn taken(&self, seq: u64) {
        self.of.windows.set_taken(seq);
    }

    async fn open_some(&mut self) -> Result<(), EngineError> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some((seq, size)) = self.left.pop_front_if(|(_, size)| {
            some.is_empty() || some.len() < AT_ONCE.windows && bytes + *size <= AT_ONCE.bytes
        }) {
            some.push(seq);
            bytes += size;
        }
        let of = self.of.clone();
        self.open = spawn_blocking(move || of.open(&some)).await?;
        let deliveries = self
            .open
            .iter()
            .filter_map(|(_, found)| found.as_ref().ok()?.as_ref());
        deliveries
            .filter_map(Delivery::stored)
            .for_each(|window| self.store.readers.add(window));
        Ok(())
    }
}

impl RetainedWindows {
    /// Opens windows; `None` for windows that no longer exist.
    fn open(&self, some: &[u64]) -> VecDeque<OpenedWindow> {
        let there: Vec<_> = some
            .iter()
            .filter_map(|&seq| self.windows.get(seq).ok())
            .collect();
        let seqs = there.iter().map(|stored| stored.seq());
        let mut opened: BTreeMap<u64, _> = seqs.zip(self.windows.open_all(&there)).collect();
        let delivery = |seq| match opened.remove(&seq) {
            Some(Ok(reader)) => {
                let (windows, skipped) = (&self.windows, Arc::clone(&self.skipped));
                Ok(Some(Delivery::of_reader(
                    windows,
                    &Arc::new(reader),
                    skipped,
                )))
            }
            // A damaged window was set aside.
            None | Some(Err(WindowError::Gone | WindowError::Damaged(_))) => Ok(None),
            Some(Err(error)) => Err(error.into()),
        };
        some.iter()
            .copied()
            .zip(some.iter().copied().map(delivery))
            .collect()
    }
}

fn no_window(name: &str, seq: u64, missing: &Missing) -> EngineError {
    let reason = match missing {
        Missing::Never => "has not been closed",
        Missing::Acknowledged => "has been acknowledged",
        Missing::Outlived => {
            "is not retained any more: windows were more or larger than retain, retain_bytes and --retain-bytes allow"
        }
        Missing::Lost => {
            "was lost: the configuration or the daemon allows fewer windows, or it was damaged"
        }
    };
    EngineError::Missing(format!(
        "window {seq} of probe {name} {reason}; GET /v1/probes/{name}/windows lists them"
    ))
}

fn refused(name: &str, error: AckError) -> EngineError {
    match error {
        AckError::Beyond { newest } => EngineError::Missing(format!(
            "probe {name} has closed windows up to {newest} only; nothing was acknowledged; GET \
             /v1/probes/{name}/windows lists them"
        )),
        AckError::NotWritten(kind) => EngineError::NotWritten {
            name: name.to_owned(),
            kind,
        },
        AckError::UnknownCollector(collector) => EngineError::NoCollector(format!(
            "probe {name} has no collector {collector}; window.collectors of its configuration names them"
        )),
    }
}
