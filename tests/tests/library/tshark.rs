//! A second opinion on the expected documents: `check.json` has filters of tshark, and their
//! figures must be in the documents.
//!
//! `{"filter": F, "count": WHAT, "metric": M, "key": K, "value": V}` compares two numbers. The one
//! is WHAT (`packets`, `bytes`, `{"sum": FIELD}`, `{"distinct": FIELD}`) of the packets of the
//! capture that match F. The other is the sum of the values V over the entries of the metric M
//! whose key is K. V is `field.field`, absent for a value that is a number, and `entries` for the
//! number of entries. K may name only some of the key's fields; an absent K is any key. `direction`
//! is `ingress` if it is absent. `passes` is the direction whose capture is compared, if it is
//! another one, or `both`: the two captures merged by time. `alone` says why the two numbers need
//! not agree on other traffic than that capture, see `mixed.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::NamedTempFile;
use twinprobe_tests::named;
use twinprobe_tests::probes;
use twinprobe_tests::probes::capture::of_direction;

use crate::expected::{DIRECTIONS, entries, for_every_probe};

#[test]
fn tshark_counts_the_same() -> Result<()> {
    for_every_probe(|name| {
        let (expected, check) = (
            probes::json(name, "expected.json")?,
            probes::json(name, "check.json")?,
        );
        let checks = check["tshark"]
            .as_array()
            .context("check.json has a list `tshark`")?;
        ensure!(!checks.is_empty(), "check.json has nothing for tshark");
        let captures = DIRECTIONS.map(|direction| of_direction(name, direction));
        let wrong = disagreements(
            &expected,
            checks,
            &check["options"],
            &Captures::new(captures)?,
        )?;
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// The packets that came in, those that went out, and both merged by time.
pub struct Captures {
    directions: [PathBuf; 2],
    both: NamedTempFile,
}

impl Captures {
    pub fn new(directions: [PathBuf; 2]) -> Result<Self> {
        // The file is removed when the value is dropped.
        let both = NamedTempFile::new()?;
        let output = Command::new("mergecap")
            .arg("-w")
            .arg(both.path())
            .args(&directions)
            .output()
            .context("start mergecap, which comes with tshark: `make setup` installs it")?;
        ensure!(
            output.status.success(),
            "mergecap: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self { directions, both })
    }

    fn of(&self, check: &Value) -> &Path {
        match check["passes"].as_str().unwrap_or_else(|| direction(check)) {
            "both" => self.both.path(),
            "egress" => &self.directions[1],
            _ => &self.directions[0],
        }
    }
}

fn direction(check: &Value) -> &str {
    check["direction"].as_str().unwrap_or("ingress")
}

/// Returns the checks with different results of tshark and the document, with both figures.
pub fn disagreements<'a>(
    document: &Value,
    checks: impl IntoIterator<Item = &'a Value>,
    options: &Value,
    captures: &Captures,
) -> Result<Vec<String>> {
    let mut of_captures: BTreeMap<&Path, Vec<&Value>> = BTreeMap::new();
    for check in checks {
        of_captures
            .entry(captures.of(check))
            .or_default()
            .push(check);
    }
    let mut wrong = Vec::new();
    for (capture, checks) in of_captures {
        let figures = figures(capture, &checks, options)?;
        for (check, figure) in checks.into_iter().zip(figures) {
            let sum = sum(document, direction(check), check).with_context(|| check.to_string())?;
            if sum != figure {
                wrong.push(format!(
                    "{check}: tshark finds {figure}, the document has {sum}"
                ));
            }
        }
    }
    Ok(wrong)
}

/// Returns the sum of the document's values for a check.
fn sum(document: &Value, direction: &str, check: &Value) -> Result<u64> {
    let entries = entries(
        document,
        direction,
        check["metric"].as_str().context("a metric")?,
    )?;
    let entries = entries.iter().filter(|entry| {
        check
            .get("key")
            .is_none_or(|key| matches(key, &entry["key"]))
    });
    let value = check["value"].as_str();
    if value == Some("entries") {
        return Ok(entries.count() as u64);
    }
    let mut sum = 0;
    for entry in entries {
        let number = value
            .into_iter()
            .flat_map(|path| path.split('.'))
            .fold(&entry["value"], |at, field| &at[field]);
        sum += named::number(number).with_context(|| format!("{entry} has no number there"))?;
    }
    Ok(sum)
}

fn matches(wanted: &Value, key: &Value) -> bool {
    match wanted.as_object() {
        Some(fields) => fields.iter().all(|(name, wanted)| key[name] == *wanted),
        None => wanted == key,
    }
}

/// Returns the figure of each check, by one run of tshark for all that it can count by itself.
fn figures(capture: &Path, checks: &[&Value], options: &Value) -> Result<Vec<u64>> {
    let mut statistics = String::from("io,stat,0");
    for check in checks {
        let filter = check["filter"].as_str().context("a filter")?;
        ensure!(
            !filter.contains(','),
            "{filter}: commas separate filters; write `||`"
        );
        statistics += &match check["count"]["sum"].as_str() {
            Some(field) => format!(",SUM({field}){field} && ({filter})"),
            None => format!(",{filter}"),
        };
    }
    let table = tshark(capture, options, &["-q", "-z", &statistics])?;
    let numbers = table
        .lines()
        .rfind(|line| line.contains("<>"))
        .with_context(|| table.clone())?;
    // The first cell has the interval. A column has two cells, packets and bytes, or one with a
    // sum.
    let mut cells = numbers.trim_matches('|').split('|').skip(1).map(str::trim);
    let mut number = || {
        cells
            .next()
            .with_context(|| table.clone())?
            .parse::<u64>()
            .with_context(|| table.clone())
    };
    let mut figures = Vec::new();
    for check in checks {
        let count = &check["count"];
        let first = number()?;
        let second = if count["sum"].is_string() {
            0
        } else {
            number()?
        };
        figures.push(match (count.as_str(), count["distinct"].as_str()) {
            (Some("bytes"), _) => second,
            (_, Some(field)) => distinct(
                capture,
                options,
                check["filter"].as_str().unwrap_or_default(),
                field,
            )?,
            _ => first,
        });
    }
    Ok(figures)
}

/// Returns the number of different values that a field has in the packets that match the filter.
fn distinct(capture: &Path, options: &Value, filter: &str, field: &str) -> Result<u64> {
    let lines = tshark(
        capture,
        options,
        &["-Y", filter, "-T", "fields", "-e", field],
    )?;
    Ok(lines.lines().collect::<BTreeSet<_>>().len() as u64)
}

fn tshark(capture: &Path, options: &Value, arguments: &[&str]) -> Result<String> {
    let options = options
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(options)
        .args(arguments)
        .output()
        .context("start tshark: `make setup` installs it")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tshark {arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
