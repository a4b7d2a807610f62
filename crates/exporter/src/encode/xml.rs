//! XML: the tree of the JSON document, as `api/metrics.xsd` describes it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use twinprobe_ebpf_common::metric::distribution::{
    CountedRange, Distribution, Distributions, PERCENTILES,
};
use twinprobe_ebpf_common::window::owner::AddressOwner;
use twinprobe_ebpf_common::{Context, DocumentOrigin, Fill, Head, PodNames};

use super::fragment::{Fragment, push_number, push_short};
use super::sink::DocumentSink;
use crate::decode::sink::ValueSink;
use crate::decode::text::escape;
use crate::metric::Metric;

/// Appends a document in XML to its buffer.
pub struct Xml {
    writer: Writer<Vec<u8>>,
}

impl Default for Xml {
    fn default() -> Self {
        Self {
            writer: Writer::new(Vec::new()),
        }
    }
}

impl Xml {
    fn event(&mut self, event: Event<'_>) {
        // Writing to a Vec does not fail.
        drop(self.writer.write_event(event));
    }

    fn begin<'a>(&mut self, name: &str, attributes: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let element = element(name, attributes);
        self.event(Event::Start(element));
    }

    fn end(&mut self, name: &str) {
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Appends the labels of the probe, if it has any.
    fn labels(&mut self, origin: Option<&DocumentOrigin>) {
        let Some(DocumentOrigin { labels, .. }) = origin.filter(|origin| !origin.labels.is_empty())
        else {
            return;
        };
        self.begin("labels", []);
        for (name, value) in labels {
            self.begin("label", [("name", &**name)]);
            self.text(value);
            self.end("label");
        }
        self.end("labels");
    }

    fn pods(&mut self, pods: &BTreeMap<String, PodNames>) {
        if pods.is_empty() {
            return;
        }
        self.begin("pods", []);
        for (interface, pod) in pods {
            let attributes = [("interface", &**interface)]
                .into_iter()
                .chain(pod.fields());
            self.event(Event::Empty(element("pod", attributes)));
        }
        self.end("pods");
    }

    /// Appends text that needs no escaping.
    fn push(&mut self, text: &str) {
        self.writer.get_mut().extend_from_slice(text.as_bytes());
    }

    /// Writes the totals of a histogram's slots: the counts of all entries, or of the entries of
    /// one interface.
    fn distribution(&mut self, interface: Option<&str>, distribution: &Distribution) {
        let percentiles = PERCENTILES.into_iter().filter_map(|(name, percent)| {
            Some((name, distribution.percentile(percent)?.to_string()))
        });
        let numbers: Vec<(&str, String)> =
            std::iter::once(("count", distribution.count().to_string()))
                .chain(percentiles)
                .collect();
        let named = interface.map(|name| ("interface", name));
        let numbers = numbers
            .iter()
            .map(|(name, number)| (*name, number.as_str()));
        self.begin("distribution", named.into_iter().chain(numbers));
        for CountedRange { from, to, count } in distribution.ranges() {
            let (from, to, count) = (from.to_string(), to.to_string(), count.to_string());
            let attributes = [("from", &*from), ("to", &*to), ("count", &*count)];
            self.event(Event::Empty(element("range", attributes)));
        }
        self.end("distribution");
    }
}

fn element<'n, 'a>(
    name: &'n str,
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BytesStart<'n> {
    let mut element = BytesStart::new(name);
    for (name, value) in attributes {
        element.push_attribute((name, &*legal(value)));
    }
    element
}

/// Escapes control characters that XML 1.0 can't write even as references, and carriage returns,
/// which parsers turn into line feeds. They look like the escaped bytes of texts that are not
/// UTF-8.
fn legal(text: &str) -> Cow<'_, str> {
    let illegal = |c: char| matches!(c, '\0'..='\x08' | '\x0b'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    if !text.contains(illegal) {
        return text.into();
    }
    let mut legal = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if illegal(c) => {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| escape(&mut legal, byte));
            }
            c => legal.push(c),
        }
    }
    legal.into()
}

