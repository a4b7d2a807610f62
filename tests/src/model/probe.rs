//! The expected state of one probe: revisions, windows, and the counts of each metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::document::rows;
use super::ledger::{Ledger, Mode, Range};
use super::spec::{MetricSpec, Place, ProbeSpec};
use super::time::{Clock, nanoseconds};
use crate::http::Address;
use crate::windows::Windows;

/// A change of a probe's maps that holds from some window on.
#[derive(Clone, Debug)]
pub enum Turn {
    /// The probe has another configuration. `crashed`: the daemon died before it retired the old
    /// one.
    Put {
        spec: Box<ProbeSpec>,
        since: i128,
        crashed: bool,
    },
    /// The probe was deployed anew after the windows up to `last` were closed. `graceful`: nothing
    /// was left in the maps.
    Anew {
        last: u64,
        graceful: bool,
        since: i128,
    },
}

/// The model of one probe.
#[derive(Debug)]
pub struct ProbeModel {
    pub name: String,
    pub spec: ProbeSpec,
    pub revision: u64,
    /// The configurations by revision.
    pub revisions: BTreeMap<u64, ProbeSpec>,
    pub created: Value,
    pub ledger: Ledger,
    /// The rank of its creation among the probes of its hook.
    pub order: u64,
    /// The last window that was checked; `end` is when it ended.
    pub seq: u64,
    end: Option<String>,
    clock: Arc<Clock>,
    /// True if the next window may begin later than the last one ended.
    gap: bool,
    /// The windows' documents as they were first received.
    pub documents: BTreeMap<u64, Value>,
    /// The last window that each collector has acknowledged.
    pub acknowledged: BTreeMap<&'static str, u64>,
}

impl ProbeModel {
    pub fn new(name: &str, spec: ProbeSpec, order: u64, clock: Arc<Clock>) -> Self {
        let mut probe = Self {
            name: name.to_owned(),
            revision: 1,
            revisions: BTreeMap::from([(1, spec.clone())]),
            created: Value::Null,
            ledger: Ledger::default(),
            order,
            seq: 0,
            end: None,
            clock,
            gap: true,
            documents: BTreeMap::new(),
            acknowledged: BTreeMap::from([("a", 0), ("b", 0)]),
            spec,
        };
        for metric in probe.spec.metrics.clone() {
            probe.begin(&metric, i128::MAX);
        }
        probe
    }

    pub fn path(&self) -> String {
        format!("/v1/probes/{}", self.name)
    }

