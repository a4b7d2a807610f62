//! The page of the daemon's own metrics: counters, and states that are collected when the page is
//! made.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use twinprobe_api::{CostStatus, EventStatus, SumStatus};
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::window::WindowStatistics;
use twinprobe_ebpf_common::{Direction, DocumentOrigin, PodNames};
use twinprobe_exporter::{approximations, origins, pods};

use crate::telemetry::cost::{self, OfDirection};
use crate::telemetry::counters::{Amount, OfProbe, Total};
use crate::telemetry::registry::Telemetry;

/// The state of a probe at the time of the page.
#[derive(Clone, Debug, Default)]
pub struct ProbeFacts {
    pub name: String,
    pub origin: Arc<DocumentOrigin>,
    /// The sampling rate of the program by direction: one packet out of this many.
    pub samples: BTreeMap<Direction, u64>,
    /// The most nanoseconds that the program may take per packet, by direction.
    pub budgets: BTreeMap<Direction, u64>,
    /// The number of retained windows that each collector of the configuration has not
    /// acknowledged.
    pub lags: Vec<(String, u64)>,
    pub running: bool,
    pub windows: WindowStatistics,
    pub sums: Vec<SumStatus>,
    pub cost: Option<CostStatus>,
    pub events: Vec<EventStatus>,
    pub attachments: Vec<AttachmentFacts>,
    /// The reasons why the numbers differ from those on the wire; `None` if they do not.
    pub approximate: Option<String>,
    /// The pods to which interfaces lead, by the names of the interfaces.
    pub pods: BTreeMap<String, PodNames>,
}

