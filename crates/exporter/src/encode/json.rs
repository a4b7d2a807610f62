//! Compact JSON. The encoder writes bytes directly: a tree of generic values would cost more than
//! the reading of the map.

use std::fmt;
use std::io::Write as _;

use twinprobe_ebpf_common::metric::distribution::{
    CountedRange, Distribution, Distributions, PERCENTILES,
};
use twinprobe_ebpf_common::window::owner::AddressOwner;
use twinprobe_ebpf_common::{Context, DocumentOrigin, Fill, Head, Replayed, Window};

use super::fragment::{Fragment, push_number, push_short, push_string};
use super::sink::DocumentSink;
use crate::decode::sink::ValueSink;
use crate::metric::Metric;

/// Appends a document in JSON to its buffer.
#[derive(Debug, Default)]
pub struct Json {
    out: Vec<u8>,
}

impl Json {
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    /// Appends `"name":`, after a comma unless the object has just begun.
    fn name(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        push_string(&mut self.out, name);
        self.out.push(b':');
    }

    /// Appends a property whose value is a text.
    fn property(&mut self, name: &str, text: &str) {
        self.name(name);
        push_string(&mut self.out, text);
    }

    fn pods(&mut self, context: &Context) {
        if !context.pods.is_empty() {
            self.name("pods");
            self.out.push(b'{');
            for (interface, pod) in &context.pods {
                self.name(interface);
                self.out.push(b'{');
                pod.fields()
                    .for_each(|(name, value)| self.property(name, value));
                self.out.push(b'}');
            }
            self.out.push(b'}');
        }
    }

    /// Appends the window that the document is about.
    fn window(&mut self, window: &Window) {
        self.name("window");
        self.out.push(b'{');
        self.number("seq", window.seq);
        self.property("start", &window.start);
        self.property("end", &window.end);
        if let Some(duration) = window.duration_ns {
            self.number("duration_ns", duration);
        }
        if let Some(step) = window.clock_step_ns {
            self.number("clock_step_ns", step);
        }
        self.number("quiesce_us", window.quiesce_us);
        if window.lost_windows > 0 {
            self.number("lost_windows", window.lost_windows);
        }
        self.out.push(b'}');
    }

    /// Appends the outcomes of the packets of captures.
    fn replayed(&mut self, replayed: &Replayed) {
        self.name("replayed");
        self.out.push(b'{');
        replayed
            .numbers()
            .for_each(|(name, number)| self.number(name, number));
        for (name, counts) in replayed.lists() {
            self.name(name);
            self.out.push(b'{');
            counts
                .iter()
                .for_each(|(name, count)| self.number(name, *count));
            self.out.push(b'}');
        }
        self.out.push(b'}');
    }

    /// Appends the totals of a histogram's slots.
    fn distributions(&mut self, distributions: &Distributions) {
        self.distribution(distributions.all());
        let mut of_interfaces = distributions.of_interfaces().peekable();
        if of_interfaces.peek().is_none() {
            return;
        }
        self.push(",\"by_interface\":{");
        for (interface, distribution) in of_interfaces {
            self.name(&interface);
            self.out.push(b'{');
            self.distribution(distribution);
            self.out.push(b'}');
        }
        self.out.push(b'}');
    }

    fn distribution(&mut self, distribution: &Distribution) {
        self.number("count", distribution.count());
        for (name, percent) in PERCENTILES {
            if let Some(bound) = distribution.percentile(percent) {
                self.number(name, bound);
            }
        }
        self.push(",\"ranges\":[");
        for (index, CountedRange { from, to, count }) in distribution.ranges().enumerate() {
            self.comma(index);
            self.out.push(b'{');
            self.number("from", from);
            self.number("to", to);
            self.number("count", count);
            self.out.push(b'}');
        }
        self.out.push(b']');
    }

    /// Appends a property whose value is a number.
    fn number(&mut self, name: &str, number: impl itoa::Integer) {
        self.name(name);
        self.push(itoa::Buffer::new().format(number));
    }
}

impl ValueSink for Json {
    /// The text `,"name":`.
    type Label = Fragment;

    fn label(name: &str) -> Fragment {
        let mut label = vec![b','];
        push_string(&mut label, name);
        label.push(b':');
        Fragment::new(&label)
    }

    fn unsigned(&mut self, value: u64) {
        push_number(&mut self.out, value);
    }

    fn signed(&mut self, value: i64) {
        self.push(itoa::Buffer::new().format(value));
    }

    fn integer(&mut self, digits: &str) {
        self.push(digits);
    }

    fn float(&mut self, value: f64, text: fmt::Arguments<'_>) {
        if value.is_finite() {
            drop(self.out.write_fmt(text));
        } else {
            self.push("null");
        }
    }

    fn boolean(&mut self, value: bool) {
        self.push(if value { "true" } else { "false" });
    }

    fn text(&mut self, value: &str) {
        push_string(&mut self.out, value);
    }

    fn plain(&mut self, value: &[u8]) {
        self.out.push(b'"');
        self.out.extend_from_slice(value);
        self.out.push(b'"');
    }