    const fn direction(&self) -> &'static str {
        match self.spec.place {
            Place::TcEgress => "egress",
            _ => "ingress",
        }
    }

    fn begin(&mut self, metric: &MetricSpec, since: i128) {
        for field in metric.fields() {
            let name = (metric.map, *field);
            self.ledger
                .begin(name, metric.mode, metric.is_single(), metric.room(), since);
        }
    }

    /// Checks all windows since the last call. The change `turn` holds from one of them on.
    pub fn collect(&mut self, address: &Address, mut turn: Option<Turn>) -> Result<()> {
        let windows = Windows::at(address.clone(), &self.name);
        let list = windows
            .try_list(&format!("after={}", self.seq))
            .context("list windows")?;
        ensure!(
            list.lost == 0,
            "{} windows of {} were lost",
            list.lost,
            self.name
        );
        for listed in &list.windows {
            let answer = windows.try_get(listed.seq)?;
            ensure!(
                answer.status == 200,
                "window {} of {}: {}",
                listed.seq,
                self.name,
                answer.status
            );
            let document = answer.json();
            if turn
                .as_ref()
                .is_some_and(|turn| self.is_after(turn, listed.seq, &document))
                && let Some(turn) = turn.take()
            {
                self.apply(turn)?;
            }
            self.window(listed.seq, &document)
                .inspect_err(|_| super::tell(|| document.to_string()))
                .with_context(|| format!("window {} of {}", listed.seq, self.name))?;
            self.documents.insert(listed.seq, document);
        }
        if let Some(turn) = turn {
            self.apply(turn)?;
        }
        while self.documents.len() > 100 {
            self.documents.pop_first();
        }
        Ok(())
    }

    fn is_after(&self, turn: &Turn, seq: u64, document: &Value) -> bool {
        match turn {
            Turn::Anew { last, .. } => seq > *last,
            Turn::Put { .. } => {
                let mut windowed = self
                    .spec
                    .metrics
                    .iter()
                    .filter(|metric| metric.is_windowed());
                windowed.all(|metric| self.reading(document, metric).is_none())
            }
        }
    }

    fn reading<'a>(&self, document: &'a Value, metric: &MetricSpec) -> Option<&'a Value> {
        document[self.direction()].get(metric.name(self.spec.generation))
    }

    fn window(&mut self, seq: u64, document: &Value) -> Result<()> {
        let window = &document["window"];
        ensure!(seq == self.seq + 1, "follows on {}", self.seq);
        ensure!(window["seq"] == seq, "{window}");
        ensure!(window.get("lost_windows").is_none(), "{window}");
        let (start, end) = (text(&window["start"])?, text(&window["end"])?);
        let (from, until) = (nanoseconds(&start)?, nanoseconds(&end)?);
        ensure!(from < until, "{window}");
        let step = window["clock_step_ns"].as_i64().unwrap_or_default();
        if let Some(last) = &self.end {
            let follows = match &window["duration_ns"] {
                // The clock may have been set between the windows.
                _ if self.gap => true,
                // If a clock was set back, the window's start follows from its duration.
                Value::Number(duration) if step < 0 && start != *last => {
                    let duration = duration.as_u64().context("a duration")?;
                    (until - from - i128::from(duration)).abs() < 2_000_000
                }
                _ => start == *last,
            };
            ensure!(follows, "{window} follows on one that ended at {last}");
        }
        let until = self.clock.real(until)?;
        (self.seq, self.end, self.gap) = (seq, Some(end), false);
        for metric in self.spec.metrics.clone() {
            match self.reading(document, &metric) {
                Some(reading) => {
                    let reading = reading.clone();
                    self.metric(&metric, &reading, until)
                        .context("in a window")?;
                    if metric.is_racy() {
                        let fields = metric.fields().iter();
                        fields.for_each(|field| self.ledger.race((metric.map, field), until));
                    }
                }
                None => ensure!(
                    !metric.is_windowed(),
                    "{} is missing in {document}",
                    metric.map
                ),
            }
        }
        Ok(())
    }

    fn metric(&mut self, metric: &MetricSpec, reading: &Value, until: i128) -> Result<()> {
        let (rows, numbers) = rows(metric, reading)?;
        self.ledger.pop(&numbers)?;
        for (field, rows) in rows {
            self.ledger.read((metric.map, field), &rows, until)?;
        }
        Ok(())
    }

    /// Checks metrics that belong to no window, in a document that was read after `since`.
    pub fn live(&mut self, document: &Value, since: i128) -> Result<()> {
        for metric in self.spec.metrics.clone() {
            if metric.is_windowed() {
                continue;
            }
            let reading = self.reading(document, &metric);
            let reading = reading
                .with_context(|| format!("no {} in {document}", metric.map))?
                .clone();
            self.metric(&metric, &reading, since)
                .with_context(|| format!("{} now", self.name))?;
        }
        Ok(())
    }

    /// Checks that a window which was received again is the same. Without `whole` only metrics that
    /// it has reset are compared.
    pub fn again(&self, document: &Value, whole: bool) -> Result<()> {
        let seq = document["window"]["seq"].as_u64().context("a window")?;
        let Some(known) = self.documents.get(&seq) else {
            bail!("window {seq} is not retained")
        };
        let mut same = known["window"] == document["window"];
        for metric in &self.spec.metrics {
            let name = metric.name(self.spec.generation);
            let [a, b] = [known, document].map(|document| document[self.direction()].get(&name));
            // A window of another configuration has other metrics.
            same &= a == b || !whole && (a.is_none() || !metric.is_windowed());
        }
        ensure!(
            same && (!whole || known == document),
            "{document} was {known}"
        );
        Ok(())
    }

    fn apply(&mut self, turn: Turn) -> Result<()> {
        match turn {
            Turn::Put {
                spec,
                since,
                crashed,
            } => self.put(*spec, since, crashed),
            Turn::Anew {
                graceful, since, ..
            } => {
                self.gap = true;
                for name in self.ledger.names() {
                    let mode = self.ledger.counter(name).map(|counter| counter.mode);
                    if graceful && mode.is_some_and(|mode| mode != Mode::Live) {
                        self.ledger
                            .is_empty(name, since)
                            .context("left in the maps at the exit")?;
                    } else {
                        self.ledger.lose(name, false, since);
                    }
                }
                Ok(())
            }
        }
    }

    fn put(&mut self, spec: ProbeSpec, since: i128, crashed: bool) -> Result<()> {
        let old = std::mem::replace(&mut self.spec, spec);
        self.revision += 1;
        self.revisions.insert(self.revision, self.spec.clone());
        // Content that does not fit into the new maps is in an earlier window.
        for before in old
            .metrics
            .iter()
            .filter(|before| matches!(before.mode, Mode::Window | Mode::Init) && !crashed)
        {
            let now = self.spec.metric(before.map);
            if now.is_some_and(|now| !now.reset && !goes_on(before, now)) {
                for field in before.fields() {
                    let left = self.ledger.is_empty((before.map, *field), since);
                    left.context("in no window although it starts empty now")?;
                }
            }
        }
        for before in &old.metrics {
            let now = self.spec.metric(before.map).cloned();
            for field in before.fields() {
                if now.as_ref().is_none_or(|now| !now.fields().contains(field)) {
                    self.ledger.remove((before.map, *field));
                }
            }
        }
        for metric in self.spec.metrics.clone() {
            let before = old
                .metric(metric.map)
                .filter(|before| !metric.reset && goes_on(before, &metric));
            for field in metric.fields() {
                let name = (metric.map, *field);
                let Some(before) = before.filter(|before| before.fields().contains(field)) else {
                    let (single, room) = (metric.is_single(), metric.room());
                    // The next daemon reads the window that was closed for the replacement.
                    let is_unread = crashed && metric.map == "nested" && !metric.reset;
                    let since = if is_unread { i128::MIN } else { since };
                    self.ledger.begin(name, metric.mode, single, room, since);
                    continue;
                };
                self.ledger.turn(name, metric.mode, metric.room());
                if !is_same(before, &metric) {
                    self.ledger.save(name);
                }
                if crashed && !is_same(before, &metric) {
                    // Packets between the copy and the switch may be lost, and so may the content
                    // of a queue.
                    if metric.map == "queue" {
                        self.ledger.lose(name, true, since);
                    }
                    self.ledger.doubt(name, since);
                }
            }
        }
        Ok(())
    }

    /// Notes that the daemon died before it committed the replacement by `spec`. Packets that the
    /// new programs have seen meanwhile are in the maps that both configurations share.
    pub fn attempted(&mut self, spec: &ProbeSpec, since: i128) {
        for metric in self.spec.metrics.clone() {
            let shared = spec
                .metric(metric.map)
                .is_some_and(|new| !new.reset && is_same(&metric, new));
            if !shared {
                metric
                    .fields()
                    .iter()
                    .for_each(|field| self.ledger.doubt((metric.map, field), since));
            }
        }
    }

    /// Acknowledges the windows up to `seq`.
    pub fn acknowledge_at(
        &mut self,
        address: &Address,
        seq: u64,
        collector: Option<&'static str>,
    ) -> Result<()> {
        let collector = collector.filter(|_| self.spec.collectors);
        let answer = Windows::at(address.clone(), &self.name).acknowledge(seq, collector)?;
        ensure!(answer.status == 204, "acknowledge {seq}: {}", answer.text());
        let all = ["a", "b"];
        for name in collector.as_ref().map_or(&all[..], std::slice::from_ref) {
            let cursor = self.acknowledged.entry(name).or_default();
            *cursor = seq.max(*cursor);
        }
        Ok(())
    }

    /// Returns the last window that all collectors have acknowledged.
    pub fn settled(&self) -> u64 {
        self.acknowledged
            .values()
            .min()
            .copied()
            .unwrap_or_default()
    }

    /// Notes packets that the probe has seen between `begun` and `ended`.
    pub fn see(&mut self, key: u32, packets: Range, begun: i128, ended: i128) {
        self.ledger.see(key, packets, begun, ended);
    }
}

/// Tells whether a map with a new definition takes over the content of the old map.
fn goes_on(before: &MetricSpec, now: &MetricSpec) -> bool {
    let same_type = !is_other_type(before, now);
    let nested =
        before.map != "nested" || (before.layout, before.entries) == (now.layout, now.entries);
    same_type && nested && !is_other_shape(before, now)
}

fn is_other_type(before: &MetricSpec, now: &MetricSpec) -> bool {
    before.map == "hash" && before.other_type != now.other_type
}

/// Tells whether a number became a structure, or a structure a number.
fn is_other_shape(before: &MetricSpec, now: &MetricSpec) -> bool {
    before.map != "queue" && (before.layout == 0) != (now.layout == 0)
}

/// Tells whether both definitions mean the same map.
fn is_same(before: &MetricSpec, now: &MetricSpec) -> bool {
    (before.layout, before.entries, before.other_type) == (now.layout, now.entries, now.other_type)
}

fn text(value: &Value) -> Result<String> {
    Ok(value
        .as_str()
        .with_context(|| format!("{value} is not a text"))?
        .to_owned())
}
