//! The query for a metric, in PromQL. No part of it is a client's text: its words come from the
//! probe's own samples.
//!
//! Samples reach servers in two ways. `twinprobe stream` writes each window, with the label `node`
//! and no `job`. Servers scrape `/metrics`, and add `job` and `instance`; `twinprobe_probe_info` of
//! the same target names the node.

use twinprobe_api::ChartKind;
use twinprobe_ebpf_common::{Direction, MergeRule, Temporality};
use twinprobe_exporter::ExportedNumber;

use crate::history::steps::HistorySteps;

/// The label that marks the sum of all keys, and the number of keys. The keys themselves do not
/// have it.
pub const MARK: &str = "twinprobe_history";
pub const TOTAL: &str = "total";
pub const KEYS: &str = "keys";
/// The labels that servers add to scraped samples, and that streams add to sent samples.
pub const TAKEN: [&str; 3] = ["job", "instance", "node"];
/// The shortest range in seconds over which the growth of a counter is computed: it needs several
/// scrapes.
const SHORTEST: i64 = 300;

/// The number for which a server is queried.
#[derive(Clone, Debug)]
pub struct HistorySubject {
    pub probe: String,
    pub node: String,
    pub metric: String,
    pub direction: Direction,
    /// The path of the number in the metric's values.
    pub field: String,
    pub number: ExportedNumber,
    pub temporality: Temporality,
    pub rule: MergeRule,
}

/// The range of a selector, and the moment at which the range ends.
#[derive(Clone, Copy)]
struct Lookback {
    seconds: i64,
    /// True if the range ends at the end of the chart, and not at the point.
    is_whole: bool,
}

impl HistorySubject {
    /// Tells whether each sample is the amount of one window: a scrape misses some of these.
    pub fn is_of_windows(&self) -> bool {
        self.temporality == Temporality::Window
    }

    /// Returns the meaning of the numbers, as in `series`.
    pub fn kind(&self) -> ChartKind {
        match (self.is_of_windows(), self.rule) {
            (true, MergeRule::Sum) => ChartKind::Increase,
            (true, MergeRule::Max) => ChartKind::Max,
            (true, MergeRule::Min) => ChartKind::Min,
            _ if self.number.is_counter => ChartKind::Increase,
            _ => ChartKind::Last,
        }
    }

    /// Returns the range in seconds from which a point is computed at this step.
    pub fn lookback(&self, step: i64) -> i64 {
        if self.is_of_windows() {
            step
        } else {
            step.max(SHORTEST)
        }
    }

    /// Returns the query for the `top` largest keys, the sum of all keys, and the number of keys.
    pub fn expression(&self, steps: HistorySteps, top: usize) -> String {
        let shown = self.per_key(Lookback {
            seconds: self.lookback(steps.step),
            is_whole: false,
        });
        // A histogram has few slots, and their sum differs from its samples' sum.
        if self.number.by.is_empty() || self.number.is_of_buckets() {
            return shown;
        }
        let ranked = self.per_key(Lookback {
            seconds: steps.range(),
            is_whole: true,
        });
        let by = self.number.by.join(", ");
        // One of the largest series may stand for keys without samples of their own.
        let top = top + usize::from(self.number.is_limited);
        let marked = |what: &str, of: &str| {
            format!("label_replace({of}, \"{MARK}\", \"{what}\", \"\", \"\")")
        };
        let total = marked(TOTAL, &format!("sum({shown})"));
        let keys = marked(KEYS, &format!("count({ranked})"));
        format!("({shown} and on ({by}) topk({top}, {ranked})) or {total} or {keys}")
    }

    /// Returns the query for the numbers of all keys. Samples of streams take precedence over
    /// scraped samples, and nothing is added up twice: if a key has several series, for example
    /// from two scraping servers, the largest one counts.
    fn per_key(&self, range: Lookback) -> String {
        let ([probe, node], direction) = (
            [&self.probe, &self.node].map(|text| quoted(text)),
            self.direction.name(),
        );
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
        let of_node = format!(
            " and on (job, instance) ({} or {})",
            info("node"),
            info("exported_node")
        );
        let scraped = self.summed(&format!("{own},job!=\"\""), range, &of_node);
        format!("({sent} or {scraped})")
    }