/// An interface and a hook that a probe's configuration selects.
#[derive(Clone, Debug)]
pub struct AttachmentFacts {
    pub interface: String,
    pub hook: Hook,
    pub attached: bool,
    /// The number of times that the attachment was restored after another program had removed it.
    pub repairs: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAttachment {
    probe: String,
    interface: String,
    direction: &'static str,
    hook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCollector {
    probe: String,
    collector: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMetric {
    probe: String,
    direction: &'static str,
    metric: String,
}

impl Telemetry {
    /// Renders the page as OpenMetrics without `# EOF`, since the metrics of probes follow.
    pub fn render(&self, probes: &[ProbeFacts]) -> String {
        let mut facts = Registry::default();
        self.process.register(&mut facts);
        register_states(probes, &mut facts);
        register_samples(probes, &mut facts);
        register_windows(probes, &mut facts);
        register_sums(probes, &mut facts);
        let costs = probes
            .iter()
            .filter_map(|probe| Some((&probe.name, probe.cost.as_ref()?)));
        cost::register(costs, &mut facts);
        cost::register_budgets(
            probes.iter().map(|probe| (&probe.name, &probe.budgets)),
            &mut facts,
        );
        register_events(probes, &mut facts);
        register_attachments(probes, &mut facts);
        let mut page = String::new();
        for registry in [&self.registry, &facts] {
            // Writing to a String can't fail.
            let _ = text::encode_registry(&mut page, registry);
        }
        let reasons = probes
            .iter()
            .filter_map(|probe| Some((&*probe.name, probe.approximate.as_deref()?)));
        let named = pods(probes.iter().map(|probe| (&*probe.name, &probe.pods)));
        page + &origins(probes.iter().map(|probe| (&*probe.name, &*probe.origin)))
            + &approximations(reasons)
            + &named
    }
}

fn register_states(probes: &[ProbeFacts], registry: &mut Registry) {
    let states = Family::<StateLabel, Amount<u64>>::default();
    for (state, running) in [("running", true), ("failed", false)] {
        let count = probes
            .iter()
            .filter(|probe| probe.running == running)
            .count();
        states
            .get_or_create(&StateLabel { state })
            .set(count as u64);
    }
    registry.register("twinprobe_probes", "Probes by state", states);
}

fn register_samples(probes: &[ProbeFacts], registry: &mut Registry) {
    let samples = Family::<OfDirection, Amount<u64>>::default();
    for ProbeFacts {
        name,
        samples: of_probe,
        ..
    } in probes
    {
        for (direction, one_in) in of_probe {
            let label = OfDirection {
                probe: name.clone(),
                direction: direction.name(),
            };
            samples.get_or_create(&label).set(*one_in);
        }
    }
    registry.register(
        "twinprobe_probe_sample",
        "N, if the program sees one packet in N",
        samples,
    );
}

fn register_windows(probes: &[ProbeFacts], registry: &mut Registry) {
    let [retained, bytes] = [(); 2].map(|()| Family::<OfProbe, Amount<u64>>::default());
    let [lost, damaged] = [(); 2].map(|()| Family::<OfProbe, Total<u64>>::default());
    let unreadable = Family::<OfProbe, Amount<u64>>::default();
    for ProbeFacts { name, windows, .. } in probes {
        let label = OfProbe {
            probe: name.clone(),
        };
        retained.get_or_create(&label).set(windows.retained as u64);
        bytes.get_or_create(&label).set(windows.bytes);
        lost.get_or_create(&label).inc_by(windows.lost);
        damaged.get_or_create(&label).inc_by(windows.damaged);
        unreadable
            .get_or_create(&label)
            .set(windows.unreadable as u64);
    }
    registry.register(
        "twinprobe_windows_retained",
        "Windows that are retained",
        retained,
    );
    let size = "Size of the retained windows";
    registry.register_with_unit("twinprobe_windows_retained", size, Unit::Bytes, bytes);
    let help = "Windows that were removed before the named collectors had acknowledged them, or that were damaged";
    registry.register("twinprobe_windows_lost", help, lost);
    let help = "Windows whose file can't be read now or is of a later version";
    registry.register("twinprobe_windows_unreadable", help, unreadable);
    registry.register(
        "twinprobe_windows_damaged",
        "Windows whose file was damaged on disk",
        damaged,
    );
    let unacknowledged = Family::<OfCollector, Amount<u64>>::default();
    for ProbeFacts { name, lags, .. } in probes {
        for (collector, lag) in lags {
            let label = OfCollector {
                probe: name.clone(),
                collector: collector.clone(),
            };
            unacknowledged.get_or_create(&label).set(*lag);
        }
    }
    let help = "Retained windows that a collector of the configuration has not acknowledged";
    registry.register("twinprobe_windows_unacknowledged", help, unacknowledged);
}

fn register_attachments(probes: &[ProbeFacts], registry: &mut Registry) {
    let attached = Family::<OfAttachment, Amount<u64>>::default();
    let repairs = Family::<OfAttachment, Total<u64>>::default();
    for ProbeFacts {
        name, attachments, ..
    } in probes
    {
        for at in attachments {
            let (direction, hook) = (at.hook.direction(), at.hook.kind().section());
            let (probe, interface) = (name.clone(), at.interface.clone());
            let label = OfAttachment {
                probe,
                interface,
                direction,
                hook,
            };
            attached.get_or_create(&label).set(u64::from(at.attached));
            repairs.get_or_create(&label).inc_by(at.repairs);
        }
    }
    let help =
        "Whether the probe is attached at the interface, or at the pattern that it waits for";
    registry.register("twinprobe_attachments", help, attached);
    let help = "Times that an attachment was made again after somebody had removed it";
    registry.register("twinprobe_attachments_repaired", help, repairs);
}

fn register_sums(probes: &[ProbeFacts], registry: &mut Registry) {
    let [entries, max_entries] = [(); 2].map(|()| Family::<OfMetric, Amount<u64>>::default());
    let dropped = Family::<OfMetric, Total<u64>>::default();
    for ProbeFacts { name, sums, .. } in probes {
        for sum in sums {
            let (direction, metric) = (sum.direction.name(), sum.metric.clone());
            let label = OfMetric {
                probe: name.clone(),
                direction,
                metric,
            };
            entries.get_or_create(&label).set(sum.entries as u64);
            max_entries
                .get_or_create(&label)
                .set(sum.max_entries as u64);
            dropped.get_or_create(&label).inc_by(sum.dropped);
        }
    }
    registry.register(
        "twinprobe_sum_entries",
        "Entries of the sum of windows",
        entries,
    );
    registry.register(
        "twinprobe_sum_max_entries",
        "Limit of the entries of the sum",
        max_entries,
    );
    registry.register(
        "twinprobe_sum_dropped",
        "Entries that were dropped from the sum for lack of room",
        dropped,
    );
}

fn register_events(probes: &[ProbeFacts], registry: &mut Registry) {
    let [delivered, lost, missed] = [(); 3].map(|()| Family::<OfMetric, Total<u64>>::default());
    let clients = Family::<OfMetric, Amount<u64>>::default();
    for ProbeFacts { name, events, .. } in probes {
        for event in events {
            let (direction, metric) = (event.direction.name(), event.metric.clone());
            let label = OfMetric {
                probe: name.clone(),
                direction,
                metric,
            };
            delivered.get_or_create(&label).inc_by(event.delivered);
            missed.get_or_create(&label).inc_by(event.missed);
            clients.get_or_create(&label).set(event.clients as u64);
            // The kernel counts lost events for perf rings only.
            if let Some(count) = event.lost {
                lost.get_or_create(&label).inc_by(count);
            }
        }
    }
    let since = "since the probe was last replaced";
    let mut total = |name: &str, help: &str, family| {
        registry.register(name, format!("{help}, {since}"), family);
    };
    total(
        "twinprobe_events_delivered",
        "Events read for clients that listened",
        delivered,
    );
    total(
        "twinprobe_events_lost",
        "Events that found no room in the kernel",
        lost,
    );
    total(
        "twinprobe_events_missed",
        "Events that clients missed because they read too slowly",
        missed,
    );
    registry.register("twinprobe_event_clients", "Clients that listen", clients);
}

#[cfg(test)]
mod tests;