impl ValueSink for Xml {
    /// The tags `<name>` and `</name>`.
    type Label = (Fragment, Fragment);

    /// Makes the tags of a member: C identifiers are XML names, except for the `$` that compilers
    /// allow.
    fn label(name: &str) -> Self::Label {
        let safe = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        };
        let mut name: String = name.chars().map(safe).collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            name.insert(0, '_');
        }
        (
            Fragment::new(format!("<{name}>").as_bytes()),
            Fragment::new(format!("</{name}>").as_bytes()),
        )
    }

    fn unsigned(&mut self, value: u64) {
        push_number(self.writer.get_mut(), value);
    }

    fn signed(&mut self, value: i64) {
        self.push(itoa::Buffer::new().format(value));
    }

    fn integer(&mut self, digits: &str) {
        self.push(digits);
    }

    fn float(&mut self, value: f64, text: fmt::Arguments<'_>) {
        if value.is_infinite() {
            // XML Schema spells infinities `INF` and `-INF`.
            self.push(if value > 0.0 { "INF" } else { "-INF" });
        } else {
            // XML Schema has the same text for NaN.
            drop(self.writer.get_mut().write_fmt(text));
        }
    }

    fn boolean(&mut self, value: bool) {
        self.push(if value { "true" } else { "false" });
    }

    fn text(&mut self, value: &str) {
        self.event(Event::Text(BytesText::new(&legal(value))));
    }

    fn plain(&mut self, value: &[u8]) {
        self.writer.get_mut().extend_from_slice(value);
    }

    fn short(&mut self, value: &[u8; 16], len: usize) {
        push_short(self.writer.get_mut(), value, len);
    }

    fn begin_member(&mut self, _: usize, (begin, _): &Self::Label) {
        begin.push_to(self.writer.get_mut());
    }

    fn end_member(&mut self, (_, end): &Self::Label) {
        end.push_to(self.writer.get_mut());
    }

    fn begin_item(&mut self, _: usize) {
        self.push("<item>");
    }

    fn end_item(&mut self) {
        self.push("</item>");
    }
}

