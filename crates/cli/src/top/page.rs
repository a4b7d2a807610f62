//! The samples of a page in OpenMetrics.

use std::collections::BTreeMap;

/// A sample: the name, the labels and the number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Returns the samples of the metrics that probes export; those of the daemon itself are left out.
pub fn samples(page: &str) -> impl Iterator<Item = Sample> {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with(['#', ' ']) && !line.starts_with("twinprobe_"));
    lines.filter_map(sample)
}

/// Returns the ends of windows that each probe's interval has given it so far. A missed end makes
/// the next window longer, and counts as well.
pub fn scheduled(page: &str) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    let families = [
        "twinprobe_windows_closed_total{",
        "twinprobe_window_ticks_missed_total{",
    ];
    let lines = page
        .lines()
        .filter(|line| families.iter().any(|family| line.starts_with(family)));
    for Sample {
        mut labels, value, ..
    } in lines.filter_map(sample)
    {
        if labels.get("by").is_none_or(|by| by == "schedule")
            && let Some(probe) = labels.remove("probe")
        {
            *ends.entry(probe).or_default() += value as u64;
        }
    }
    ends
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(label.to_owned(), value);
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// Returns the text up to the closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_probes_are_read() {
        let page = "# TYPE flows_packets gauge\ntwinprobe_probes{state=\"running\"} 2\n\
            flows_packets{probe=\"a\",src=\"1.2.3.4\",note=\"a \\\"b\\\",\\\\c}\"} 18446744073709551615 1.5\n\
            plain 7\nbroken{x=\"y} 1\n# EOF\n";
        let found: Vec<Sample> = samples(page).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].labels["note"], "a \"b\",\\c}");
        assert_eq!(
            (found[0].value, found[1].value),
            (18446744073709551615.0, 7.0)
        );
    }

    #[test]
    fn scheduled_and_missed_ends_of_windows_are_counted() {
        let page = "twinprobe_windows_closed_total{probe=\"a\",by=\"read\"} 9\n\
            twinprobe_windows_closed_total{probe=\"a\",by=\"schedule\"} 5\n\
            twinprobe_window_ticks_missed_total{probe=\"a\"} 2\ntwinprobe_window_ticks_missed_total{probe=\"b\"} 0\n";
        assert_eq!(
            scheduled(page),
            BTreeMap::from([("a".to_owned(), 7), ("b".to_owned(), 0)])
        );
    }
}
