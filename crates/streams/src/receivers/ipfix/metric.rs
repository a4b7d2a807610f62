//! Metrics as templates, and entries of metrics as records of these templates.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use twinprobe_ebpf_common::Temporality;
use twinprobe_ebpf_common::window::shape::{FieldContent, FieldShape, MetricShape, NumberMeaning};

use super::element::{Element, ElementRegistry, ElementSemantics, ElementType, Own, unit};
use super::session::{CollectorSession, Template};
use super::standard::{FLOW_DIRECTION, FLOW_END, FLOW_START, name_of, standard};
use super::value::{put, put_nothing};
use crate::receiver::SendError;

/// The most octets of a field of fixed length that contains hex digits. For a longer field, each
/// record contains the length.
const FIXED: usize = 32;
/// The most octets of a field of variable length, for each attempt. If an entry is too long for a
/// message, it is encoded again with the next limit.
const CAPS: [usize; 4] = [usize::MAX, 255, 32, 0];
/// The bit of a variant whose records have the entry in JSON.
const WITH_REST: u64 = 1 << 63;
/// The most addresses of either version in one record.
const ADDRESSES: u32 = 62;

/// The elements of the identity at the beginning of each record. The first element has a fixed
/// length: python3-ipfix 0.9 loops forever at records that begin with a variable-length element.
pub const IDENTITY: [Own; 4] = [Own::WindowSequence, Own::Node, Own::Probe, Own::Instance];

/// The way in which the entries of a metric become records.
#[derive(Debug)]
pub struct MetricTemplates {
    /// The elements of each record before the elements of the entry.
    head: Vec<Element>,
    /// The number of elements at the beginning that are the scope. A metric whose key describes no
    /// flow has a scope, because it describes the probe.
    scope: usize,
    fields: Vec<RecordField>,
    rest: Element,
    per_cpu: bool,
    /// True if records need the start and the end of the window, because they have no times of a
    /// flow.
    pub with_start: bool,
    pub with_end: bool,
    /// The templates, each by the properties in which its records differ: the versions of
    /// addresses, and the presence of the rest in JSON.
    templates: HashMap<u64, u16>,
}

/// A field of an entry.
#[derive(Debug)]
struct RecordField {
    source: FieldSource,
    path: Vec<String>,
    content: FieldContent,
    element: Element,
    /// The element for an address of version 6, and the bit of templates that have this element.
    version_6: Option<(u64, Element)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldSource {
    Key,
    Value,
    Cpu,
}

/// The data for the elements of a plan.
struct Planner<'a> {
    registry: &'a mut ElementRegistry,
    metric: &'a MetricShape,
    more: &'a BTreeMap<String, String>,
    used: HashSet<Element>,
    addresses: u32,
}

/// The part of a record that has the elements of the entry.
struct EncodedEntry {
    bytes: Vec<u8>,
    variant: u64,
    omitted: u64,
}

impl MetricTemplates {
    /// Makes the templates of a metric. `more` has names of fields, each with the name of the IANA
    /// element that it means.
    pub fn new(
        registry: &mut ElementRegistry,
        metric: &MetricShape,
        more: &BTreeMap<String, String>,
    ) -> Self {
        let mut planner = Planner {
            registry,
            metric,
            more,
            used: HashSet::new(),
            addresses: 0,
        };
        let mut fields = Vec::new();
        if let Some(key) = &metric.key {
            leaves(key, &mut Vec::new(), &mut |field, path| {
                fields.push(planner.field(FieldSource::Key, field, path));
            });
        }
        let is_flow = fields
            .iter()
            .any(|field: &RecordField| field.element.enterprise.is_none());
        if metric.per_cpu {
            fields.push(RecordField {
                source: FieldSource::Cpu,
                path: Vec::new(),
                content: FieldContent::Unsigned { bits: 32 },
                element: planner.registry.own(Own::Cpu),
                version_6: None,
            });
        }
        leaves(&metric.value, &mut Vec::new(), &mut |field, path| {
            fields.push(planner.field(FieldSource::Value, field, path));
        });
        let used = std::mem::take(&mut planner.used);
        let time = |number| Element::iana(number, ElementType::Milliseconds);
        let lacks = |number| is_flow && !used.contains(&time(number));
        let (with_start, with_end) = (lacks(FLOW_START), lacks(FLOW_END));
        let mut head: Vec<Element> = IDENTITY.iter().map(|own| registry.own(*own)).collect();
        head.extend([Own::WindowStart, Own::WindowEnd, Own::Metric].map(|own| registry.own(own)));
        head.push(FLOW_DIRECTION);
        head.extend(
            [(with_start, FLOW_START), (with_end, FLOW_END)]
                .iter()
                .filter(|(with, _)| *with)
                .map(|(_, n)| time(*n)),
        );
        let scope = if is_flow { 0 } else { IDENTITY.len() };
        let (rest, per_cpu) = (registry.own(Own::Rest), metric.per_cpu);
        Self {
            head,
            scope,
            fields,
            rest,
            per_cpu,
            with_start,
            with_end,
            templates: HashMap::new(),
        }
    }

