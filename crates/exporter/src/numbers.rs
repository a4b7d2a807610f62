//! One number of each row of a metric, for charts.

use std::borrow::Cow;
use std::sync::Arc;

use twinprobe_ebpf_common::field::bits::load_small;
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

/// The error for a value that has no number of this name. The text lists the existing numbers; the
/// flag is true if these have names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoNumber(String, pub bool);

/// A number of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Integer(i128),
    Float(f64),
}

/// The number of bits with which integers are computed.
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

    /// Joins an older and a newer number by a rule.
    pub fn join(self, rule: MergeRule, newer: Self) -> Self {
        match (self, newer, rule) {
            (_, _, MergeRule::Last) => newer,
            (Self::Integer(a), Self::Integer(b), MergeRule::Sum) => {
                Self::Integer(a.saturating_add(b))
            }
            (Self::Integer(a), Self::Integer(b), MergeRule::Or) => Self::Integer(a | b),
            (a, b, MergeRule::Sum) => Self::Float(a.as_f64() + b.as_f64()),
            (_, _, MergeRule::Or) => newer,
            (a, b, MergeRule::Max) if b.as_f64() > a.as_f64() => b,
            (a, b, MergeRule::Min) if b.as_f64() < a.as_f64() => b,
            (a, _, MergeRule::Max | MergeRule::Min) => a,
        }
    }
}

/// Finds one number in each row of a metric.
#[derive(Debug)]
pub struct Numbers {
    /// The metric in the form that has one table: a map of maps is flattened.
    nested: Arc<Metric>,
    metric: Arc<Metric>,
    path: String,
    join: LeafJoin,
    leaves: Leaves<()>,
    folder: Option<Folder>,
    key: Option<KeyPlan<Fragment>>,
    /// The place of the number in each value; `None` if the number has no such simple place.
    fixed: Option<FixedPlace>,
    /// The bits of the numbers of one value, in memory that is used again for the next value.
    bits: Vec<u128>,
}

/// The place of an unsigned number of whole bytes in a value, in bytes.
#[derive(Clone, Copy, Debug)]
struct FixedPlace {
    offset: usize,
    size: usize,
    /// True if the number is in network order.
    swapped: bool,
}

/// The numbers of a table's rows, in the order of the rows.
#[derive(Clone, Debug, PartialEq)]
pub enum NumberColumn {
    Words(Vec<u64>),
    Numbers(Vec<Number>),
}

impl NumberColumn {
    pub fn len(&self) -> usize {
        match self {
            Self::Words(words) => words.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of a row.
    pub fn get(&self, row: usize) -> Option<Number> {
        match self {
            Self::Words(words) => words.get(row).map(|&word| Number::Integer(word.into())),
            Self::Numbers(numbers) => numbers.get(row).copied(),
        }
    }

    /// Appends the numbers of more rows of the same table.
    pub fn append(&mut self, other: Self) {
        match (&mut *self, other) {
            (own, more) if own.is_empty() => *own = more,
            (Self::Words(words), Self::Words(more)) => words.extend(more),
            (Self::Numbers(numbers), Self::Numbers(more)) => numbers.extend(more),
            (_, more) => *self = Self::Numbers(self.numbers().chain(more.numbers()).collect()),
        }
    }

    fn numbers(&self) -> impl Iterator<Item = Number> {
        (0..self.len()).filter_map(|row| self.get(row))
    }
}

impl Numbers {
    /// Finds the number with this path. Without a path, finds the first counter, or else the first
    /// number.
    pub fn new(metric: &Arc<Metric>, path: Option<&str>) -> Result<Self, NoNumber> {
        let nested = Arc::clone(metric);
        let metric = flat(metric);
        let folded = Folded::of(&metric, &metric.layout);
        let value = folded
            .as_ref()
            .map_or(&metric.layout.value, |folded| &folded.value);
        let rules = metric.series.merge.clone().unwrap_or_default();
        let mut known: Vec<(String, LeafJoin, bool)> = Vec::new();
        Leaves::new(value, &mut |path, meaning| {
            let join = rules.join(path, meaning);
            known.push((
                path.to_owned(),
                join,
                meaning == Meaning::Quantity && join.rule == MergeRule::Sum,
            ));
            None::<()>
        });
        let named = |name: &str| known.iter().find(|(path, ..)| path == name);
        let first = || {
            known
                .iter()
                .find(|(.., counts)| *counts)
                .or_else(|| known.first())
        };
        let found = path.map_or_else(first, named).cloned();
        let (path, join, _) = found.ok_or_else(|| no_number(path, &known))?;
        let leaves = Leaves::new(value, &mut |other, _| (other == path).then_some(()));
        let folder = Folder::of(&metric, &metric.layout);
        let key = metric
            .layout
            .kind
            .has_keys()
            .then(|| KeyPlan::new(&metric.layout.key, Json::label));
        let has_one =
            folder.is_none() && metric.layout.value_stride() == metric.layout.slot_stride();
        let fixed = if has_one { fixed_place(&leaves) } else { None };
        let bits = Vec::new();
        Ok(Self {
            nested,
            path,
            join,
            leaves,
            folder,
            key,
            metric,
            fixed,
            bits,
        })
    }

    /// Returns the path of the number; empty if the value is itself a number.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Tells whether the numbers may be negative.
    pub fn is_signed(&self) -> bool {
        let mut is_signed = false;
        self.leaves.for_each(|leaf, _| {
            is_signed |= matches!(
                leaf.kind,
                LeafKind::Float | LeafKind::Number { signed: true, .. }
            );
        });
        is_signed
    }

    /// Returns the rule by which two numbers of the metric are merged into one.
    pub const fn rule(&self) -> MergeRule {
        self.join.rule
    }

    /// Returns the layout of the rows in the form that has one table.
    pub fn layout(&self) -> &TableLayout {
        &self.metric.layout
    }

    /// Returns the rows of the metric as one table; maps of maps have many tables.
    pub fn rows<'a>(&self, table: &'a RawTable) -> Cow<'a, RawTable> {
        flatten(&self.nested, Cow::Borrowed(table))
    }

