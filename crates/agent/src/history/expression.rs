//! The question about a metric, in PromQL. Nothing of it is a client's text: its words are those of the probe's own samples.
//!
//! Samples reach servers in two ways. `twinprobe stream` writes each window, with the label `node` and no `job`. Servers scrape
//! `/metrics`, and add `job` and `instance`; `twinprobe_probe_info` of the same target names the node.

use twinprobe_api::ChartKind;
use twinprobe_ebpf_common::{Direction, MergeRule, Temporality};
use twinprobe_exporter::ExportedNumber;

use crate::history::steps::HistorySteps;

/// The label that tells the sum of all keys, and their number, from the keys.
pub const MARK: &str = "twinprobe_history";
pub const TOTAL: &str = "total";
pub const KEYS: &str = "keys";
/// The labels that servers give to what they scrape, and streams to what they send.
pub const TAKEN: [&str; 4] = ["job", "instance", "node", "le"];
/// The shortest range in seconds over which the growth of a counter is computed: it needs several scrapes.
const SHORTEST: i64 = 300;

/// What is asked about a metric.
#[derive(Clone, Debug)]
pub struct HistorySubject {
    pub probe: String,
    pub node: String,
    pub metric: String,
    pub direction: Direction,
    /// The path of the number in the value.
    pub field: String,
    pub number: ExportedNumber,
    pub temporality: Temporality,
    pub rule: MergeRule,
}

/// A range of a selector, and the moment at which it ends.
#[derive(Clone, Copy)]
struct Lookback {
    seconds: i64,
    /// True if the range ends with the chart instead of the point.
    is_whole: bool,
}

impl HistorySubject {
    /// Tells whether the samples are amounts of windows: a scrape has not all of them.
    pub fn is_of_windows(&self) -> bool {
        self.temporality == Temporality::Window
    }

    /// The meaning of the numbers, as `series` has it.
    pub fn kind(&self) -> ChartKind {
        match (self.is_of_windows(), self.rule) {
            (true, MergeRule::Sum) => ChartKind::Increase,
            (true, MergeRule::Max) => ChartKind::Max,
            (true, MergeRule::Min) => ChartKind::Min,
            _ if self.number.is_counter => ChartKind::Increase,
            _ => ChartKind::Last,
        }
    }

    /// The range in seconds that a point of this step is computed of.
    pub fn lookback(&self, step: i64) -> i64 {
        if self.is_of_windows() { step } else { step.max(SHORTEST) }
    }

    /// Returns the question for the `top` largest keys, the sum of all keys, and their number.
    pub fn expression(&self, steps: HistorySteps, top: usize) -> String {
        let shown = self.per_key(Lookback { seconds: self.lookback(steps.step), is_whole: false });
        if self.number.by.is_empty() {
            return shown;
        }
        let ranked = self.per_key(Lookback { seconds: steps.range(), is_whole: true });
        let by = self.number.by.join(", ");
        // One of the largest may stand for keys that have no samples of their own.
        let top = top + usize::from(self.number.is_limited);
        let marked =
            |what: &str, of: &str| format!("label_replace({of}, \"{MARK}\", \"{what}\", \"\", \"\")");
        let total = marked(TOTAL, &format!("sum({shown})"));
        let keys = marked(KEYS, &format!("count({ranked})"));
        format!("({shown} and on ({by}) topk({top}, {ranked})) or {total} or {keys}")
    }

    /// Returns the numbers of all keys. What was sent comes before what was scraped, and nothing is added up twice: of several
    /// series of a key, as two servers that scrape make them, the largest counts.
    fn per_key(&self, range: Lookback) -> String {
        let ([probe, node], direction) =
            ([&self.probe, &self.node].map(|text| quoted(text)), self.direction.name());
        let own = format!("probe={probe},direction=\"{direction}\"");
        let sent = self.summed(&format!("{own},node={node},job=\"\""), range, "");
        if self.is_of_windows() {
            return sent;
        }
        let info = |label: &str| {
            format!(
                "last_over_time(twinprobe_probe_info{{probe={probe},job!=\"\",{label}={node}}}{})",
                range.text()
            )
        };
        let of_node = format!(" and on (job, instance) ({} or {})", info("node"), info("exported_node"));
        let scraped = self.summed(&format!("{own},job!=\"\""), range, &of_node);
        format!("({sent} or {scraped})")
    }

    fn summed(&self, labels: &str, range: Lookback, condition: &str) -> String {
        let ExportedNumber { name, by, parts, .. } = &self.number;
        let function = match (self.kind(), self.is_of_windows()) {
            (ChartKind::Increase, true) => "sum_over_time",
            (ChartKind::Increase, false) => "increase",
            (ChartKind::Max, _) => "max_over_time",
            (ChartKind::Min, _) => "min_over_time",
            (ChartKind::Or | ChartKind::Last, _) => "last_over_time",
        };
        let numbers = format!("({function}({name}{{{labels}}}{}){condition})", range.text());
        let join = match self.rule {
            MergeRule::Sum => "sum",
            MergeRule::Min => "min",
            MergeRule::Max | MergeRule::Or | MergeRule::Last => "max",
        };
        let whole = match &parts[..] {
            [] => numbers,
            parts => format!("{join} without ({}) {numbers}", parts.join(", ")),
        };
        if by.is_empty() { format!("max({whole})") } else { format!("max by ({}) ({whole})", by.join(", ")) }
    }
}

impl Lookback {
    fn text(self) -> String {
        format!("[{}s]{}", self.seconds, if self.is_whole { " @ end()" } else { "" })
    }
}

/// Returns a text between quotation marks.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