    fn short(&mut self, value: &[u8; 16], len: usize) {
        self.out.push(b'"');
        push_short(&mut self.out, value, len);
        self.out.push(b'"');
    }

    fn begin_struct(&mut self) {
        self.out.push(b'{');
    }

    fn begin_member(&mut self, index: usize, label: &Fragment) {
        if index > 0 {
            return label.push_to(&mut self.out);
        }
        // The brace takes the place of the comma.
        self.out.pop();
        let start = self.out.len();
        label.push_to(&mut self.out);
        self.out[start] = b'{';
    }

    fn end_struct(&mut self) {
        self.out.push(b'}');
    }

    fn begin_array(&mut self) {
        self.out.push(b'[');
    }

    fn begin_item(&mut self, index: usize) {
        self.comma(index);
    }

    fn end_array(&mut self) {
        self.out.push(b']');
    }
}

impl DocumentSink for Json {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn begin_document(&mut self, document: &Head<'_>, context: &Context) {
        self.out.push(b'{');
        self.property("probe", document.probe);
        if let Some(DocumentOrigin {
            node,
            instance,
            labels,
        }) = document.origin
        {
            self.property("node", node);
            self.property("instance", instance);
            if !labels.is_empty() {
                self.name("labels");
                self.out.push(b'{');
                labels
                    .iter()
                    .for_each(|(name, value)| self.property(name, value));
                self.out.push(b'}');
            }
        }
        self.name("interfaces");
        self.out.push(b'[');
        for (index, interface) in document.interfaces.iter().enumerate() {
            self.comma(index);
            push_string(&mut self.out, interface);
        }
        self.out.push(b']');
        self.pods(context);
        if let Some(reason) = document.approximate {
            self.property("approximate", reason);
        }
        if let Some(window) = document.window {
            self.window(window);
        }
        if let Some(replayed) = document.replayed {
            self.replayed(replayed);
        }
    }

    fn end_document(&mut self) {
        self.out.push(b'}');
    }

    fn begin_direction(&mut self, name: &str) {
        self.name(name);
        self.out.push(b'{');
    }

    fn end_direction(&mut self, _: &str) {
        self.out.push(b'}');
    }

    fn begin_metric(&mut self, metric: &Metric) {
        self.name(&metric.name);
        self.out.push(b'{');
        self.property("map", &metric.map);
        self.property("type", metric.type_name());
        self.property("help", &metric.help);
        if let Some(agg) = metric.agg {
            self.property("agg", agg.name());
        }
        if let Some(sample) = metric.sample {
            self.number("sample", sample.get());
        }
        if metric.dropped > 0 {
            self.number("dropped_entries", metric.dropped);
        }
        if metric.has_slots() {
            self.push(",\"histogram\":true");
        }
    }

    fn begin_others(&mut self, entries: u64) {
        self.name("others");
        self.out.push(b'{');
        self.number("entries", entries);
        self.out.push(b',');
    }

    fn end_others(&mut self) {
        self.out.push(b'}');
    }

    fn begin_entries(&mut self) {
        self.push(",\"entries\":[");
    }

    fn end_metric(&mut self, metric: &Metric, rows: u64, distributions: Option<&Distributions>) {
        self.out.push(b']');
        if let Some(distributions) = distributions {
            self.distributions(distributions);
        }
        let fill = metric.fill(rows);
        if let Some(Fill { used, max, full }) = fill {
            self.number("entries_used", used);
            self.number("max_entries", max);
            if full {
                self.push(",\"full\":true");
            }
        }
        if let Some(losses) = metric.completeness.losses {
            self.push(",\"completeness\":{");
            if let Some(share) = fill.and_then(Fill::share) {
                self.name("fill");
                drop(write!(self.out, "{share}"));
            }
            self.number(metric.losses_name(), losses.shown);
            self.out.push(b'}');
        }
        self.out.push(b'}');
    }

    fn begin_entry(&mut self, index: usize) {
        self.comma(index);
        self.out.push(b'{');
    }

    fn begin_key(&mut self) {
        self.push("\"key\":");
    }

    fn end_key(&mut self) {
        self.out.push(b',');
    }

    fn owners<'a>(&mut self, owners: impl Iterator<Item = (&'a str, &'a AddressOwner)>) {
        let mut owners = owners.peekable();
        if owners.peek().is_none() {
            return;
        }
        self.push("\"names\":{");
        for (member, owner) in owners {
            self.name(member);
            self.out.push(b'{');
            owner
                .fields()
                .for_each(|(name, value)| self.property(name, value));
            self.out.push(b'}');
        }
        self.push("},");
    }

    fn begin_value(&mut self) {
        self.push("\"value\":");
    }

    fn begin_inner(&mut self, kind: &str) {
        self.out.push(b'{');
        self.property("type", kind);
        self.push(",\"entries\":[");
    }

    fn end_inner(&mut self) {
        self.push("]}");
    }

    fn end_entry(&mut self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
