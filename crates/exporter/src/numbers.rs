//! One number of each row of a metric, for charts.

use std::borrow::Cow;
use std::sync::Arc;

use twinprobe_ebpf_common::field::join::{LeafJoin, fold};
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::Leaves;
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::{Context, MergeRule, RawTable, TableLayout};

use crate::aggregate::{Folded, Folder};
use crate::decode::decoder::Decoder;
use crate::decode::key::KeyPlan;
use crate::decode::sink::ValueSink as _;
use crate::encode::fragment::Fragment;
use crate::encode::json::Json;
use crate::encode::openmetrics::rows::flat::{flat, flatten};
use crate::encode::sink::DocumentSink as _;
use crate::metric::Metric;

/// The value has no number of this name. The text lists those that it has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoNumber(String);

/// A number of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

/// The bits in which integers are computed.
const WIDTH: u32 = 128;
/// The most fields that a message lists.
const LISTED: usize = 20;

impl Number {
    pub const ZERO: Self = Self::Integer(0);

    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// Returns how much larger the number is than `other`.
    pub fn minus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(a.saturating_sub(b)),
            (a, b) => Self::Float(a.as_f64() - b.as_f64()),
        }
    }

    /// Joins an older number and a newer one.
    pub fn join(self, rule: MergeRule, newer: Self) -> Self {
        match (self, newer, rule) {
            (_, _, MergeRule::Last) => newer,
            (Self::Integer(a), Self::Integer(b), MergeRule::Sum) => Self::Integer(a.saturating_add(b)),
            (Self::Integer(a), Self::Integer(b), MergeRule::Or) => Self::Integer(a | b),
            (a, b, MergeRule::Sum) => Self::Float(a.as_f64() + b.as_f64()),
            (_, _, MergeRule::Or) => newer,
            (a, b, MergeRule::Max) => {
                if b.as_f64() > a.as_f64() {
                    b
                } else {
                    a
                }
            }
            (a, b, MergeRule::Min) => {
                if b.as_f64() < a.as_f64() {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Finds one number in each row of a metric.
#[derive(Debug)]
pub struct Numbers {
    /// The metric, and the same as one table if it is a map of maps.
    nested: Arc<Metric>,
    metric: Arc<Metric>,
    path: String,
    join: LeafJoin,
    leaves: Leaves<()>,
    folder: Option<Folder>,
    key: Option<KeyPlan<Fragment>>,
}

impl Numbers {
    /// Finds the number with this path; without a path the first counter, else the first number.
    pub fn new(metric: &Arc<Metric>, path: Option<&str>) -> Result<Self, NoNumber> {
        let nested = Arc::clone(metric);
        let metric = flat(metric);
        let folded = Folded::of(&metric, &metric.layout);
        let value = folded.as_ref().map_or(&metric.layout.value, |folded| &folded.value);
        let rules = metric.series.merge.clone().unwrap_or_default();
        let mut known: Vec<(String, LeafJoin, bool)> = Vec::new();
        Leaves::new(value, &mut |path, meaning| {
            let join = rules.join(path, meaning);
            known.push((path.to_owned(), join, meaning == Meaning::Quantity && join.rule == MergeRule::Sum));
            None::<()>
        });
        let named = |name: &str| known.iter().find(|(path, ..)| path == name);
        let first = || known.iter().find(|(.., counts)| *counts).or_else(|| known.first());
        let found = path.map_or_else(first, named).cloned();
        let (path, join, _) = found.ok_or_else(|| no_number(path, &known))?;
        let leaves = Leaves::new(value, &mut |other, _| (other == path).then_some(()));
        let folder = Folder::of(&metric, &metric.layout);
        let key = metric.layout.kind.has_keys().then(|| KeyPlan::new(&metric.layout.key, Json::label));
        Ok(Self { nested, path, join, leaves, folder, key, metric })
    }

    /// The path of the number; empty if the value is a number itself.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The rule by which two of the numbers join.
    pub const fn rule(&self) -> MergeRule {
        self.join.rule
    }

    /// The layout of the rows, as one table.
    pub fn layout(&self) -> &TableLayout {
        &self.metric.layout
    }

    /// Calls `visit` with the key and the number of each row of the metric.
    pub fn each(&mut self, table: &RawTable, visit: &mut dyn FnMut(&[u8], Number)) {
        let rows = flatten(&self.nested, Cow::Borrowed(table));
        let metric = Arc::clone(&self.metric);
        for (key, value) in rows.entries(&metric.layout) {
            visit(key, self.of(value));
        }
    }

    /// Returns the number of one value, as rows have it.
    pub fn of(&mut self, value: &[u8]) -> Number {
        let Self { metric, leaves, folder, join, .. } = self;
        let (mut kind, mut bits) = (LeafKind::Bool, Vec::new());
        let mut load = |slot: &[u8]| {
            leaves.for_each(|leaf, base| {
                kind = leaf.kind;
                bits.push(leaf.load(slot, base));
            });
        };
        match folder {
            Some(folder) => load(folder.fold(value)),
            None => value.chunks_exact(metric.layout.slot_stride().max(1)).for_each(&mut load),
        }
        let number = match &bits[..] {
            [one] => *one,
            all => fold(join.rule, kind, WIDTH, all.iter().copied()),
        };
        match kind {
            LeafKind::Float => Number::Float(f64::from_bits(number as u64)),
            LeafKind::Number { signed: true, .. } => Number::Integer(number.cast_signed()),
            LeafKind::Number { .. } | LeafKind::Bool => {
                Number::Integer(i128::try_from(number).unwrap_or(i128::MAX))
            }
        }
    }

    /// Returns a key in JSON, as documents show it; `null` where there are none.
    pub fn key(&self, key: &[u8], context: &Context) -> String {
        let Some(plan) = &self.key else { return "null".to_owned() };
        let mut json = Json::default();
        Decoder::new(context).key(plan, key, &mut json);
        String::from_utf8_lossy(json.buffer()).into_owned()
    }
}

fn no_number(path: Option<&str>, known: &[(String, LeafJoin, bool)]) -> NoNumber {
    let names: Vec<&str> = known.iter().map(|(path, ..)| path.as_str()).take(LISTED).collect();
    let path = path.unwrap_or_default();
    NoNumber(match names[..] {
        [] => "the value has no numbers".to_owned(),
        [""] => format!("the value has no field {path}: it is a number itself; leave field out"),
        _ => format!("the value has no number {path}; it has {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Aggregation, Layout, MapKind, Member, Shape};

    use super::*;

    fn member(name: &str, offset: usize, layout: Layout) -> Member {
        Member { name: name.into(), bit_offset: 8 * offset, bitfield: None, layout }
    }

    fn metric(kind: MapKind, slots: usize) -> Metric {
        let list = Shape::Array { element: Box::new(Layout::unsigned(2)), len: 2 };
        let list = Layout { size: 4, shape: list, render: None };
        let members = vec![
            member("port", 0, Layout::unsigned(2)),
            member("packets", 2, Layout::unsigned(2)),
            member("sizes", 4, list),
        ];
        let value = Layout { size: 8, shape: Shape::Struct(members), render: None };
        Metric::example("m", TableLayout { kind, key: Layout::unsigned(1), value, slots, inner: None })
    }

    fn numbers(metric: Metric, path: Option<&str>, values: &[u16]) -> Vec<(u8, Number)> {
        let mut numbers = Numbers::new(&Arc::new(metric), path).unwrap();
        let values = values.iter().flat_map(|number| number.to_le_bytes()).collect();
        let table = RawTable { keys: vec![7, 8], values, ..RawTable::default() };
        let mut found = Vec::new();
        numbers.each(&table, &mut |key, number| found.push((key[0], number)));
        found
    }

    #[test]
    fn a_number_is_found_by_its_path() {
        let values = [53, 10, 1, 2, 80, 20, 3, 4];
        let of = |path| numbers(metric(MapKind::Hash, 1), path, &values);
        let integers = |a, b| vec![(7, Number::Integer(a)), (8, Number::Integer(b))];
        assert_eq!(of(Some("port")), integers(53, 80));
        assert_eq!(of(None), integers(10, 20), "the first counter");
        assert_eq!(of(Some("sizes")), integers(3, 7), "items add up");
    }

    #[test]
    fn numbers_of_cpus_become_one() {
        let values = [1, 10, 0, 0, 1, 5, 0, 0];
        let summed = metric(MapKind::PercpuHash, 2).with(|head| head.agg = Some(Aggregation::Max));
        let one = |number| vec![(7, Number::Integer(number))];
        assert_eq!(numbers(summed, None, &values), one(10));
        assert_eq!(numbers(metric(MapKind::PercpuHash, 2), None, &values), one(15), "of all CPUs");
    }

    #[test]
    fn an_unknown_path_lists_those_that_there_are() {
        let error = Numbers::new(&Arc::new(metric(MapKind::Hash, 1)), Some("byte")).unwrap_err();
        assert_eq!(error.to_string(), "the value has no number byte; it has port, packets, sizes");
    }

    #[test]
    fn keys_are_those_of_documents() {
        let metric = Arc::new(metric(MapKind::Hash, 1));
        assert_eq!(Numbers::new(&metric, None).unwrap().key(&[9], &Context::default()), "9");
    }
}