    fn summed(&self, labels: &str, range: Lookback, condition: &str) -> String {
        let ExportedNumber {
            name, by, parts, ..
        } = &self.number;
        let function = match (self.kind(), self.is_of_windows()) {
            (ChartKind::Increase, true) => "sum_over_time",
            (ChartKind::Increase, false) => "increase",
            (ChartKind::Max, _) => "max_over_time",
            (ChartKind::Min, _) => "min_over_time",
            (ChartKind::Or | ChartKind::Last, _) => "last_over_time",
        };
        let numbers = format!(
            "({function}({name}{{{labels}}}{}){condition})",
            range.text()
        );
        let join = match self.rule {
            MergeRule::Sum => "sum",
            MergeRule::Min => "min",
            MergeRule::Max | MergeRule::Or | MergeRule::Last => "max",
        };
        let whole = match &parts[..] {
            [] => numbers,
            parts => format!("{join} without ({}) {numbers}", parts.join(", ")),
        };
        if by.is_empty() {
            format!("max({whole})")
        } else {
            format!("max by ({}) ({whole})", by.join(", "))
        }
    }
}

impl Lookback {
    fn text(self) -> String {
        format!(
            "[{}s]{}",
            self.seconds,
            if self.is_whole { " @ end()" } else { "" }
        )
    }
}

/// Returns a text in quotation marks.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use twinprobe_ebpf_common::{Layout, MapKind, MergeRules, MetricHead, TableLayout};
    use twinprobe_exporter::Metric;

    use super::*;
    use crate::engine::series::query::ChartQuery;

    fn subject(kind: MapKind, slots: usize, temporality: Temporality) -> HistorySubject {
        let (key, value) = (Layout::unsigned(2), Layout::unsigned(8));
        let layout = Arc::new(TableLayout {
            kind,
            key,
            value,
            slots,
            inner: None,
        });
        let mut head = MetricHead {
            temporality,
            ..MetricHead::new(Direction::Egress, "m", "m", layout)
        };
        head.series.merge = Some(MergeRules::default());
        let metric: Arc<Metric> = Arc::new(head.into());
        let number = ExportedNumber::new(&metric, "", &BTreeMap::new()).unwrap();
        HistorySubject {
            probe: "p".to_owned(),
            node: "a \"b\"".to_owned(),
            metric: "m".to_owned(),
            direction: Direction::Egress,
            field: String::new(),
            number,
            temporality,
            rule: MergeRule::Sum,
        }
    }

    fn steps(step: u64) -> HistorySteps {
        let query = ChartQuery {
            step: Some(Duration::from_secs(step)),
            ..ChartQuery::default()
        };
        HistorySteps::new(&query, 1_000_000_000_000_000_000, None).unwrap()
    }

    #[test]
    fn windows_are_asked_for_as_streams_have_sent_them() {
        let subject = subject(MapKind::Hash, 1, Temporality::Window);
        let of = |range: &str| {
            let own = r#"m{probe="p",direction="egress",node="a \"b\"",job=""}"#;
            format!("max by (key, padding) ((sum_over_time({own}{range})))")
        };
        let (shown, ranked) = (of("[120s]"), of("[86400s] @ end()"));
        assert_eq!(
            subject.expression(steps(120), 3),
            format!(
                r#"({shown} and on (key, padding) topk(3, {ranked})) or label_replace(sum({shown}), "twinprobe_history", "total", "", "") or label_replace(count({ranked}), "twinprobe_history", "keys", "", "")"#
            )
        );
    }

    #[test]
    fn counters_are_asked_for_in_each_form_and_over_several_scrapes() {
        let subject = subject(MapKind::PercpuArray, 2, Temporality::Cumulative);
        let asked = subject.expression(steps(120), 3);
        for part in [
            r#"(max by (key, padding) (sum without (cpu) (increase(m_total{probe="p",direction="egress",node="a \"b\"",job=""}[300s]))) or max by"#,
            r#"(increase(m_total{probe="p",direction="egress",job!=""}[300s]) and on (job, instance) (last_over_time(twinprobe_probe_info{probe="p",job!="",node="a \"b\""}[300s])"#,
            r#"exported_node="a \"b\""}[86400s] @ end())"#,
        ] {
            assert!(asked.contains(part), "{asked}");
        }
        assert_eq!(
            (subject.kind(), subject.lookback(120), subject.lookback(600)),
            (ChartKind::Increase, 300, 600)
        );
    }

    #[test]
    fn a_live_number_is_the_last_one() {
        let subject = subject(MapKind::Hash, 1, Temporality::Live);
        assert_eq!(subject.kind(), ChartKind::Last);
        assert!(
            subject
                .expression(steps(600), 1)
                .contains("last_over_time(m{")
        );
    }
}
