//! The settings of a metric: the way to read its map, the beginning of its counts, and the
//! aggregation over CPUs.

pub mod distribution;
pub mod head;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The moment since which a metric counts. Only OpenMetrics shows this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Temporality {
    /// Numbers count from the last reset: each reading starts at zero again.
    #[default]
    Window,
    /// Numbers count from the deployment of the probe: windows are added up.
    Cumulative,
    /// Numbers show the present content of the map; only the program resets it.
    Live,
}

/// How much of the truth a metric's map contains: its capacity, its fill and its losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// The most entries that the map can have; `None` if no number of entries bounds it (variables,
    /// rings).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
    /// For a sum of windows, the number of entries in the map at the end of the window; `None` if
    /// each row is an entry of the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_used: Option<u64>,
    /// The counts of failed insertions; `None` if the source does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

/// The numbers of writes to a map that failed because the map was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// The losses in the time that a reading covers.
    pub shown: u64,
    /// All losses so far.
    pub total: u64,
}

/// The rule that makes one value from a PERCPU metric's values on all possible CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// The sum, which wraps at the width of the field, as in the program.
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

/// The rules by which a metric becomes samples of OpenMetrics. The other formats do not use these
/// rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRules {
    /// The rules by which windows add up; `None` if windows do not add up, or if an earlier version
    /// has stored the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRules>,
    /// The label of a key that has no parts; `None` for the default label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_label: Option<String>,
    /// The most entries that become samples; the largest entries are chosen. `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_series: Option<u64>,
    /// The path of the number by which entries are chosen; `None` for the first counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_by: Option<String>,
    /// The prefix of the families' names, before the name of the metric; `None` for no prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
}

/// The rule by which a number in a new window joins the sum of earlier windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeRule {
    #[default]
    Sum,
    Max,
    Min,
    /// The bitwise OR, for sets of flags.
    Or,
    /// The number in the newest window.
    Last,
}

impl MergeRule {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("sum", Self::Sum),
        ("max", Self::Max),
        ("min", Self::Min),
        ("or", Self::Or),
        ("last", Self::Last),
    ];
}

/// The merge rules of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRules {
    /// The rule for the fields that `fields` does not name.
    pub default: MergeRule,
    /// The rules for fields, by the path in the value (`bytes`, `tcp.syn`). The rule of a struct
    /// applies to all its fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, MergeRule>,
}

impl From<MergeRule> for MergeRules {
    fn from(default: MergeRule) -> Self {
        Self {
            default,
            fields: BTreeMap::new(),
        }
    }
}

/// The way in which a metric counts, according to its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Each reading takes the counts since the last reading, from this copy of the map.
    Window(MapCopy),
    /// The windows of a snapshot add up by these rules.
    Sum(MergeRules),
    /// A reading shows the present content of the map.
    Live,
}

/// The treatment of a map's content when the probe is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReplace {
    /// The content is kept if the new map fits.
    #[default]
    Carry,
    /// The new map begins empty.
    Reset,
}

/// The copy of the map that a reading reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapCopy {
    /// The copy to which the programs write.
    Live,
    /// The copy of the twin that the last flip has taken out of use.
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
    /// The map is reset with the other maps, and never shown.
    Hidden,
}

/// The way in which entries are read and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// The fastest way that the kernel has for the map's type.
    Auto,
    /// One entry after the other, for comparison.
    Iterative,
}

impl StrategyChoice {
    /// The words of configurations.
    pub const NAMES: [(&'static str, Self); 2] =
        [("auto", Self::Auto), ("iterative", Self::Iterative)];
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
            assert_eq!(
                serde_json::from_value::<Aggregation>(stored).unwrap(),
                aggregation
            );
        }
        for (name, rule) in MergeRule::NAMES {
            assert_eq!(serde_json::to_value(rule).unwrap(), name);
        }
    }
}
