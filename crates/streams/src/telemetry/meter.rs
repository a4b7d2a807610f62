//! Counters and states, as `/metrics` and the summary show them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::receiver::{RefusedSamples, StreamItem};
use crate::run::acks::Outstanding;
use crate::run::budget::MemoryBudget;
use crate::telemetry::rules::FleetRuleFamilies;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReceiver {
    receiver: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfServer {
    server: String,
}

type ReceiverCounter = Family<OfReceiver, Counter>;

/// The counters of a stream.
#[derive(Debug, Default)]
pub struct StreamMeter {
    windows: ReceiverCounter,
    repeats: ReceiverCounter,
    bytes: ReceiverCounter,
    failures: ReceiverCounter,
    gaps: ReceiverCounter,
    lost: ReceiverCounter,
    refused_windows: ReceiverCounter,
    refused_samples: ReceiverCounter,
    up: Family<OfReceiver, Gauge>,
    server_failures: Family<OfServer, Counter>,
    server_up: Family<OfServer, Gauge>,
    /// The result of the last request to each daemon; `None` before the first answer.
    servers: Mutex<BTreeMap<String, Option<bool>>>,
    unnamed: Family<OfServer, Gauge>,
    pub rules: FleetRuleFamilies,
    lanes: Mutex<Vec<Arc<LaneMeter>>>,
}

/// The counters of one receiver.
#[derive(Debug)]
pub struct LaneMeter {
    target: String,
    windows: Counter,
    repeats: Counter,
    bytes: Counter,
    failures: Counter,
    gaps: Counter,
    lost: Counter,
    refused_windows: Counter,
    refused_samples: Counter,
    up: Gauge,
    label: String,
    budget: Arc<MemoryBudget>,
    memory: usize,
    feeds: Mutex<Vec<Weak<Outstanding>>>,
}

/// The work that was done, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    pub windows: u64,
    pub repeats: u64,
    pub bytes: u64,
    pub gaps: u64,
    pub lost: u64,
    /// Windows of which a receiver has refused samples permanently.
    pub refused: u64,
    pub failures: u64,
}

impl StreamMeter {
    /// Adds a receiver; `label` is its label, `target` its address.
    pub fn lane(
        &self,
        label: &str,
        target: &str,
        budget: &Arc<MemoryBudget>,
        memory: usize,
    ) -> Arc<LaneMeter> {
        let of = OfReceiver {
            receiver: label.to_owned(),
        };
        let counter = |family: &ReceiverCounter| family.get_or_create(&of).clone();
        let up = self.up.get_or_create(&of).clone();
        up.set(1);
        let lane = Arc::new(LaneMeter {
            target: target.to_owned(),
            windows: counter(&self.windows),
            repeats: counter(&self.repeats),
            bytes: counter(&self.bytes),
            failures: counter(&self.failures),
            gaps: counter(&self.gaps),
            lost: counter(&self.lost),
            refused_windows: counter(&self.refused_windows),
            refused_samples: counter(&self.refused_samples),
            up,
            label: label.to_owned(),
            budget: Arc::clone(budget),
            memory,
            feeds: Mutex::default(),
        });
        self.lanes.lock().push(Arc::clone(&lane));
        lane
    }

    /// Notes that the stream sends requests to a daemon from now on.
    pub fn server_begun(&self, server: &str) {
        drop(self.server_failures.get_or_create(&OfServer {
            server: server.to_owned(),
        }));
        self.servers.lock().insert(server.to_owned(), None);
    }

    /// Notes whether a daemon has answered the request for its probes.
    pub fn server_up(&self, server: &str, is_up: bool) {
        self.server_up
            .get_or_create(&OfServer {
                server: server.to_owned(),
            })
            .set(is_up.into());
        self.servers.lock().insert(server.to_owned(), Some(is_up));
    }

    /// Notes that the stream sends no more requests to a daemon.
    pub fn server_gone(&self, server: &str) {
        self.server_up.remove(&OfServer {
            server: server.to_owned(),
        });
        self.servers.lock().remove(server);
    }

