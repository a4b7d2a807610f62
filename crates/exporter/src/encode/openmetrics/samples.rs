//! The labels and samples of a metric: the parts of its keys that become labels, and the parts of
//! its values that become samples.

pub mod keys;

use twinprobe_ebpf_common::{Layout, MapFamily, MergeRule, MergeRules};

use self::keys::{INTERFACE, MAX_NAME_LEN, key_parts, unique};
use super::names::units::{Scale, as_timestamp, in_base_units};
use super::text::{metric_name, push_name};
use crate::decode::key::Padding;
use crate::encode::fragment::Fragment;
use crate::metric::Metric;
use twinprobe_ebpf_common::field::bits::Bits;
use twinprobe_ebpf_common::field::join::LeafJoin;
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::Leaf;
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan, Scalar};

/// The labels and samples of a metric, which are computed once.
#[derive(Debug)]
pub struct Samples {
    /// The parts of the key that become labels, each with the beginning of the label's text:
    /// `,name="`.
    pub keys: Vec<FieldPlan<String>>,
    /// The beginnings of these labels' texts, ready to be written.
    pub starts: Vec<Fragment>,
    /// The bits of the key that no label shows, and the beginning of the label for these bits,
    /// which is written if any of them is set.
    pub padding: (Padding, String),
    /// The samples of each value. Empty for queues and stacks: their values have no key to tell
    /// them apart, and are freed once they were read.
    pub values: Vec<FamilySamples>,
    /// The number of parts of each value that become no samples.
    pub unfit: u64,
    /// True if the rows are the slots of a histogram, or of one histogram for each interface.
    pub is_histogram: bool,
    /// The most rows that become samples.
    pub max_rows: usize,
    /// The place of the value that decides which rows are the largest.
    pub by: usize,
}

/// The samples that the values of one metric have in one family.
#[derive(Debug)]
pub struct FamilySamples {
    /// The name of the family, in base units.
    pub family: String,
    /// The factor of the numbers to the base unit.
    pub scale: Scale,
    /// The path of the field in the value, as rules of `merge` name the field; empty for a value
    /// without fields.
    pub field: String,
    /// True if the numbers can belong to a counter: they are neither negative nor names.
    pub counts: bool,
    /// The rule by which windows add up; `None` if there is no rule, or if it is unknown.
    pub merge: Option<MergeRule>,
    /// The rule by which rows without samples of their own add up.
    pub join: LeafJoin,
    /// The position of the number in the value.
    pub leaf: Leaf<()>,
    /// The arrays around the number, outermost first.
    pub arrays: Vec<Dimension>,
}

/// An array around a number: each of its elements is a sample with the index as a label.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// The beginning of the index label's text: `,index="`.
    pub prefix: String,
    /// The distance from one element to the next, in bytes.
    pub stride: usize,
    pub len: usize,
}

impl FamilySamples {
    /// Returns the number of samples of one value.
    pub fn count(&self) -> u64 {
        elements(&self.arrays)
    }
}

fn elements(arrays: &[Dimension]) -> u64 {
    arrays
        .iter()
        .fold(1, |count, array| count.saturating_mul(array.len as u64))
}

impl Samples {
    /// Computes the labels and samples. `value` is the layout of the shown values, and `configured`
    /// are the names of labels that the samples have beside their own.
    pub fn new<'a>(
        metric: &Metric,
        value: &Layout,
        configured: impl Iterator<Item = &'a String>,
    ) -> Self {
        let layout = &*metric.layout;
        let (keys, starts, values) = Default::default();
        let padding = (Padding::of_parts::<String>(0, &[]), String::new());
        let mut samples = Self {
            keys,
            starts,
            padding,
            values,
            unfit: 0,
            is_histogram: false,
            max_rows: usize::MAX,
            by: 0,
        };
        samples.add_values(metric, value);
        if layout.kind.family() == MapFamily::Fifo {
            samples.unfit = samples.unfit.saturating_add(samples.fit());
            samples.values.clear();
            return samples;
        }
        samples.is_histogram = metric.has_slots();
        if !samples.is_histogram {
            let limit = metric.series.max_series.map(usize::try_from);
            samples.max_rows = limit.and_then(Result::ok).unwrap_or(usize::MAX);
            samples.by = samples.by(metric.series.series_by.as_deref());
        }
        if layout.kind.has_keys() {
            let mut taken = samples.own_labels(layout.kind.is_percpu() && metric.agg.is_none());
            taken.extend(configured.cloned());
            samples.add_labels(metric, taken);
        }
        samples
    }

    /// Adds the samples of values with the layout `value`.
    fn add_values(&mut self, metric: &Metric, value: &Layout) {
        let subsystem = metric
            .series
            .subsystem
            .as_ref()
            .map(|name| format!("{name}_"))
            .unwrap_or_default();
        let path = metric_name(&format!("{subsystem}{}", metric.name));
        let mut walk = LayoutWalk {
            metric,
            samples: self,
            path,
            field: String::new(),
            arrays: Vec::new(),
            is_item: false,
        };
        let plan = Plan::new(value, str::to_owned);
        walk.value(&plan, 0, value.size, None);
    }

    /// Adds the labels of the key, with names that differ from the `taken` ones.
    fn add_labels(&mut self, metric: &Metric, mut taken: Vec<String>) {
        let mut keys = key_parts(metric);
        let padding = Padding::of_parts(metric.layout.key.size, &keys);
        for key in &mut keys {
            key.label = format!(",{}=\"", unique(&key.label, &mut taken));
            self.starts.push(Fragment::new(key.label.as_bytes()));
        }
        self.keys = keys;
        self.padding = (padding, format!(",{}=\"", unique("padding", &mut taken)));
    }

    /// Returns the place of the value that has this path, or else of the first counter, or else of
    /// the first number.
    fn by(&self, path: Option<&str>) -> usize {
        let place = |is_it: &dyn Fn(&FamilySamples) -> bool| self.values.iter().position(is_it);
        let is_counter = |value: &FamilySamples| value.counts && value.join.rule == MergeRule::Sum;
        let named = path.and_then(|path| place(&|value| value.field == path));
        named.or_else(|| place(&is_counter)).unwrap_or(0)
    }

    /// Returns the names of the labels that don't come from the key.
    fn own_labels(&self, per_cpu: bool) -> Vec<String> {
        let mut names = vec!["probe".to_owned(), "direction".to_owned()];
        if per_cpu {
            names.push("cpu".to_owned());
        }
        let depth = self
            .values
            .iter()
            .map(|value| value.arrays.len())
            .max()
            .unwrap_or(0);
        names.extend((0..depth).map(dimension));
        names
    }

    /// Tells whether the key names the interface.
    pub fn has_interface(&self) -> bool {
        self.keys.iter().any(|key| {
            key.label
                .strip_prefix(',')
                .and_then(|key| key.strip_suffix("=\""))
                == Some(INTERFACE)
        })
    }

    /// Returns the number of samples that each value has, in all families together.
    pub fn fit(&self) -> u64 {
        self.values
            .iter()
            .fold(0, |count, value| count.saturating_add(value.count()))
    }
}

