//! What an operator says about the numbers of a metric: what they count from, and how several become one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the numbers of a metric count from. Only OpenMetrics says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Temporality {
    /// From the last reset: each reading starts at zero again.
    #[default]
    Window,
    /// From the deployment of the probe: windows are added up.
    Cumulative,
    /// The map as it is; nobody but the program resets it.
    Live,
}

/// How a PERCPU metric's values of all possible CPUs become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Wraps in the width of the field, as it does in the program.
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

    /// The aggregation of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|aggregation| aggregation.name() == name)
    }
}

/// How a number in a new window joins the sum of the windows before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    pub const ALL: [Self; 5] = [Self::Sum, Self::Max, Self::Min, Self::Or, Self::Last];

    /// The name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Or => "or",
            Self::Last => "last",
        }
    }

    /// The rule of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// The merge rules of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeRules {
    /// The rule for what `fields` does not name.
    pub default: MergeRule,
    /// By path of the value's field (`bytes`, `tcp.syn`); a struct's rule holds for all below it.
    pub fields: BTreeMap<String, MergeRule>,
}

impl From<MergeRule> for MergeRules {
    fn from(default: MergeRule) -> Self {
        Self { default, fields: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_configurations_and_lead_back() {
        for aggregation in Aggregation::ALL {
            assert_eq!(serde_json::to_value(aggregation).unwrap(), aggregation.name());
            assert_eq!(Aggregation::from_name(aggregation.name()), Some(aggregation));
        }
        for rule in MergeRule::ALL {
            assert_eq!(MergeRule::from_name(rule.name()), Some(rule));
        }
    }
}