    /// Notes that a request to a daemon has failed.
    pub fn server_failed(&self, server: &str) {
        self.server_failures
            .get_or_create(&OfServer {
                server: server.to_owned(),
            })
            .inc();
    }

    /// Tells whether every daemon has listed its windows.
    fn knows_all(&self) -> bool {
        let servers = self.servers.lock();
        !servers.is_empty() && servers.values().all(|up| *up == Some(true))
    }

    /// The number of a daemon's probes that fit the patterns and have windows for other collectors
    /// only.
    pub fn unnamed(&self, server: &str, probes: usize) {
        self.unnamed
            .get_or_create(&OfServer {
                server: server.to_owned(),
            })
            .set(probes as i64);
    }

    /// Returns the totals over all receivers.
    pub fn totals(&self) -> StreamTotals {
        self.lanes
            .lock()
            .iter()
            .fold(StreamTotals::default(), |mut totals, lane| {
                totals.windows += lane.windows.get();
                totals.repeats += lane.repeats.get();
                totals.bytes += lane.bytes.get();
                totals.gaps += lane.gaps.get();
                totals.lost += lane.lost.get();
                totals.refused += lane.refused_windows.get();
                totals.failures += lane.failures.get();
                totals
            })
    }

    /// Renders everything as OpenMetrics.
    pub fn render(&self) -> String {
        let mut registry = Registry::with_prefix("twinprobe_stream");
        self.register_receivers(&mut registry);
        self.register_servers(&mut registry);
        self.register_lanes(&mut registry);
        self.rules.register(&mut registry);
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &registry);
        page
    }

    /// Adds the counters of receivers, and whether the receivers take everything.
    fn register_receivers(&self, registry: &mut Registry) {
        let mut family = |name: &str, help: &str, family: &ReceiverCounter| {
            registry.register(name, help, family.clone());
        };
        family(
            "windows",
            "Windows that the receiver has stored, without repeats",
            &self.windows,
        );
        family(
            "repeats",
            "Windows that the receiver already had",
            &self.repeats,
        );
        family(
            "failures",
            "Attempts after which the receiver did not have everything",
            &self.failures,
        );
        family(
            "gaps",
            "Gaps that were reported to the receiver",
            &self.gaps,
        );
        family(
            "lost_windows",
            "Windows in these gaps, which the daemon had removed",
            &self.lost,
        );
        family(
            "refused_windows",
            "Windows with samples that the receiver refused for good",
            &self.refused_windows,
        );
        family(
            "refused_samples",
            "Samples that the receiver refused for good",
            &self.refused_samples,
        );
        registry.register_with_unit(
            "documents",
            "Documents that the receiver has",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "receiver_up",
            "1 if the receiver took all of the last batch",
            self.up.clone(),
        );
    }

    /// Adds the counters and states of daemons.
    fn register_servers(&self, registry: &mut Registry) {
        registry.register(
            "server_failures",
            "Requests to a daemon that failed",
            self.server_failures.clone(),
        );
        registry.register(
            "server_up",
            "1 if the daemon has answered the last question for its probes",
            self.server_up.clone(),
        );
        registry.register(
            "unnamed_probes",
            "Probes that fit the patterns, but whose window.collectors name only others",
            self.unnamed.clone(),
        );
    }

    /// The states of all receivers.
    fn register_lanes(&self, registry: &mut Registry) {
        let (pending, lag) = (
            Family::<OfReceiver, Gauge>::default(),
            Family::<OfReceiver, Gauge<f64, AtomicU64>>::default(),
        );
        let (memory, limit) = (
            Family::<OfReceiver, Gauge>::default(),
            Family::<OfReceiver, Gauge>::default(),
        );
        for lane in &*self.lanes.lock() {
            let of = OfReceiver {
                receiver: lane.label.clone(),
            };
            let (count, seconds) = lane.lag();
            pending.get_or_create(&of).set(count as i64);
            // A daemon without an answer may have windows. So the age is left out if the windows of
            // other daemons do not determine it.
            if let Some(seconds) = seconds.or_else(|| self.knows_all().then_some(0.0)) {
                lag.get_or_create(&of).set(seconds);
            }
            memory.get_or_create(&of).set(lane.budget.used() as i64);
            limit.get_or_create(&of).set(lane.memory as i64);
        }
        registry.register(
            "pending_windows",
            "Windows that were read and that the receiver does not have",
            pending,
        );
        let help =
            "Age of the oldest pending window; no sample if none is pending and a daemon is away";
        registry.register_with_unit("lag", help, Unit::Seconds, lag);
        registry.register_with_unit("memory", "Documents on their way", Unit::Bytes, memory);
        registry.register_with_unit(
            "memory_limit",
            "Limit of the documents on their way",
            Unit::Bytes,
            limit,
        );
    }
}

