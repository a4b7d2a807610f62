//! What of a metric becomes labels and what becomes samples.

use twinprobe_ebpf_common::{MapFamily, Render};

use super::text::{label_name, metric_name, push_name};
use crate::decode::bits::Bits;
use crate::decode::plan::{Field, Plan, Scalar};
use crate::leaf::{Leaf, LeafKind, Meaning};
use crate::metric::Metric;

/// A key of more parts is written in hex, as one label.
const MAX_LABELS: usize = 64;
/// What nested structs of long names would have as the name of their family is left out.
const MAX_NAME_LEN: usize = 512;

/// A metric as samples; compiled once.
#[derive(Debug)]
pub struct Samples {
    pub keys: Vec<KeyLabel>,
    /// Empty where there are no keys: reading a queue is taking from it, and its values have no name.
    pub values: Vec<Value>,
    /// Parts of each value that are no numbers.
    pub unfit: u64,
    pub is_histogram: bool,
}

#[derive(Debug)]
pub struct KeyLabel {
    /// `,name="`
    pub prefix: String,
    pub field: Field<()>,
}

/// The samples of one family.
#[derive(Debug)]
pub struct Value {
    pub family: String,
    /// If the numbers can be those of a counter: neither negative nor mere names.
    pub counts: bool,
    pub leaf: Leaf<()>,
    /// The arrays around it, outermost first.
    pub arrays: Vec<Dimension>,
}

#[derive(Clone, Debug)]
pub struct Dimension {
    /// `,index="`
    pub prefix: String,
    pub stride: usize,
    pub len: usize,
}

impl Value {
    /// Samples of one value.
    pub fn count(&self) -> u64 {
        self.arrays.iter().fold(1, |count, array| count.saturating_mul(array.len as u64))
    }
}

impl Samples {
    pub fn new(metric: &Metric) -> Self {
        let layout = &*metric.layout;
        let mut samples = Self { keys: Vec::new(), values: Vec::new(), unfit: 0, is_histogram: false };
        let plan = Plan::new(&layout.value, str::to_owned);
        let mut walk = Walk { samples: &mut samples, path: metric_name(&metric.name), arrays: Vec::new() };
        walk.value(&plan, 0, layout.value.size, None);
        if layout.kind.family() == MapFamily::Fifo {
            let fit =
                samples.values.drain(..).fold(0, |count: u64, value| count.saturating_add(value.count()));
            samples.unfit = samples.unfit.saturating_add(fit);
            return samples;
        }
        samples.is_histogram = layout.value.render == Some(Render::Histogram)
            && layout.kind.family() == MapFamily::Array
            && layout.key.size == 4
            && matches!(plan, Plan::Scalar { kind: Scalar::Unsigned | Scalar::Swapped, .. });
        if layout.kind.has_keys() {
            let mut taken = samples.own_labels(layout.kind.is_percpu() && metric.agg.is_none());
            let mut keys = Keys { fields: Vec::new() };
            let plan = Plan::new(&layout.key, str::to_owned);
            let complete = keys.collect(&plan, "", 0, layout.key.size, None).is_some();
            if !complete || keys.fields.is_empty() {
                let size = layout.key.size;
                keys.fields = vec![("key".to_owned(), field(Plan::Blob { size }, 0, size, None))];
            }
            for (name, field) in keys.fields {
                let prefix = format!(",{}=\"", unique(&name, &mut taken));
                samples.keys.push(KeyLabel { prefix, field });
            }
        }
        samples
    }

    /// The labels that don't come from the key.
    fn own_labels(&self, per_cpu: bool) -> Vec<String> {
        let mut names = vec!["probe".to_owned(), "direction".to_owned()];
        if per_cpu {
            names.push("cpu".to_owned());
        }
        let depth = self.values.iter().map(|value| value.arrays.len()).max().unwrap_or(0);
        names.extend((0..depth).map(dimension));
        names
    }

    /// Numbers of one value.
    pub fn fit(&self) -> u64 {
        self.values.iter().fold(0, |count, value| count.saturating_add(value.count()))
    }
}

/// `index` for the outermost array, then `index1` and so on.
fn dimension(depth: usize) -> String {
    if depth == 0 { "index".to_owned() } else { format!("index{depth}") }
}