    /// Returns the numbers of consecutive values, which have the form of rows. An incomplete value
    /// at the end does not count.
    pub fn column(&mut self, values: &[u8]) -> NumberColumn {
        let stride = self.metric.layout.value_stride().max(1);
        let values = values.chunks_exact(stride);
        match self.fixed.and_then(|place| place.words(values.clone())) {
            Some(words) => NumberColumn::Words(words),
            None => NumberColumn::Numbers(values.map(|value| self.of(value)).collect()),
        }
    }

    /// Returns the number of one value, which has the form of rows.
    pub fn of(&mut self, value: &[u8]) -> Number {
        let Self {
            metric,
            leaves,
            folder,
            join,
            bits,
            ..
        } = self;
        bits.clear();
        let mut kind = LeafKind::Bool;
        let mut load = |slot: &[u8]| {
            leaves.for_each(|leaf, base| {
                kind = leaf.kind;
                bits.push(leaf.load(slot, base));
            });
        };
        match folder {
            Some(folder) => load(folder.fold(value)),
            None => value
                .chunks_exact(metric.layout.slot_stride().max(1))
                .for_each(&mut load),
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

    /// Returns a key in JSON, in the form of documents; `null` without keys.
    pub fn key(&self, key: &[u8], context: &Context) -> String {
        let Some(plan) = &self.key else {
            return "null".to_owned();
        };
        let mut json = Json::default();
        Decoder::new(context).key(plan, key, &mut json);
        String::from_utf8_lossy(json.buffer()).into_owned()
    }
}

/// Returns the place of the value's only number, which must be unsigned and of whole bytes.
fn fixed_place(leaves: &Leaves<()>) -> Option<FixedPlace> {
    let (mut found, mut count) = (None, 0);
    leaves.for_each(|leaf, base| {
        count += 1;
        if let (
            LeafKind::Number {
                signed: false,
                swapped,
            },
            None,
            1 | 2 | 4 | 8,
        ) = (leaf.kind, leaf.bits, leaf.size)
        {
            found = Some(FixedPlace {
                offset: base + leaf.offset,
                size: leaf.size,
                swapped,
            });
        }
    });
    found.filter(|_| count == 1)
}

impl FixedPlace {
    /// Returns the numbers of values; `None` if one has more than 64 bits, which is possible for a
    /// sum.
    fn words<'a>(self, values: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u64>> {
        let Self {
            offset,
            size,
            swapped,
        } = self;
        let number = |value: &'a [u8]| load_small(&value[offset..offset + size]);
        Some(match (size, swapped) {
            // The most frequent sizes have cases of their own, so that the loop need not look at
            // the size.
            (8, false) => values
                .map(|value| load_small(&value[offset..offset + 8]))
                .collect(),
            (16, false) => {
                let mut high = 0;
                let low = |value: &[u8]| {
                    high |= load_small(&value[offset + 8..offset + 16]);
                    load_small(&value[offset..offset + 8])
                };
                let words = values.map(low).collect();
                return (high == 0).then_some(words);
            }
            (16, true) => return None,
            (_, false) => values.map(number).collect(),
            (_, true) => values
                .map(|value| number(value).swap_bytes() >> (64 - 8 * size))
                .collect(),
        })
    }
}

fn no_number(path: Option<&str>, known: &[(String, LeafJoin, bool)]) -> NoNumber {
    let names: Vec<&str> = known
        .iter()
        .map(|(path, ..)| path.as_str())
        .take(LISTED)
        .collect();
    let path = path.unwrap_or_default();
    let text = match names[..] {
        [] => "the value has no numbers".to_owned(),
        [""] => format!("the value has no field {path}: it is a number itself; leave field out"),
        _ => format!(
            "the value has no number {path}; it has {}",
            names.join(", ")
        ),
    };
    NoNumber(text, !matches!(names[..], [] | [""]))
}

#[cfg(test)]
mod tests;