impl DocumentSink for Xml {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.writer.get_mut()
    }

    fn begin_document(&mut self, document: &Head<'_>, context: &Context) {
        self.event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        self.push("\n");
        let interfaces = document.interfaces.join(",");
        let origin = document
            .origin
            .map(|origin| [("node", &*origin.node), ("instance", &*origin.instance)]);
        let attributes = [("probe", document.probe)].into_iter();
        let attributes = attributes
            .chain(origin.into_iter().flatten())
            .chain([("interfaces", &*interfaces)]);
        let attributes =
            attributes.chain(document.approximate.map(|reason| ("approximate", reason)));
        self.begin("metrics", attributes);
        self.labels(document.origin);
        self.pods(&context.pods);
        if let Some(window) = document.window {
            let (seq, quiesce) = (window.seq.to_string(), window.quiesce_us.to_string());
            let lost = window.lost_windows.to_string();
            let duration = window.duration_ns.map(|duration| duration.to_string());
            let step = window.clock_step_ns.map(|step| step.to_string());
            let attributes = [
                ("seq", &*seq),
                ("start", &window.start),
                ("end", &window.end),
            ]
            .into_iter()
            .chain(
                duration
                    .as_deref()
                    .map(|duration| ("duration_ns", duration)),
            )
            .chain(step.as_deref().map(|step| ("clock_step_ns", step)))
            .chain([("quiesce_us", &*quiesce)])
            .chain((window.lost_windows > 0).then_some(("lost_windows", &*lost)));
            self.event(Event::Empty(element("window", attributes)));
        }
        if let Some(replayed) = document.replayed {
            let numbers: Vec<(&str, String)> = replayed
                .numbers()
                .map(|(name, number)| (name, number.to_string()))
                .collect();
            let attributes = numbers.iter().map(|(name, number)| (*name, &**number));
            if replayed.lists().next().is_none() {
                return self.event(Event::Empty(element("replayed", attributes)));
            }
            self.begin("replayed", attributes);
            for (name, counts) in replayed.lists() {
                for (of, count) in counts {
                    let count = count.to_string();
                    let attributes = [("name", &**of), ("packets", &*count)];
                    self.event(Event::Empty(element(name, attributes)));
                }
            }
            self.end("replayed");
        }
    }

    fn end_document(&mut self) {
        self.end("metrics");
        self.push("\n");
    }

    fn begin_direction(&mut self, name: &str) {
        self.begin(name, []);
    }

    fn end_direction(&mut self, name: &str) {
        self.end(name);
    }

    fn empty_direction(&mut self, name: &str) {
        self.event(Event::Empty(BytesStart::new(name)));
    }

    fn begin_metric(&mut self, metric: &Metric) {
        let attributes = [
            ("name", &*metric.name),
            ("map", &metric.map),
            ("type", metric.type_name()),
            ("help", &metric.help),
        ];
        let agg = metric.agg.map(|agg| ("agg", agg.name()));
        let sample = metric.sample.map(|sample| sample.to_string());
        let sample = sample.as_deref().map(|sample| ("sample", sample));
        let dropped = (metric.dropped > 0).then(|| metric.dropped.to_string());
        let dropped = dropped
            .as_deref()
            .map(|dropped| ("dropped_entries", dropped));
        let histogram = metric.has_slots().then_some(("histogram", "true"));
        let attributes = attributes
            .into_iter()
            .chain(agg)
            .chain(sample)
            .chain(dropped)
            .chain(histogram);
        self.begin("metric", attributes);
    }

    fn begin_others(&mut self, entries: u64) {
        let entries = entries.to_string();
        self.begin("others", [("entries", &*entries)]);
    }

    fn end_others(&mut self) {
        self.end("others");
    }

    fn end_metric(&mut self, metric: &Metric, rows: u64, distributions: Option<&Distributions>) {
        if let Some(distributions) = distributions {
            self.distribution(None, distributions.all());
            for (interface, distribution) in distributions.of_interfaces() {
                self.distribution(Some(&interface), distribution);
            }
        }
        let mut attributes = Vec::new();
        let fill = metric.fill(rows);
        if let Some(Fill { used, max, full }) = fill {
            attributes.push(("entries_used", used.to_string()));
            attributes.push(("max_entries", max.to_string()));
            if full {
                attributes.push(("full", "true".to_owned()));
            }
        }
        if let Some(losses) = metric.completeness.losses {
            let share = fill
                .and_then(Fill::share)
                .map(|share| ("fill", share.to_string()));
            attributes.extend(share);
            attributes.push((metric.losses_name(), losses.shown.to_string()));
        }
        if !attributes.is_empty() {
            let attributes = attributes
                .iter()
                .map(|(name, value)| (*name, value.as_str()));
            self.event(Event::Empty(element("completeness", attributes)));
        }
        self.end("metric");
    }

    fn begin_entry(&mut self, _: usize) {
        self.push("<entry>");
    }

    fn begin_key(&mut self) {
        self.push("<key>");
    }

    fn end_key(&mut self) {
        self.push("</key>");
    }

    fn owners<'a>(&mut self, owners: impl Iterator<Item = (&'a str, &'a AddressOwner)>) {
        let mut owners = owners.peekable();
        if owners.peek().is_none() {
            return;
        }
        self.push("<names>");
        for (member, owner) in owners {
            let attributes = [("of", member)].into_iter().chain(owner.fields());
            self.event(Event::Empty(element("name", attributes)));
        }
        self.push("</names>");
    }

    fn begin_value(&mut self) {
        self.push("<value>");
    }

    fn end_value(&mut self) {
        self.push("</value>");
    }

    fn end_entry(&mut self) {
        self.push("</entry>");
    }
}

#[cfg(test)]
mod tests;