/// A legal label name that no other label has.
fn unique(name: &str, taken: &mut Vec<String>) -> String {
    let mut name = label_name(name);
    if name.starts_with("__") || taken.contains(&name) {
        name.insert_str(0, "key_");
    }
    let mut candidate = name.clone();
    let mut number = 2;
    while taken.contains(&candidate) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    taken.push(candidate.clone());
    candidate
}

const fn field(plan: Plan<()>, offset: usize, size: usize, bits: Option<Bits>) -> Field<()> {
    Field { label: (), offset, size, bits, plan }
}

/// Takes a value apart.
struct Walk<'a> {
    samples: &'a mut Samples,
    path: String,
    arrays: Vec<Dimension>,
}

impl Walk<'_> {
    fn value(&mut self, plan: &Plan<String>, offset: usize, size: usize, bits: Option<Bits>) {
        match plan {
            Plan::Scalar { kind, .. } => {
                let (leaf, meaning) = LeafKind::of(kind);
                let counts =
                    meaning == Meaning::Quantity && matches!(kind, Scalar::Unsigned | Scalar::Swapped);
                self.leaf(Leaf { kind: leaf, tag: (), offset, size, bits }, counts);
            }
            Plan::Float { .. } => {
                self.leaf(Leaf { kind: LeafKind::Float, tag: (), offset, size, bits: None }, false);
            }
            Plan::Struct(fields) => {
                for field in fields {
                    let parent = self.path.len();
                    push_name(&mut self.path, &field.label);
                    self.value(&field.plan, offset + field.offset, field.size, field.bits);
                    self.path.truncate(parent);
                }
            }
            Plan::Array { element, stride, len } => {
                let prefix = format!(",{}=\"", dimension(self.arrays.len()));
                self.arrays.push(Dimension { prefix, stride: *stride, len: *len });
                self.value(element, offset, *stride, None);
                self.arrays.pop();
            }
            Plan::Text { .. } | Plan::Blob { .. } | Plan::Ipv4 | Plan::Ipv6 | Plan::Mac => self.unfit(),
        }
    }

    fn leaf(&mut self, leaf: Leaf<()>, counts: bool) {
        if self.path.len() > MAX_NAME_LEN {
            return self.unfit();
        }
        let (family, arrays) = (self.path.clone(), self.arrays.clone());
        self.samples.values.push(Value { family, counts, leaf, arrays });
    }

    fn unfit(&mut self) {
        let count = self.arrays.iter().fold(1_u64, |count, array| count.saturating_mul(array.len as u64));
        self.samples.unfit = self.samples.unfit.saturating_add(count);
    }
}

/// Takes a key apart.
struct Keys {
    fields: Vec<(String, Field<()>)>,
}

impl Keys {
    /// None if there are too many parts.
    fn collect(
        &mut self,
        plan: &Plan<String>,
        path: &str,
        offset: usize,
        size: usize,
        bits: Option<Bits>,
    ) -> Option<()> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}_{name}") };
        let plan = match plan {
            Plan::Struct(fields) => {
                return fields.iter().try_for_each(|field| {
                    let name = below(&field.label);
                    self.collect(&field.plan, &name, offset + field.offset, field.size, field.bits)
                });
            }
            Plan::Array { element, stride, len } => {
                let path = if path.is_empty() { "key" } else { path };
                return (0..*len).try_for_each(|index| {
                    self.collect(element, &format!("{path}_{index}"), offset + index * stride, *stride, None)
                });
            }
            Plan::Scalar { kind, size } => Plan::Scalar { kind: kind.clone(), size: *size },
            Plan::Float { size } => Plan::Float { size: *size },
            Plan::Text { size } => Plan::Text { size: *size },
            Plan::Blob { size } => Plan::Blob { size: *size },
            Plan::Ipv4 => Plan::Ipv4,
            Plan::Ipv6 => Plan::Ipv6,
            Plan::Mac => Plan::Mac,
        };
        let name = if path.is_empty() { "key" } else { path };
        self.fields.push((name.to_owned(), field(plan, offset, size, bits)));
        (self.fields.len() <= MAX_LABELS && name.len() <= MAX_NAME_LEN).then_some(())
    }
}
