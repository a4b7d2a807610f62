//! A running probe. It is read by Algorithm 2 of the paper, in an order that survives a crash
//! between any two steps: flip, store the window, and only then empty the idle twin.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;
use twinprobe_ebpf_common::{Context, DocumentOrigin, Render};
use twinprobe_kernel::clock::{self, Moment};
use twinprobe_kernel::watch::LinkChanges;
use twinprobe_kernel::{Loss, Predecessor, Sees};
use twinprobe_windows::{ClosedBy, RetentionLimits};

use crate::engine::deploy::cause::Occasion;
use crate::engine::error::CloseError;
use crate::engine::placement::{self, PendingPlace, WantedInterfaces, refused, wanted};
use crate::engine::pods::names::InterfacePods;
use crate::engine::pods::table::NodePods;
use crate::engine::probe::exactness::{self, Exactness};
use crate::engine::reading::metric::MetricState;
use crate::engine::reading::open::OpenWindow;
use crate::engine::window::delivery::{Delivery, InFlight};
use crate::telemetry::counters::Counters;
use twinprobe_config::InterfacePattern;
use twinprobe_config::ProbeConfig;
use twinprobe_config::WindowConfig;

/// A probe that is attached and read.
#[derive(Debug)]
pub struct Running {
    pub config: ProbeConfig,
    pub origin: Arc<DocumentOrigin>,
    pub open: OpenWindow,
    pub counters: Arc<Counters>,
    in_flight: InFlight,
    /// The reason why the last window could not be closed.
    pub close_error: Option<String>,
    /// The number of values that OpenMetrics answers have left out so far.
    pub skipped: Arc<AtomicU64>,
    /// A channel that closes when the probe is replaced or deleted.
    pub gone: watch::Sender<()>,
    /// The interfaces that the probe waits for, each with the reason.
    pub pending: Vec<PendingPlace>,
    /// The reason why the interfaces can't be listed; `None` if they can. Attachments stay as they
    /// are.
    pub unlisted: Option<String>,
    /// True if the lease of the probe has ended, so that the probe is attached nowhere.
    pub has_ended: bool,
    /// The names of the pods to which interfaces lead.
    pub pods: Arc<InterfacePods>,
    /// The known facts about the interfaces, also for the status.
    pub exactness: Arc<Exactness>,
}

impl Running {
    pub fn new(
        config: ProbeConfig,
        origin: Arc<DocumentOrigin>,
        open: OpenWindow,
        counters: Arc<Counters>,
    ) -> Self {
        let exactness = Arc::new(Exactness::new(&open.attached.host.offloads));
        open.windows.set_limits(limits(&config));
        Self {
            config,
            origin,
            open,
            counters,
            in_flight: InFlight::default(),
            close_error: None,
            skipped: Arc::default(),
            gone: watch::Sender::default(),
            pending: Vec::new(),
            unlisted: None,
            has_ended: false,
            pods: Arc::default(),
            exactness,
        }
    }

    pub fn set_pending(&mut self, mut pending: Vec<PendingPlace>, unlisted: Option<String>) {
        if let Some(reason) = unlisted.as_ref().filter(|_| self.unlisted.is_none()) {
            tracing::warn!(
                probe = self.config.name,
                reason,
                "the interfaces can't be listed: attachments stay, and the daemon tries again"
            );
        }
        if unlisted.is_some() {
            // Attached interfaces may still exist, since the listing failed: only interfaces
            // without an attachment are pending.
            let is_at = |name: &str| {
                self.open
                    .attached
                    .places
                    .iter()
                    .any(|at| at.place.interface == name)
            };
            pending.retain(|pending| !is_at(&pending.interface));
        }
        (self.pending, self.unlisted) = (pending, unlisted);
    }

    /// Attaches the probe to the interfaces that exist now, and detaches it from interfaces that
    /// have disappeared.
    pub fn follow(&mut self, changes: &LinkChanges, pods: &NodePods) {
        if self.has_ended {
            self.open.attached.place(&[], changes);
            let reason = "the lease has ended; the probe is removed once its last window is stored";
            let pending = |interface: &InterfacePattern| PendingPlace {
                interface: interface.text.clone(),
                reason: reason.to_owned(),
            };
            return self.set_pending(
                self.config.places.interfaces.iter().map(pending).collect(),
                None,
            );
        }
        match wanted(&self.config.places, Occasion::Restored, pods) {
            Ok(WantedInterfaces {
                pending,
                unlisted: Some(reason),
                ..
            }) => {
                self.set_pending(pending, Some(reason));
            }
            Ok(WantedInterfaces {
                interfaces,
                mut pending,
                unlisted: None,
            }) => {
                // No client waits for an answer here, so interfaces that do not fit are left out
                // instead of refused.
                let (fitting, left) =
                    exactness::fitting(interfaces, &self.open.attached.directions)
                        .unwrap_or_default();
                pending.extend(left);
                pending.extend(refused(self.open.attached.place(&fitting, changes)));
                self.set_pending(pending, None);
                self.refresh_exactness();
            }
            Err(rejection) => {
                tracing::error!(?rejection, "interfaces are refused; attachments stay");
            }
        }
    }

    /// Takes over everything that `old` has not delivered yet. At this time `old` gets no packets
    /// any more. Returns the losses: content that could not be taken over.
    pub fn succeed(&mut self, old: Self) -> Vec<Loss> {
        if !old
            .open
            .goes_on(&self.open.metrics, &self.open.attached.directions)
        {
            self.open.opened = Moment::now();
            self.open.attached.epoch.set_opened(self.open.opened);
        } else {
            self.open.is_inherited = true;
        }
        let Self {
            open,
            skipped,
            in_flight,
            ..
        } = old;
        (self.skipped, self.in_flight) = (skipped, in_flight);
        let (remains, losses) = self.open.attached.retire(&open.attached);
        self.open.take_over(&self.config.name, &remains);
        losses
    }

