//! The settings of a metric: the way to read its map, the start of its counts, the aggregation over CPUs.

pub mod distribution;
pub mod head;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The beginning of a metric's counts. Only OpenMetrics shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Temporality {
    /// Numbers count from the last reset: each reading starts at zero again.
    #[default]
    Window,
    /// Numbers count from the deployment of the probe: windows are added up.
    Cumulative,
    /// The present map; only the program resets it.
    Live,
}

/// The completeness of a metric's map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// The most entries that the map can have; `None` if no number of entries bounds it (variables, rings).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
    /// For a sum of windows, the entries of the map at the end of the window; `None` if the rows are the
    /// entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_used: Option<u64>,
    /// The counts of failed insertions; `None` if the source does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

/// The numbers of writes to a map that failed for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// The losses in the time that the reading is about.
    pub shown: u64,
    /// All losses so far.
    pub total: u64,
}

/// The rule that makes one value of a PERCPU metric's values of all possible CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Wraps at the width of the field, like the program.
    Sum,
    /// The mean over all possible CPUs, truncated towards zero.
    Avg,
    Min,
    Max,
}

impl Aggregation {
    pub const ALL: [Self; 4] = [Self::Sum, Self::Avg, Self::Min, Self::Max];

    /// The name used in configurations, documents and stored windows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// The way in which a metric becomes samples, beside its layout. Only OpenMetrics shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRules {
    /// The rules by which windows add up; `None` if they do not, or if the window is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRules>,
    /// The label of a key that has no parts; `None` for the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_label: Option<String>,
    /// The most entries that become samples, the largest ones; `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_series: Option<u64>,
    /// The path of the number for this choice; `None` for the first counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_by: Option<String>,
    /// The prefix of the names of the families, before the name of the metric; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
}

/// The rule by which a number in a new window joins the sum of the earlier windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeRule {
    #[default]
    Sum,
    Max,
    Min,
    /// Bitwise, for sets of flags.
    Or,
    /// The newest window's number.
    Last,
}

impl MergeRule {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 5] =
        [("sum", Self::Sum), ("max", Self::Max), ("min", Self::Min), ("or", Self::Or), ("last", Self::Last)];
}

/// The merge rules of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRules {
    /// The rule for the fields that `fields` does not name.
    pub default: MergeRule,
    /// The rules by path of the value's field (`bytes`, `tcp.syn`); a struct's rule holds for all its fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, MergeRule>,
}

impl From<MergeRule> for MergeRules {
    fn from(default: MergeRule) -> Self {
        Self { default, fields: BTreeMap::new() }
    }
}

/// The way in which a metric counts, according to its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Each reading takes the counts since the last reading out of this copy of the map.
    Window(MapCopy),
    /// The windows of a snapshot add up by these rules.
    Sum(MergeRules),
    /// A reading shows the present map.
    Live,
}

/// The treatment of a map's content when the probe is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReplace {
    /// The content continues where the map still fits.
    #[default]
    Carry,
    /// The content begins anew.
    Reset,
}

/// The copy of the map for the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapCopy {
    /// The copy that the programs write to.
    Live,
    /// The twin that the flip has just taken out of use.
    Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRead {
    Keep,
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Export,
    /// Reset with the others, and never shown.
    Hidden,
}

/// The way in which entries are taken out of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// The fastest way the kernel has for the map's type.
    Auto,
    /// Entry by entry, for comparison.
    Iterative,
}

impl StrategyChoice {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 2] = [("auto", Self::Auto), ("iterative", Self::Iterative)];
}

impl OnReplace {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 2] = [("carry", Self::Carry), ("reset", Self::Reset)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_configurations_and_lead_back() {
        for aggregation in Aggregation::ALL {
            let stored = serde_json::to_value(aggregation).unwrap();
            assert_eq!(stored, aggregation.name());
            assert_eq!(serde_json::from_value::<Aggregation>(stored).unwrap(), aggregation);
        }
        for (name, rule) in MergeRule::NAMES {
            assert_eq!(serde_json::to_value(rule).unwrap(), name);
        }
    }
}
