//! A probe whose programs, values and metrics change from one replacement to the next.

use serde_json::{Value, json};

/// The eBPF source: values of four layouts in four kinds of maps.
pub const LAYOUTS: &str = include_str!("../bpf/layouts.bpf.c");

/// The maps of [`LAYOUTS`].
pub const LAYOUT_MAPS: [&str; 4] = ["in_array", "in_hash", "in_percpu_array", "in_percpu_hash"];

/// The way in which metrics read the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The counts so far: neither `snapshot` nor `init`.
    Live,
    /// The counts since the last reading: `snapshot` and `init`.
    Window,
    /// The counts so far: `snapshot` without `init`.
    Cumulative,
    /// `init` without `snapshot`: like [`Self::Window`], if no packet comes during the reading.
    Init,
}

impl Reading {
    /// The readings that are exact under load.
    pub const ALL: [Self; 3] = [Self::Live, Self::Window, Self::Cumulative];
}

/// One of [`LAYOUTS`]' programs, as a direction of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub reading: Reading,
    /// `xdp` or `tc`.
    pub hook: &'static str,
    /// 0: packets, bytes, ports; 1: with more fields; 2: in another order; 3: packets only.
    pub layout: u32,
    /// A number that makes the program another one, with the same maps.
    pub variant: u32,
}

impl Layout {
    pub const fn new(reading: Reading) -> Self {
        Self {
            reading,
            hook: "xdp",
            layout: 0,
            variant: 0,
        }
    }

    /// Returns the direction of a program that counts packets at ingress and drops them.
    pub fn direction(self) -> Value {
        let (context, verdict) = match self.hook {
            "xdp" => ("xdp_md", "XDP_DROP"),
            _ => ("__sk_buff", "2 /* TC_ACT_SHOT */"),
        };
        let metrics: Vec<Value> = LAYOUT_MAPS.iter().map(|map| self.metric(map)).collect();
        json!({
            "hook": self.hook,
            "verdict": "enforce",
            "source": LAYOUTS,
            "defines": {
                "SECTION": format!("\"{}\"", self.hook), "CONTEXT": context, "VERDICT": verdict,
                "LAYOUT": self.layout.to_string(), "VARIANT": self.variant.to_string()
            },
            "metrics": metrics
        })
    }

    /// Returns the configuration of the program at mon0.
    pub fn config(self) -> Value {
        json!({ "interface": "mon0", "ingress": self.direction() })
    }

    fn metric(self, map: &str) -> Value {
        let mut metric = json!({ "name": map, "map": map });
        if matches!(self.reading, Reading::Window | Reading::Cumulative) {
            metric["snapshot"] = json!(true);
        }
        if matches!(self.reading, Reading::Window | Reading::Init) {
            metric["init"] = json!(true);
        }
        if map.contains("percpu") {
            metric["agg"] = json!("sum");
        }
        metric
    }
}

/// Returns the sum of one field over all entries of a metric; 0 if the metric has no entries.
///
/// # Panics
/// Panics if the metric is not in the document, or has entries without such a field.
pub fn field(document: &Value, metric: &str, path: &str) -> u64 {
    let entries = document["ingress"][metric]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no {metric} in {document}"));
    let number = |entry: &Value| entry["value"].pointer(path).and_then(Value::as_u64);
    entries
        .iter()
        .map(|entry| number(entry).unwrap_or_else(|| panic!("no {path} in {entry}")))
        .sum()
}

/// Returns the number of packets in each of the maps.
///
/// # Panics
/// Panics if the maps disagree.
pub fn packets(document: &Value) -> u64 {
    let counts = LAYOUT_MAPS.map(|map| field(document, map, "/packets"));
    assert_eq!(
        counts,
        [counts[0]; LAYOUT_MAPS.len()],
        "{LAYOUT_MAPS:?} disagree"
    );
    counts[0]
}
