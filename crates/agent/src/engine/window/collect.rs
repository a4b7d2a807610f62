//! Windows as clients see them: closed on demand, listed, waited for, read again, acknowledged.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use twinprobe_ebpf_common::DocumentOrigin;
use twinprobe_ebpf_common::window::Listing;
use twinprobe_windows::{AckError, ClosedBy, Missing, WindowError};

use crate::engine::engine::Engine;
use crate::engine::error::{CloseError, EngineError};
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::window::delivery::Delivery;

impl Engine {
    /// Closes the open window and returns it as it is retained.
    pub async fn close(self: &Arc<Self>, name: &str) -> Result<Delivery, EngineError> {
        let delivery = self.in_turn(name, |probe| {
            let stored = probe.close_window(ClosedBy::Request)?;
            Ok(probe.deliver(&stored).map_err(CloseError::from)?)
        });
        Ok(self.readings.tracked(delivery.await?))
    }

    /// Returns the retained windows after `after`, or after the last window that `collector` has acknowledged. If there
    /// are none, waits for one for as long as `wait`.
    pub async fn windows(
        &self,
        name: &str,
        after: Option<u64>,
        collector: Option<&str>,
        wait: Duration,
    ) -> Result<Listing, EngineError> {
        let until = Instant::now() + wait;
        let mut disturbed = self.registry.disturbed.subscribe();
        loop {
            let RetainedWindows { windows, origin, .. } = self.retained(name)?;
            let mut changed = windows.changed();
            let cursor = collector.map_or(Ok(0), |collector| windows.acknowledged(collector));
            let cursor = cursor.map_err(|error| refused(name, error))?;
            let listing = windows.list(after.unwrap_or(cursor));
            if listing.windows.is_empty() {
                // No window of an expired probe will come any more.
                self.registry.get(name)?;
            }
            let stopping = *disturbed.borrow_and_update();
            if !listing.windows.is_empty() || stopping || Instant::now() >= until {
                let DocumentOrigin { node, instance, .. } = DocumentOrigin::clone(&origin);
                return Ok(Listing { node, instance, ..listing });
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
        let RetainedWindows { windows, skipped, .. } = self.retained(name)?;
        let name = name.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let stored = windows.get(seq).map_err(|missing| no_window(&name, seq, &missing))?;
            Delivery::of_window(&windows, &stored, skipped, None).map_err(|error| match error {
                WindowError::Gone => no_window(&name, seq, &Missing::Acknowledged),
                error => EngineError::Close(error.into()),
            })
        });
        Ok(self.readings.tracked(found.await??))
    }

    /// Acknowledges all windows up to `seq`, for `collector`, or for all clients. With `instance`, only if the name still
    /// belongs to that probe: a later probe's windows have the same numbers.
    pub async fn acknowledge(
        self: &Arc<Self>,
        name: &str,
        seq: u64,
        collector: Option<String>,
        instance: Option<&str>,
    ) -> Result<(), EngineError> {
        let RetainedWindows { windows, origin, .. } = self.retained(name)?;
        if let Some(instance) = instance.filter(|instance| *instance != origin.instance) {
            let message =
                format!("probe {name} is {} now, not {instance}; nothing was acknowledged", origin.instance);
            return Err(EngineError::Missing(message));
        }
        let of = name.to_owned();
        let acknowledged = tokio::task::spawn_blocking(move || {
            windows.acknowledge(seq, collector.as_deref()).map_err(|error| refused(&of, error))
        });
        acknowledged.await??;
        self.forget_acknowledged(name).await
    }
}

fn no_window(name: &str, seq: u64, missing: &Missing) -> EngineError {
    let reason = match missing {
        Missing::Never => "has not been closed",
        Missing::Acknowledged => "has been acknowledged",
        Missing::Outlived => {
            "is not retained any more: there were more, or larger ones, than retain, retain_bytes and --retain-bytes allow"
        }
        Missing::Lost => "was lost: the configuration or the daemon allows fewer windows, or it was damaged",
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
        AckError::NotWritten(kind) => EngineError::NotWritten { name: name.to_owned(), kind },
        AckError::UnknownCollector(collector) => EngineError::NoCollector(format!(
            "probe {name} has no collector {collector}; window.collectors of its configuration names them"
        )),
    }
}
