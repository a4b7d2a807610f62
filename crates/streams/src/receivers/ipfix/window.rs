//! Windows and gaps, encoded as records.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::window::shape::{FieldContent, MetricShape, WindowShape};

use super::element::{ElementType, Own};
use super::metric::{IDENTITY, MetricTemplates};
use super::session::{CollectorSession, SessionSettings, Template};
use super::value::{put, put_variable};
use crate::receiver::{ItemName, SendError, StreamGap, StreamItem, StreamWindow};
use crate::rows::head::{DocumentHead, entries_of};

/// The elements of a window's own record, after its identity. This record comes after the records
/// of all entries.
const WINDOW: [Own; 7] = [
    Own::WindowStart,
    Own::WindowEnd,
    Own::WindowRecords,
    Own::WindowsLost,
    Own::FieldsOmitted,
    Own::Interfaces,
    Own::Approximate,
];
const GAP: [Own; 2] = [Own::GapLast, Own::GapWindows];

/// Makes messages of windows, for one session.
#[derive(Debug)]
pub struct WindowEncoder {
    session: CollectorSession,
    /// Names of fields, with the names of IANA's elements that they mean.
    more: BTreeMap<String, String>,
    /// The templates, by the shape's digest, the direction and the name of the metric.
    plans: HashMap<(String, Direction, String), MetricTemplates>,
}

impl WindowEncoder {
    pub fn new(settings: SessionSettings, more: BTreeMap<String, String>) -> Self {
        Self {
            session: CollectorSession::new(settings),
            more,
            plans: HashMap::new(),
        }
    }

    /// Adds an item. Returns the number of fields that are left out because no message has room for
    /// them.
    pub fn add(&mut self, item: &StreamItem) -> Result<u64, SendError> {
        match item {
            StreamItem::Window(window) => self.window(window),
            StreamItem::Gap(gap) => self.gap(gap).map(|()| 0),
        }
    }

    /// Sends all templates again.
    pub fn repeat_templates(&mut self) {
        self.session.repeat_templates();
    }

    /// Returns the messages that are finished.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.session.take()
    }

    /// Returns the first `most` entries of a window as lines for people.
    pub fn shown(&mut self, window: &StreamWindow, most: usize) -> Result<Vec<String>, SendError> {
        let (document, mut shown) = (window.parsed()?, Vec::new());
        for metric in &window.shape.metrics {
            let (direction, name) = (metric.direction.name(), &metric.name);
            let Some(entries) = document[direction][name]["entries"].as_array() else {
                continue;
            };
            let plan = Self::plan(
                &mut self.plans,
                &mut self.session,
                &self.more,
                &window.shape,
                metric,
            );
            let left = most.saturating_sub(shown.len());
            for entry in entries.iter().take(left) {
                shown.push(format!(
                    "{direction}.{name}: {}",
                    plan.shown(&self.session.registry, entry)
                ));
            }
        }
        Ok(shown)
    }

    fn window(&mut self, window: &StreamWindow) -> Result<u64, SendError> {
        let document = DocumentHead::of(window)?;
        let (mut records, mut omitted) = (0, 0);
        for metric in window
            .shape
            .metrics
            .iter()
            .filter(|metric| document.has_entries(metric))
        {
            let plan = Self::plan(
                &mut self.plans,
                &mut self.session,
                &self.more,
                &window.shape,
                metric,
            );
            let (head, mut failure) = (head(&window.name, metric, plan), None);
            entries_of(window, metric, |entry| {
                match plan.add(&mut self.session, &head, entry) {
                    Ok((added, left_out)) => {
                        (records, omitted) = (records + added, omitted + left_out);
                    }
                    Err(error) => failure = Some(error),
                }
            })?;
            if let Some(error) = failure {
                return Err(error);
            }
        }
        let mut record = identity(&window.name);
        times(&mut record, &window.name, ElementType::Nanoseconds);
        let lost = document.window["lost_windows"].as_u64().unwrap_or_default();
        [records, lost, omitted]
            .iter()
            .for_each(|number| record.extend(number.to_be_bytes()));
        put_variable(&mut record, short(&document.interfaces.to_string()));
        put_variable(
            &mut record,
            short(document.approximate.as_deref().unwrap_or_default()),
        );
        self.options(&WINDOW, &record)?;
        Ok(omitted)
    }

    fn gap(&mut self, gap: &StreamGap) -> Result<(), SendError> {
        let mut record = identity(&gap.name);
        [gap.last, gap.windows]
            .iter()
            .for_each(|number| record.extend(number.to_be_bytes()));
        self.options(&GAP, &record)
    }

    /// Adds an options record. Its scope is the identity at its beginning.
    fn options(&mut self, behind: &[Own], record: &[u8]) -> Result<(), SendError> {
        let owns = IDENTITY.iter().chain(behind);
        let elements = owns.map(|own| self.session.registry.own(*own)).collect();
        let template = self.session.template(Template {
            scope: IDENTITY.len(),
            elements,
        })?;
        self.session.record(template, record);
        Ok(())
    }

    fn plan<'a>(
        plans: &'a mut HashMap<(String, Direction, String), MetricTemplates>,
        session: &mut CollectorSession,
        more: &BTreeMap<String, String>,
        shape: &WindowShape,
        metric: &MetricShape,
    ) -> &'a mut MetricTemplates {
        let key = (shape.digest.clone(), metric.direction, metric.name.clone());
        plans
            .entry(key)
            .or_insert_with(|| MetricTemplates::new(&mut session.registry, metric, more))
    }
}

fn identity(name: &ItemName) -> Vec<u8> {
    let mut record = name.seq.to_be_bytes().to_vec();
    for text in [&name.series.node, &name.series.probe, &name.series.instance] {
        put_variable(&mut record, text.as_bytes());
    }
    record
}

fn times(record: &mut Vec<u8>, name: &ItemName, kind: ElementType) {
    for time in [&name.start, &name.end] {
        put(record, kind, &FieldContent::Time, &Value::from(&**time));
    }
}

/// Returns the first fields of each record of a metric.
fn head(name: &ItemName, metric: &MetricShape, plan: &MetricTemplates) -> Vec<u8> {
    let mut record = identity(name);
    times(&mut record, name, ElementType::Nanoseconds);
    put_variable(&mut record, metric.name.as_bytes());
    record.push(match metric.direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
    });
    for (with, time) in [(plan.with_start, &name.start), (plan.with_end, &name.end)] {
        if with {
            put(
                &mut record,
                ElementType::Milliseconds,
                &FieldContent::Time,
                &Value::from(&**time),
            );
        }
    }
    record
}

/// Returns the octets of a text, cut so that they fit into the smallest message.
fn short(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(100)]
}