    /// Finishes a window that was closed only in part, so that the maps contain none of its rows
    /// when they are replaced.
    pub fn finish(&mut self) -> Result<(), CloseError> {
        self.open.load_base()?;
        self.finish_window()
    }

    /// Returns the state that a replacement can take over.
    pub fn predecessor(&self) -> Predecessor {
        self.open
            .attached
            .predecessor(|direction| self.open.more_known(direction))
    }

    pub fn detach(self) {
        drop(self.gone);
        self.open.attached.detach();
    }

    /// Returns a window that no client has completely received, or else closes the open window and
    /// returns it. If the metrics reset nothing, or the clock closes the windows, the reading
    /// closes no window.
    pub fn read(&mut self) -> Result<Delivery, CloseError> {
        if !self.open.resets() || self.config.schedule().is_some() {
            return Ok(self.compose());
        }
        self.finish_window()?;
        if let Some(delivery) = self.untaken() {
            return Ok(delivery);
        }
        let stored = self.close(ClosedBy::Read)?;
        let claim = self.in_flight.claim(stored.seq());
        Ok(Delivery::of_window(
            &self.open.windows,
            &stored,
            Arc::clone(&self.skipped),
            claim,
        )?)
    }

    /// Reads the probe for a page about all probes, without any effect on other readers: this
    /// closes a window only if sums contain everything that the window resets. A probe for which
    /// this is not true shows its last window.
    pub fn read_for_page(&mut self) -> Result<Delivery, CloseError> {
        let mut resets = self
            .open
            .metrics
            .iter()
            .filter(|reader| reader.extraction.resets());
        if !self.open.resets()
            || self.config.schedule().is_some()
            || !resets.all(|reader| reader.sum.is_some())
        {
            return Ok(self.compose());
        }
        let stored = self.close(ClosedBy::Page)?;
        Ok(Delivery::of_window(
            &self.open.windows,
            &stored,
            Arc::clone(&self.skipped),
            None,
        )?)
    }

    /// Returns a window that was closed for a client, and that no client has completely received.
    fn untaken(&self) -> Option<Delivery> {
        self.open.windows.untaken().into_iter().find_map(|stored| {
            let claim = self.in_flight.claim(stored.seq())?;
            // A damaged window has been set aside and reported: the next one is tried.
            let delivery = Delivery::of_window(
                &self.open.windows,
                &stored,
                Arc::clone(&self.skipped),
                Some(claim),
            );
            delivery
                .ok()
                .filter(|delivery| self.is_own(delivery.origin.as_deref()))
        })
    }

    /// Tells whether a window belongs to this probe, and not to an expired probe of the same name.
    /// Earlier versions had no leases.
    pub fn is_own(&self, origin: Option<&DocumentOrigin>) -> bool {
        origin.is_none_or(|origin| origin.instance == self.origin.instance)
    }

    /// Returns the configured names of interfaces. If the configuration has a pattern, returns the
    /// names of the attached interfaces, sorted.
    pub fn interfaces(&self) -> Vec<String> {
        let configured = &self.config.places.interfaces;
        if !configured.iter().any(InterfacePattern::is_pattern) {
            return configured
                .iter()
                .map(|interface| interface.text.clone())
                .collect();
        }
        let places = self.open.attached.places.iter();
        let mut names: Vec<String> = places.map(|at| at.place.interface.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Finds the present offloads of the interfaces, for statuses and documents.
    pub fn refresh_exactness(&self) {
        self.exactness
            .refresh(&self.open.attached.places, &self.sees());
    }

    /// Queries the kernel for the facts again, because the programs of an interface have changed.
    pub fn refresh_exactness_after_a_change(&self) {
        let places = self
            .open
            .attached
            .places
            .iter()
            .map(|at| (&at.place.netns, at.place.ifindex));
        self.open.attached.host.offloads.doubt(places);
        self.refresh_exactness();
    }

    /// Returns the parts of packets that the programs of the directions read.
    pub fn sees(&self) -> Vec<Sees> {
        self.open
            .attached
            .directions
            .iter()
            .map(|loaded| loaded.plan.sees)
            .collect()
    }

    /// Returns the context of a reading made now. Interfaces are listed only if a metric shows
    /// interface indices.
    pub fn context(&self) -> Context {
        let speaks = |reader: &MetricState| reader.metric.layout.renders(Render::Ifindex);
        let speaks = self.open.metrics.iter().any(speaks);
        let names = speaks
            .then(|| placement::names(self.config.places.netns()))
            .flatten();
        let interfaces = names.unwrap_or_default();
        let own = self
            .open
            .attached
            .places
            .iter()
            .filter(|_| self.config.places.netns.is_none());
        let pods = self.pods.of(own.map(|at| at.place.ifindex));
        Context {
            boot_time_ns: clock::monotonic_zero_ns(),
            interfaces,
            pods,
            owners: None,
        }
    }
}

/// Returns the limits of retained windows. A probe without a `window` setting has no collectors: a
/// window that a client has taken counts as acknowledged.
pub fn limits(config: &ProbeConfig) -> RetentionLimits {
    let WindowConfig {
        retain,
        retain_bytes,
        collectors,
        ..
    } = config.window.clone().unwrap_or_default();
    RetentionLimits {
        retain,
        bytes: retain_bytes,
        collectors,
        taken_counts: config.window.is_none(),
    }
}
