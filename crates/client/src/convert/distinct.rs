//! Different names for metrics that share one. Other monitors distinguish such metrics by labels;
//! here each metric has a name of its own.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::converted::Converted;

/// The labels of one metric, by name.
pub type DistinctLabels = BTreeMap<String, String>;

/// The ending of the names of counters. A renamed counter keeps it.
const TOTAL: &str = "_total";

/// Renames metrics of one direction that share a name. The new names have the values of the labels
/// by which the metrics differ, or else the names of their maps. `labels` has the name and the
/// labels of each metric.
pub fn rename(
    metrics: &mut [Value],
    labels: &mut [(String, DistinctLabels)],
    converted: &mut Converted,
) {
    let mut of_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, (name, _)) in labels.iter().enumerate() {
        of_name.entry(name.clone()).or_default().push(at);
    }
    let is_shared = |(_, places): &(String, Vec<usize>)| places.len() > 1;
    for (name, places) in of_name.into_iter().filter(is_shared) {
        let of_labels: Vec<String> = places
            .iter()
            .map(|at| differing(labels, &places, *at))
            .collect();
        let of_maps: Vec<String> = places
            .iter()
            .map(|at| word(metrics[*at]["map"].as_str().unwrap_or_default()))
            .collect();
        let ways = [of_labels, of_maps];
        let taken = |new: &String| labels.iter().any(|(other, _)| other == new);
        let names = ways.into_iter().map(|words| {
            words
                .iter()
                .map(|word| with(&name, word))
                .collect::<Vec<_>>()
        });
        // If neither way gives distinct names, the names get the numbers of the metrics.
        let names = names
            .into_iter()
            .find(|names| are_distinct(names) && !names.iter().any(taken));
        let names = names.unwrap_or_else(|| {
            places
                .iter()
                .map(|at| with(&name, &at.to_string()))
                .collect()
        });
        converted.notes.push(format!(
            "{name}: {} metrics have this name, but each metric needs its own name: they are {}",
            places.len(),
            names.join(", ")
        ));
        for (at, new) in places.into_iter().zip(names) {
            metrics[at]["name"] = json!(new);
            labels[at].0 = new;
        }
    }
}

/// Returns the values of the labels of a metric by which it differs from one of the others.
fn differing(labels: &[(String, DistinctLabels)], places: &[usize], at: usize) -> String {
    let own = &labels[at].1;
    let differs = |(name, value): &(&String, &String)| {
        places
            .iter()
            .any(|other| labels[*other].1.get(*name) != Some(*value))
    };
    own.iter()
        .filter(differs)
        .map(|(_, value)| word(value))
        .collect::<Vec<_>>()
        .join("_")
}

/// Returns a text as a part of a metric's name.
fn word(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}

fn with(name: &str, word: &str) -> String {
    match (name.strip_suffix(TOTAL), word) {
        (_, "") => name.to_owned(),
        (Some(begin), word) => format!("{begin}_{word}{TOTAL}"),
        (None, word) => format!("{name}_{word}"),
    }
}

fn are_distinct(names: &[String]) -> bool {
    names
        .iter()
        .enumerate()
        .all(|(at, name)| !names[..at].contains(name))
}
