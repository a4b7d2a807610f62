//! A histogram as a table: the range of each slot that has counted something, with a bar.

use std::borrow::Cow;

use serde_json::Value;
use twinprobe_ebpf_common::metric::distribution::{
    CountedRange, Distribution, Distributions, PERCENTILES,
};

use crate::output::exact;
use crate::output::table::{TextTable, printable};
use crate::output::units;

/// The columns of the longest bar.
const BAR: f64 = 24.0;
/// The title of the counts.
pub const COUNT: &str = "count";
/// The words of a name that say in which unit its numbers are, with the nanoseconds of that unit.
const TIMES: [(&str, f64); 4] = [
    ("nanoseconds", 1.0),
    ("microseconds", 1e3),
    ("milliseconds", 1e6),
    ("seconds", 1e9),
];

/// Returns the counts in the entries of a metric; `None` if they are not the slots of a histogram.
pub fn distributions(metric: &Value) -> Option<Distributions> {
    Distributions::of_metric(metric, number)
}

/// A count as a number; counts of more than 64 bits are texts, or the nearest floats.
fn number(value: &Value) -> u128 {
    exact::integer(value).map_or_else(
        || value.as_f64().unwrap_or_default() as u128,
        |number| number.bits,
    )
}

/// Makes the table. `exact` asks for unrounded numbers.
pub fn table(name: &str, distributions: &Distributions, exact: bool) -> TextTable {
    let mut table = TextTable::default();
    for (interface, distribution) in parts(distributions) {
        add(&mut table, interface.as_deref(), name, distribution, exact);
    }
    table
}

/// Returns the interfaces with their counts, or all counts if rows name no interface.
fn parts(distributions: &Distributions) -> Vec<(Option<Cow<'_, str>>, &Distribution)> {
    let of_interfaces: Vec<_> = distributions
        .of_interfaces()
        .map(|(interface, counts)| (Some(interface), counts))
        .collect();
    if of_interfaces.is_empty() {
        vec![(None, distributions.all())]
    } else {
        of_interfaces
    }
}

fn add(
    table: &mut TextTable,
    interface: Option<&str>,
    name: &str,
    distribution: &Distribution,
    exact: bool,
) {
    let most = distribution
        .ranges()
        .map(|range| range.count)
        .max()
        .unwrap_or_default() as f64;
    let all = distribution.count() as f64;
    for CountedRange { from, to, count } in distribution.ranges() {
        let mut row = table.row();
        if let Some(interface) = interface {
            row.text("key.interface", interface);
        }
        let text = |number: u64| {
            if exact {
                number.to_string()
            } else {
                shown(name, number)
            }
        };
        row.amount(
            "range",
            from as f64,
            format!("{} to {}", text(from), text(to)),
        );
        row.number(COUNT, &count.to_string());
        let bar = "█".repeat(((count as f64 / most * BAR).round() as usize).max(1));
        row.text(
            "share",
            &format!("{bar} {:.0} %", 100.0 * count as f64 / all),
        );
    }
}

/// Returns the line about the counts of ranges that are left out.
pub fn others(counts: &[String]) -> Option<String> {
    let sum = counts
        .iter()
        .filter_map(|count| count.parse::<u128>().ok())
        .fold(0, u128::saturating_add);
    (!counts.is_empty()).then(|| format!("and {} more: {sum}\n", counts.len()))
}

/// Says which bounds most values do not exceed, in a line for each interface: `p50 524 us, p95 67.1
/// ms, p99 67.1 ms at most, of 31 values`.
pub fn percentiles(name: &str, distributions: &Distributions) -> Option<String> {
    let line = |(interface, counts): (Option<Cow<'_, str>>, &Distribution)| {
        let bounds = bounds(name, counts)?;
        Some(match interface {
            Some(interface) => format!("{}: {bounds}", printable(&interface)),
            None => bounds,
        })
    };
    let lines: Vec<String> = parts(distributions).into_iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn bounds(name: &str, distribution: &Distribution) -> Option<String> {
    let bound = |(word, percent)| {
        Some(format!(
            "{word} {}",
            shown(name, distribution.percentile(percent)?)
        ))
    };
    let bounds = PERCENTILES
        .into_iter()
        .map(bound)
        .collect::<Option<Vec<_>>>()?;
    Some(format!(
        "{} at most, of {} values",
        bounds.join(", "),
        distribution.count()
    ))
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
        let entries = [
            entry(0, json!(0)),
            entry(18, json!([2, 1])),
            entry(25, json!(1)),
        ];
        let metric = json!({ "histogram": true, "entries": entries });
        let all = distributions(&metric).unwrap();
        let screen = Screen {
            width: 200,
            colour: false,
            wide: false,
        };
        let bar = |length: usize| "█".repeat(length);
        let expected = format!(
            "             range  count  share\n  262 us to 524 us      3  {} 75 %\n33.6 ms to 67.1 ms      1  {} 25 %\n",
            bar(24),
            bar(8)
        );
        assert_eq!(
            table("dns_latency_nanoseconds", &all, false).render(screen),
            expected
        );
        assert_eq!(
            percentiles("dns_latency_nanoseconds", &all).as_deref(),
            Some("p50 524 us, p95 67.1 ms, p99 67.1 ms at most, of 4 values")
        );
        let exact = table("sizes_bytes", &all, true).render(screen);
        assert!(
            exact.contains("262144 to 524287") && exact.contains("67108863"),
            "{exact}"
        );
        assert!(distributions(&json!({ "entries": [] })).is_none());
        let none = distributions(&json!({ "histogram": true, "entries": [] })).unwrap();
        assert_eq!(percentiles("a", &none), None);
    }

    #[test]
    fn each_interface_has_its_ranges_and_percentiles() {
        let entry = |interface: &str, slot: u64, count: u64| json!({ "key": { "interface": interface, "key": slot }, "value": count });
        let entries = [entry("wan0", 6, 3), entry("lan0", 5, 1)];
        let all = distributions(&json!({ "histogram": true, "entries": entries })).unwrap();
        let screen = Screen {
            width: 200,
            colour: false,
            wide: false,
        };
        let text = table("packet_size_bytes", &all, false).render(screen);
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().take(7).collect())
            .collect();
        let expected = [
            "key.interface range count share",
            "lan0 32 B to 63 B 1",
            "wan0 64 B to 127 B 3",
        ];
        assert_eq!(
            words,
            expected.map(|line| line.split(' ').collect::<Vec<_>>()),
            "{text}"
        );
        let lines = "lan0: p50 63 B, p95 63 B, p99 63 B at most, of 1 values\nwan0: p50 127 B, p95 127 B, p99 127 B at most, of 3 values";
        assert_eq!(
            percentiles("packet_size_bytes", &all).as_deref(),
            Some(lines)
        );
    }
}