impl LaneMeter {
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Watches the items of a feed.
    pub fn watch(&self, outstanding: &Arc<Outstanding>) {
        let mut feeds = self.feeds.lock();
        feeds.retain(|feed| feed.strong_count() > 0);
        feeds.push(Arc::downgrade(outstanding));
    }

    /// Notes that the receiver has stored an item.
    pub fn stored(&self, item: &StreamItem, is_repeat: bool) {
        match item {
            _ if is_repeat => {
                self.repeats.inc();
            }
            StreamItem::Window(window) => {
                self.windows.inc();
                self.bytes.inc_by(window.document.len() as u64);
            }
            StreamItem::Gap(gap) => {
                self.gaps.inc();
                self.lost.inc_by(gap.windows);
            }
        }
    }

    /// Notes that the receiver refuses samples of an item permanently.
    pub fn refused(&self, item: &StreamItem, refused: &RefusedSamples) {
        self.refused_windows.inc();
        self.refused_samples.inc_by(refused.samples);
        if !refused.is_whole {
            self.stored(item, false);
        }
    }

    pub fn failed(&self) {
        self.failures.inc();
    }

    pub fn up(&self, is_up: bool) {
        self.up.set(is_up.into());
    }

    /// Returns the number of items that are being sent, and the age in seconds of the oldest one.
    fn lag(&self) -> (usize, Option<f64>) {
        let feeds: Vec<Arc<Outstanding>> =
            self.feeds.lock().iter().filter_map(Weak::upgrade).collect();
        let count = feeds.iter().map(|feed| feed.len()).sum();
        let oldest = feeds.iter().filter_map(|feed| feed.oldest()).min();
        let age = oldest.map(|end| Timestamp::now().duration_since(end).as_secs_f64().max(0.0));
        (count, age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_unknown_while_a_daemon_is_away() {
        let meter = StreamMeter::default();
        meter.lane("nats", "nats://h/S", &MemoryBudget::new(1), 1);
        let lag = || {
            let page = meter.render();
            let line = page
                .lines()
                .find(|line| line.starts_with("twinprobe_stream_lag_seconds{"));
            line.and_then(|line| line.split(' ').nth(1)?.parse::<f64>().ok())
        };
        assert_eq!(lag(), None, "no daemon is known");
        ["a", "b"]
            .iter()
            .for_each(|server| meter.server_begun(server));
        meter.server_up("a", true);
        assert_eq!(lag(), None, "one has not answered yet");
        meter.server_up("b", true);
        assert_eq!(lag(), Some(0.0));
        meter.server_up("a", false);
        let page = meter.render();
        assert!(
            lag().is_none() && page.contains("twinprobe_stream_server_up{server=\"a\"} 0"),
            "{page}"
        );
        assert!(
            page.contains("twinprobe_stream_server_failures_total{server=\"b\"} 0"),
            "{page}"
        );
        meter.server_gone("a");
        assert!(lag() == Some(0.0) && !meter.render().contains("server_up{server=\"a\"}"));
    }
}