/// Returns the label of an array: `index` for the outermost, then `index1` and so on.
fn dimension(depth: usize) -> String {
    if depth == 0 {
        "index".to_owned()
    } else {
        format!("index{depth}")
    }
}

/// Splits the layout of a value into samples.
struct LayoutWalk<'a> {
    metric: &'a Metric,
    samples: &'a mut Samples,
    /// The name of the family.
    path: String,
    /// The path of the field in the value, as rules of `merge` name the field.
    field: String,
    arrays: Vec<Dimension>,
    /// True for the items of an array. The members of items have names of their own.
    is_item: bool,
}

impl LayoutWalk<'_> {
    fn value(&mut self, plan: &Plan<String>, offset: usize, size: usize, bits: Option<Bits>) {
        match plan {
            Plan::Scalar { kind, .. } => {
                let leaf = Leaf {
                    kind: LeafKind::of(kind),
                    tag: (),
                    offset,
                    size,
                    bits,
                };
                self.scalar(kind, leaf);
            }
            Plan::Float { .. } => {
                let leaf = Leaf {
                    kind: LeafKind::Float,
                    tag: (),
                    offset,
                    size,
                    bits: None,
                };
                let meaning = Meaning::of(None, &self.field, leaf.width(), self.is_item);
                self.leaf(leaf, false, meaning, None);
            }
            Plan::Struct(fields) => self.members(fields, offset),
            Plan::Array {
                element,
                stride,
                len,
            } => {
                let prefix = format!(",{}=\"", dimension(self.arrays.len()));
                self.arrays.push(Dimension {
                    prefix,
                    stride: *stride,
                    len: *len,
                });
                let is_item = std::mem::replace(&mut self.is_item, true);
                self.value(element, offset, *stride, None);
                self.is_item = is_item;
                self.arrays.pop();
            }
            Plan::Text { .. }
            | Plan::Blob { .. }
            | Plan::Ipv4
            | Plan::Ip
            | Plan::Mac
            | Plan::Prefix(_) => {
                self.unfit();
            }
        }
    }

    /// Adds the samples of an integer.
    fn scalar(&mut self, kind: &Scalar, leaf: Leaf<()>) {
        let meaning = Meaning::of(Some(kind), &self.field, leaf.width(), self.is_item);
        let counts = meaning == Meaning::Quantity
            && matches!(kind, Scalar::Unsigned | Scalar::Decimal { signed: false });
        let time = match kind {
            Scalar::Ktime => Some(Scale::SinceBoot),
            Scalar::Time => Some(Scale::NANO),
            _ => None,
        };
        self.leaf(leaf, counts, meaning, time);
    }

    /// Adds the samples of the members of a struct at this offset.
    fn members(&mut self, fields: &[FieldPlan<String>], offset: usize) {
        let is_item = std::mem::replace(&mut self.is_item, false);
        for field in fields {
            let (parent, outer) = (self.path.len(), self.field.len());
            push_name(&mut self.path, &field.label);
            if outer > 0 {
                self.field.push('.');
            }
            self.field.push_str(&field.label);
            self.value(&field.plan, offset + field.offset, field.size, field.bits);
            self.path.truncate(parent);
            self.field.truncate(outer);
        }
        self.is_item = is_item;
    }

    fn leaf(&mut self, leaf: Leaf<()>, counts: bool, meaning: Meaning, time: Option<Scale>) {
        if self.path.len() > MAX_NAME_LEN {
            return self.unfit();
        }
        let (family, scale) = match time {
            Some(scale) => (as_timestamp(&self.path), scale),
            None => in_base_units(&self.path),
        };
        let (field, arrays) = (self.field.clone(), self.arrays.clone());
        let rules = self.metric.series.merge.as_ref();
        let join = rules
            .unwrap_or(&MergeRules::default())
            .join(&self.field, meaning);
        let merge = rules.map(|_| join.rule);
        self.samples.values.push(FamilySamples {
            family,
            scale,
            field,
            counts,
            merge,
            join,
            leaf,
            arrays,
        });
    }

    fn unfit(&mut self) {
        self.samples.unfit = self.samples.unfit.saturating_add(elements(&self.arrays));
    }
}

#[cfg(test)]
pub mod tests;
