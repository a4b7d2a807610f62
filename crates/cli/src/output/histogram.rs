//! A histogram as a table: the range of each slot that has counted something, with a bar.

use serde_json::Value;
use twinprobe_ebpf_common::metric::distribution::{CountedRange, Distribution, PERCENTILES};

use crate::output::exact;
use crate::output::table::TextTable;
use crate::output::units;

/// The columns of the longest bar.
const BAR: f64 = 24.0;
/// The words of a name that say in which unit its numbers are, with the nanoseconds of that unit.
const TIMES: [(&str, f64); 4] =
    [("nanoseconds", 1.0), ("microseconds", 1e3), ("milliseconds", 1e6), ("seconds", 1e9)];

/// Returns the counts in the entries of a metric; `None` if they are not the slots of a histogram.
pub fn distribution(metric: &Value) -> Option<Distribution> {
    if metric["histogram"] != true {
        return None;
    }
    let mut all = Distribution::default();
    for entry in metric["entries"].as_array().into_iter().flatten() {
        let index = entry["key"].as_u64()?;
        match &entry["value"] {
            Value::Array(cpus) => cpus.iter().for_each(|count| all.add(index.into(), number(count))),
            count => all.add(index.into(), number(count)),
        }
    }
    Some(all)
}

/// The number of a count; those of more than 64 bits are texts, or the nearest floats.
fn number(value: &Value) -> u128 {
    exact::integer(value).map_or_else(|| value.as_f64().unwrap_or_default() as u128, |number| number.bits)
}

/// Makes the table. `exact` asks for numbers as they are.
pub fn table(name: &str, distribution: &Distribution, exact: bool) -> TextTable {
    let mut table = TextTable::default();
    let most = distribution.ranges().map(|range| range.count).max().unwrap_or_default() as f64;
    let all = distribution.count() as f64;
    for CountedRange { from, to, count } in distribution.ranges() {
        let mut row = table.row();
        for (title, number) in [("from", from), ("to", to)] {
            match exact {
                true => row.number(title, &number.to_string()),
                false => row.amount(title, number as f64, shown(name, number)),
            }
        }
        row.number("count", &count.to_string());
        let bar = "█".repeat(((count as f64 / most * BAR).round() as usize).max(1));
        row.text("share", &format!("{bar} {:.0} %", 100.0 * count as f64 / all));
    }
    table
}

/// Says which bounds most values do not exceed: `p50 524 us, p95 67.1 ms, p99 67.1 ms at most, of 31 values`.
pub fn percentiles(name: &str, distribution: &Distribution) -> Option<String> {
    let bound = |(word, percent)| Some(format!("{word} {}", shown(name, distribution.percentile(percent)?)));
    let bounds = PERCENTILES.into_iter().map(bound).collect::<Option<Vec<_>>>()?;
    Some(format!("{} at most, of {} values", bounds.join(", "), distribution.count()))
}

fn shown(name: &str, number: u64) -> String {
    let has = |word: &str| name.split('_').any(|part| part == word);
    let time = TIMES.into_iter().find(|(word, _)| has(word));
    match time {
        Some((_, unit)) => units::nanoseconds(number as f64 * unit),
        None if has("bytes") => units::bytes(number as f64),
        None => units::count(number as f64),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::screen::Screen;

    #[test]
    fn slots_become_ranges_with_bars() {
        let entry = |key: u64, value: Value| json!({ "key": key, "value": value });
        let entries = [entry(0, json!(0)), entry(18, json!([2, 1])), entry(25, json!(1))];
        let metric = json!({ "histogram": true, "entries": entries });
        let all = distribution(&metric).unwrap();
        let screen = Screen { width: 200, colour: false, wide: false };
        let bar = |length: usize| "█".repeat(length);
        let expected = format!(
            "   from       to  count  share\n 262 us   524 us      3  {} 75 %\n33.6 ms  67.1 ms      1  {} 25 %\n",
            bar(24),
            bar(8)
        );
        assert_eq!(table("dns_latency_nanoseconds", &all, false).render(screen), expected);
        assert_eq!(
            percentiles("dns_latency_nanoseconds", &all).as_deref(),
            Some("p50 524 us, p95 67.1 ms, p99 67.1 ms at most, of 4 values")
        );
        let exact = table("sizes_bytes", &all, true).render(screen);
        assert!(exact.contains("262144") && exact.contains("67108863"), "{exact}");
        assert!(distribution(&json!({ "entries": [] })).is_none());
        let none = distribution(&json!({ "histogram": true, "entries": [] })).unwrap();
        assert_eq!(percentiles("a", &none), None);
    }
}
