//! The daemon's own metrics at `GET /metrics`. Counters change when something happens; states of
//! other modules are collected when the page is made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::telemetry::counters::{Counters, ProbeFamilies};
use crate::telemetry::files::ProbeFiles;
use crate::telemetry::http::Http;
use crate::telemetry::process::Process;
use crate::telemetry::rules::RuleFamilies;

/// The buckets of compilation times in seconds.
const COMPILATION: [f64; 8] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// All metrics that the daemon keeps about itself and its probes.
#[derive(Debug)]
pub struct Telemetry {
    pub registry: Registry,
    pub process: Process,
    pub http: Http,
    compilations: Family<OutcomeLabel, Histogram>,
    families: ProbeFamilies,
    pub probe_files: ProbeFiles,
    pub rules: RuleFamilies,
    probes: Mutex<BTreeMap<String, Arc<Counters>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl Default for Telemetry {
    fn default() -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("twinprobe_build", "Version of the daemon", build);
        let compilations =
            Family::<OutcomeLabel, Histogram>::new_with_constructor(|| Histogram::new(COMPILATION));
        let help = "Time from a source to its object, including the wait for others";
        registry.register_with_unit(
            "twinprobe_compilation",
            help,
            Unit::Seconds,
            compilations.clone(),
        );
        Self {
            process: Process::new(),
            http: Http::new(&mut registry),
            compilations,
            families: ProbeFamilies::new(&mut registry),
            probe_files: ProbeFiles::new(&mut registry),
            rules: RuleFamilies::new(&mut registry),
            probes: Mutex::default(),
            registry,
        }
    }
}

impl Telemetry {
    /// Returns the counters of a probe; makes new counters with the value zero if there are none.
    pub fn probe(&self, name: &str) -> Arc<Counters> {
        let mut probes = self.probes.lock();
        let counters = probes
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Counters::new(&self.families, name)));
        Arc::clone(counters)
    }

    /// Forgets a probe. The page does not show its counters any more, even if other code still has
    /// them.
    pub fn forget(&self, name: &str) {
        let mut probes = self.probes.lock();
        if probes.remove(name).is_some() {
            self.families.remove(name);
        }
    }

    /// Counts a compilation. `took` includes the wait for a slot.
    pub fn compiled(&self, took: Duration, accepted: bool) {
        let outcome = if accepted { "accepted" } else { "refused" };
        self.compilations
            .get_or_create(&OutcomeLabel { outcome })
            .observe(took.as_secs_f64());
    }
}
