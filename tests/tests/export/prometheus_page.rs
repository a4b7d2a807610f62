//! The page of `GET /metrics`, parsed by the reference parser of OpenMetrics.

#[path = "../../../crates/exporter/tests/reference/mod.rs"]
mod reference;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twinprobe_tests::{Daemon, Response};

/// The name and the labels of a sample.
pub type Series = (String, BTreeMap<String, String>);

/// A page, parsed by the reference parser.
pub struct Page {
    pub text: String,
    /// The type and the help of each family, by its name.
    pub families: BTreeMap<String, (String, String)>,
    pub samples: BTreeMap<Series, f64>,
}

impl Page {
    pub fn scrape(daemon: &Daemon) -> Self {
        Self::parse(got(daemon).text())
    }

    /// Scrapes a page of megabytes, for which the reference parser takes a second, and reads its
    /// samples by other means.
    pub fn scrape_large(daemon: &Daemon) -> Self {
        let text = got(daemon).text().to_owned();
        assert_contiguous(&text);
        let mut samples = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = sample(line).unwrap_or_else(|| panic!("no sample: {line}"));
            assert!(samples.insert(series, value).is_none(), "{line} twice");
        }
        Self {
            text,
            families: BTreeMap::new(),
            samples,
        }
    }

    pub fn parse(text: &str) -> Self {
        assert_contiguous(text);
        let parsed = reference::parse(&[text]);
        let mut page = Self {
            text: text.to_owned(),
            families: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        for family in parsed[0].as_array().expect("families") {
            let described = (text(&family[1]), text(&family[2]));
            assert!(
                page.families.insert(text(&family[0]), described).is_none(),
                "{} twice",
                family[0]
            );
            for sample in family[3].as_array().expect("samples") {
                let labels = serde_json::from_value(sample[1].clone()).expect("texts");
                let value = text(&sample[2]).parse().expect("a number");
                assert!(
                    page.samples
                        .insert((text(&sample[0]), labels), value)
                        .is_none(),
                    "{sample} twice"
                );
            }
        }
        // The parser drops duplicate samples.
        let lines = page
            .text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count();
        assert_eq!(page.samples.len(), lines);
        page
    }

    /// Returns the values of the samples of this name that have at least these labels.
    pub fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let has = |all: &BTreeMap<String, String>| {
            labels
                .iter()
                .all(|(name, value)| all.get(*name).map(String::as_str) == Some(*value))
        };
        let matching = self
            .samples
            .iter()
            .filter(|((sample, all), _)| sample == name && has(all));
        matching.map(|(_, value)| *value).collect()
    }

    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).iter().sum()
    }

    #[track_caller]
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matching = self.matching(name, labels);
        assert_eq!(matching.len(), 1, "{name} {labels:?} in:\n{}", self.text);
        matching[0]
    }

    pub fn kind(&self, family: &str) -> &str {
        self.families.get(family).map_or("none", |(kind, _)| kind)
    }

    /// Asserts that no counter of the probes has fallen.
    #[track_caller]
    pub fn assert_grown_from(&self, before: &Self) {
        for (series, value) in before
            .samples
            .iter()
            .filter(|((name, _), _)| name.ends_with("_total"))
        {
            if series.1.contains_key("direction") {
                assert!(
                    self.samples.get(series).is_some_and(|now| now >= value),
                    "{series:?} fell from {value}"
                );
            }
        }
    }
}

fn got(daemon: &Daemon) -> Response {
    let response = daemon.get("/metrics").expect(200);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("content-type"), Some(content_type));
    response
}

/// Reads a line `name{label="value",...} number`.
fn sample(line: &str) -> Option<(Series, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"")?;
            let (mut value, mut letters) = (String::new(), after.char_indices());
            rest = loop {
                match letters.next()? {
                    (at, '"') => break &after[at + 1..],
                    (_, '\\') => value.push(match letters.next()?.1 {
                        'n' => '\n',
                        other => other,
                    }),
                    (_, other) => value.push(other),
                }
            };
            labels.insert(label.to_owned(), value);
        }
        rest = &rest[1..];
    }
    Some((
        (name.to_owned(), labels),
        rest.split_whitespace().next()?.parse().ok()?,
    ))
}

/// Asserts that all lines of a family are together after its name.
pub fn assert_contiguous(text: &str) {
    let (mut seen, mut current) = (BTreeSet::new(), "");
    for line in text.lines().filter(|line| *line != "# EOF") {
        match line.strip_prefix("# ") {
            Some(metadata) => {
                let name = metadata.split(' ').nth(1).expect("a name");
                if name != current {
                    assert!(seen.insert(name), "{name} comes twice");
                    current = name;
                }
            }
            None => assert!(line.starts_with(current), "{line} in {current}"),
        }
    }
    assert!(text.ends_with("\n# EOF\n"));
}