    /// Adds the records of an entry. Each record begins with the octets in `head`. Returns the
    /// number of records, and the number of fields that are left out.
    pub fn add(
        &mut self,
        session: &mut CollectorSession,
        head: &[u8],
        entry: &Value,
    ) -> Result<(u64, u64), SendError> {
        let value = &entry["value"];
        let values = match value.as_array().filter(|_| self.per_cpu) {
            Some(values) => &values[..],
            None => std::slice::from_ref(value),
        };
        let mut left_out = 0;
        for (cpu, value) in values.iter().enumerate() {
            let room = session.room().saturating_sub(head.len());
            let mut encoded = self.encode(entry, value, cpu, CAPS[0]);
            for cap in &CAPS[1..] {
                if encoded.bytes.len() <= room {
                    break;
                }
                encoded = self.encode(entry, value, cpu, *cap);
            }
            left_out += encoded.omitted;
            let template = self.template(session, encoded.variant)?;
            session.record(template, &[head, &encoded.bytes].concat());
        }
        Ok((values.len() as u64, left_out))
    }

    /// Returns an entry as one line for people: the elements with the values that they get.
    pub fn shown(&self, registry: &ElementRegistry, entry: &Value) -> String {
        let value = match entry["value"].as_array().filter(|_| self.per_cpu) {
            Some(values) => values.first().unwrap_or(&Value::Null),
            None => &entry["value"],
        };
        let fields = self.fields.iter().filter_map(|field| {
            let found = match field.source {
                FieldSource::Key => at(&entry["key"], &field.path)?,
                FieldSource::Value => at(value, &field.path)?,
                FieldSource::Cpu => &Value::from(0),
            };
            let text = found
                .as_str()
                .map_or_else(|| found.to_string(), str::to_owned);
            let element = match field.version_6 {
                Some((_, version_6)) if text.contains(':') => version_6,
                _ => field.element,
            };
            let name = registry
                .name(element)
                .map(str::to_owned)
                .or_else(|| name_of(element))?;
            Some(format!("{name}={text}"))
        });
        fields.collect::<Vec<_>>().join(", ")
    }

    fn encode(&self, entry: &Value, value: &Value, cpu: usize, cap: usize) -> EncodedEntry {
        let (mut bytes, mut variant, mut omitted, mut fits) = (Vec::new(), 0, 0, true);
        let key = &entry["key"];
        for field in &self.fields {
            let cpu = Value::from(cpu);
            let found = match field.source {
                FieldSource::Key => at(key, &field.path),
                FieldSource::Value => at(value, &field.path),
                FieldSource::Cpu => Some(&cpu),
            };
            let mut element = field.element;
            if let Some((bit, version_6)) = field.version_6
                && found
                    .and_then(Value::as_str)
                    .is_some_and(|text| text.contains(':'))
            {
                (variant, element) = (variant | bit, version_6);
            }
            let before = bytes.len();
            match found {
                Some(found) => fits &= put(&mut bytes, element.kind, &field.content, found),
                None => {
                    fits = false;
                    put_nothing(&mut bytes, element.kind);
                }
            }
            let is_variable = matches!(element.kind, ElementType::Text | ElementType::Octets(None));
            if is_variable && bytes.len() - before > cap.saturating_add(3) {
                bytes.truncate(before);
                put_nothing(&mut bytes, element.kind);
                omitted += 1;
            }
        }
        if !fits || self.shows_more(key) {
            let text = entry.to_string();
            variant |= WITH_REST;
            let is_held = text.len() <= cap
                && put(
                    &mut bytes,
                    ElementType::Text,
                    &FieldContent::Text { size: 0 },
                    &text.into(),
                );
            if !is_held {
                put_nothing(&mut bytes, ElementType::Text);
                omitted += 1;
            }
        }
        EncodedEntry {
            bytes,
            variant,
            omitted,
        }
    }

    /// A key may show bits of its padding besides its members.
    fn shows_more(&self, key: &Value) -> bool {
        let is_known = |name: &String| {
            self.fields
                .iter()
                .any(|field| field.source == FieldSource::Key && field.path.first() == Some(name))
        };
        let has_members = self
            .fields
            .iter()
            .any(|field| field.source == FieldSource::Key && !field.path.is_empty());
        has_members && key.as_object().is_some_and(|key| !key.keys().all(is_known))
    }

    fn template(&mut self, session: &mut CollectorSession, variant: u64) -> Result<u16, SendError> {
        if let Some(number) = self.templates.get(&variant) {
            return Ok(*number);
        }
        let mut elements = self.head.clone();
        elements.extend(self.fields.iter().map(|field| match field.version_6 {
            Some((bit, version_6)) if variant & bit != 0 => version_6,
            _ => field.element,
        }));
        elements.extend((variant & WITH_REST != 0).then_some(self.rest));
        let number = session.template(Template {
            scope: self.scope,
            elements,
        })?;
        self.templates.insert(variant, number);
        Ok(number)
    }
}

