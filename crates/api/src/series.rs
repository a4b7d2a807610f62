//! The answer of `GET /v1/probes/{name}/series`.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use twinprobe_ebpf_common::Direction;

/// Numbers of one metric over the retained windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub probe: String,
    pub metric: String,
    pub direction: Direction,
    /// The path of the number in the value; empty if the value is a number itself.
    pub field: String,
    /// The meaning of the numbers.
    pub shows: ChartKind,
    /// The ends of the points, RFC 3339.
    pub times: Vec<String>,
    /// The seconds that the windows of each point cover: an increase divided by them is a rate.
    /// Zero if there are no windows.
    pub seconds: Vec<f64>,
    /// The number of windows that the points are made of.
    pub windows: u64,
    /// The number of windows in that time that could not be used: damaged, or with other keys or
    /// fields.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The server that the numbers come from, with its port; `None` if they are those of retained
    /// windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The keys with the largest numbers, the largest first.
    pub series: Vec<ChartSeries>,
    /// All other keys; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherKeys>,
}

/// The meaning of the numbers of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// The counts within the time of the point.
    Increase,
    Max,
    Min,
    Or,
    /// The number at the end of the point.
    Last,
}

/// One key of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartSeries {
    /// The key, as documents show it; `null` if the map has no keys.
    pub key: Value,
    /// The total over all points.
    pub total: Option<Number>,
    /// A number for each point; `null` if there is none.
    pub values: Vec<Option<Number>>,
}

/// All keys that a chart does not show one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherKeys {
    /// The number of these keys.
    pub keys: u64,
    pub total: Option<Number>,
    /// The total at each point; `null` where a total means nothing.
    pub values: Vec<Option<Number>>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
