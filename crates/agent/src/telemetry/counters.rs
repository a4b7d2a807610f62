//! The counters of each probe, by the name of the probe. They survive a replacement, and end with a
//! DELETE.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use twinprobe_windows::ClosedBy;

/// The buckets for the durations of grace periods, in seconds: from those on an idle machine to
/// those that wait for a busy CPU.
const QUIESCE: [f64; 13] = [
    1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1,
];

/// The label that names the probe of a metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfProbe {
    pub probe: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCloser {
    probe: String,
    by: &'static str,
}

/// The metric families that have a member for each probe.
#[derive(Debug)]
pub struct ProbeFamilies {
    read_failures: Family<OfProbe, Counter>,
    closed: Family<OfCloser, Counter>,
    close_failures: Family<OfProbe, Counter>,
    ticks_missed: Family<OfProbe, Counter>,
    quiesce: Family<OfProbe, Histogram>,
}

/// The counters of one probe.
#[derive(Debug)]
pub struct Counters {
    /// The number of pages of `GET /metrics` that lack the probe or a part of it.
    pub read_failures: Counter,
    closed: [Counter; ClosedBy::ALL.len()],
    /// The number of windows that could not be closed.
    pub close_failures: Counter,
    /// The number of windows that the clock has closed too late.
    pub ticks_missed: Counter,
    quiesce: Histogram,
}

impl ProbeFamilies {
    pub fn new(registry: &mut Registry) -> Self {
        let families = Self {
            read_failures: Family::default(),
            closed: Family::default(),
            close_failures: Family::default(),
            ticks_missed: Family::default(),
            quiesce: Family::new_with_constructor(|| Histogram::new(QUIESCE)),
        };
        let help = "Times that GET /metrics left out the probe or a part of it";
        registry.register(
            "twinprobe_probe_read_failures",
            help,
            families.read_failures.clone(),
        );
        let help = "Windows closed by a read, by a request or by schedule";
        registry.register("twinprobe_windows_closed", help, families.closed.clone());
        let help = "Times that a window could not be closed and stayed open or in the kernel";
        registry.register(
            "twinprobe_window_close_failures",
            help,
            families.close_failures.clone(),
        );
        let help = "Scheduled ends of windows that were missed";
        registry.register(
            "twinprobe_window_ticks_missed",
            help,
            families.ticks_missed.clone(),
        );
        let help = "Time from a flip until no CPU was left in the idle twin";
        let quiesce = families.quiesce.clone();
        registry.register_with_unit("twinprobe_quiesce", help, Unit::Seconds, quiesce);
        families
    }

    /// Removes a probe's members from all families.
    pub fn remove(&self, probe: &str) {
        let label = OfProbe {
            probe: probe.to_owned(),
        };
        for counters in [
            &self.read_failures,
            &self.close_failures,
            &self.ticks_missed,
        ] {
            counters.remove(&label);
        }
        self.quiesce.remove(&label);
        for by in ClosedBy::ALL {
            self.closed.remove(&OfCloser {
                probe: probe.to_owned(),
                by: by.name(),
            });
        }
    }
}

impl Counters {
    /// Makes counters with the value zero, which `GET /metrics` shows from now on.
    pub fn new(families: &ProbeFamilies, probe: &str) -> Self {
        let label = OfProbe {
            probe: probe.to_owned(),
        };
        Self {
            read_failures: families.read_failures.get_or_create_owned(&label),
            closed: ClosedBy::ALL.map(|by| {
                families.closed.get_or_create_owned(&OfCloser {
                    probe: probe.to_owned(),
                    by: by.name(),
                })
            }),
            close_failures: families.close_failures.get_or_create_owned(&label),
            ticks_missed: families.ticks_missed.get_or_create_owned(&label),
            quiesce: families.quiesce.get_or_create_owned(&label),
        }
    }

    /// Counts a window that was closed, and the duration of its grace period.
    pub fn closed(&self, by: ClosedBy, quiesce: Duration) {
        self.closed[by as usize].inc();
        // A probe without twins does not wait for CPUs.
        if !quiesce.is_zero() {
            self.quiesce.observe(quiesce.as_secs_f64());
        }
    }
}

/// A gauge of integers or floats.
pub type Amount<N> = Gauge<N, AtomicU64>;

/// A counter whose value is copied from the count of another module.
pub type Total<N> = Counter<N, AtomicU64>;