impl Planner<'_> {
    fn field(&mut self, source: FieldSource, field: &FieldShape, path: &[String]) -> RecordField {
        // A number that has no name gets the name of its metric.
        let name = path.last().unwrap_or(&self.metric.name);
        // An element in the configuration takes precedence over a tag of the source.
        let chosen = self
            .more
            .get(name)
            .or(field.ie.as_ref())
            .map(String::as_str);
        let choice = standard(name, &field.content, self.metric.reading, chosen).filter(|choice| {
            !self.used.contains(&choice.element)
                && choice
                    .version_6
                    .is_none_or(|other| !self.used.contains(&other))
        });
        let (element, version_6) = match choice {
            Some(choice) => (choice.element, choice.version_6),
            None => self.own(source, field, path),
        };
        self.used.insert(element);
        self.used.extend(version_6);
        let version_6 = version_6.map(|element| {
            self.addresses += 1;
            (1 << self.addresses, element)
        });
        RecordField {
            source,
            path: path.to_vec(),
            content: field.content.clone(),
            element,
            version_6,
        }
    }

    /// Returns one of our elements for a field, and the element for an address of version 6.
    fn own(
        &mut self,
        source: FieldSource,
        field: &FieldShape,
        path: &[String],
    ) -> (Element, Option<Element>) {
        let MetricShape {
            name: metric,
            reading,
            help,
            ..
        } = self.metric;
        let semantics = match field.meaning {
            Some(NumberMeaning::Quantity) if *reading == Temporality::Window => {
                ElementSemantics::DeltaCounter
            }
            Some(NumberMeaning::Quantity) => ElementSemantics::TotalCounter,
            Some(NumberMeaning::Smallest | NumberMeaning::Largest) => ElementSemantics::Quantity,
            Some(NumberMeaning::Flags) => ElementSemantics::Flags,
            Some(NumberMeaning::Identity) => ElementSemantics::Identifier,
            _ => ElementSemantics::Default,
        };
        let unit = unit(field.unit.as_deref());
        let is_address = field.content == FieldContent::Ip && self.addresses < ADDRESSES;
        let kind = if is_address {
            ElementType::Ipv4
        } else {
            kind(&field.content)
        };
        let whole = if source == FieldSource::Key {
            "key"
        } else {
            "value"
        };
        let plain = if path.is_empty() {
            whole.to_owned()
        } else {
            path.join(".")
        };
        let mut name = format!("{metric}.{plain}");
        let mut element = self.registry.field(&name, kind, semantics, unit, help);
        if self.used.contains(&element) {
            // A member of the value may have the same name as a member of the key.
            name = format!("{metric}.{whole}.{plain}");
            element = self.registry.field(&name, kind, semantics, unit, help);
        }
        let version_6 = is_address.then(|| {
            self.registry.field(
                &format!("{name}.ipv6"),
                ElementType::Ipv6,
                semantics,
                unit,
                help,
            )
        });
        (element, version_6)
    }
}

/// Calls `visit` with each field that is not a struct, and with the names of the structs that
/// contain it.
fn leaves(
    field: &FieldShape,
    path: &mut Vec<String>,
    visit: &mut impl FnMut(&FieldShape, &[String]),
) {
    let FieldContent::Struct { fields } = &field.content else {
        return visit(field, path);
    };
    for member in fields {
        path.push(member.name.clone());
        leaves(member, path, visit);
        path.pop();
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

const fn kind(content: &FieldContent) -> ElementType {
    match content {
        FieldContent::Unsigned { bits } => ElementType::integer(*bits, false),
        FieldContent::Signed { bits } => ElementType::integer(*bits, true),
        // Nearly all sums fit into 64 bits; larger sums are in the rest in JSON.
        FieldContent::Decimal { signed } => ElementType::integer(64, *signed),
        FieldContent::Float { bits: 32 } => ElementType::Float32,
        FieldContent::Float { .. } => ElementType::Float64,
        FieldContent::Bool => ElementType::Boolean,
        FieldContent::Hex { size } if *size <= FIXED => ElementType::Octets(Some(*size as u16)),
        FieldContent::Hex { .. } => ElementType::Octets(None),
        FieldContent::Ipv4 => ElementType::Ipv4,
        FieldContent::Mac => ElementType::Mac,
        FieldContent::Time => ElementType::Nanoseconds,
        // Arrays and inner maps are encoded as JSON.
        FieldContent::Ip
        | FieldContent::Prefix
        | FieldContent::Text { .. }
        | FieldContent::Interface
        | FieldContent::Name { .. }
        | FieldContent::Flags { .. }
        | FieldContent::Struct { .. }
        | FieldContent::Array { .. }
        | FieldContent::Entries { .. } => ElementType::Text,
    }
}
