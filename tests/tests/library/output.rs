//! The tables that a README shows are those of the probe's captures. A README may leave out rows,
//! columns and tables.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::Daemon;
use twinprobe_tests::probes::capture::of_direction;
use twinprobe_tests::probes::{self, index};

use crate::expected::configuration;

/// The beginning of the sentence above tables of the captures.
const OF_CAPTURES: &str = "For `capture.pcap`";

/// The rows of each table, by its title; the cells of each row by their columns.
type Tables = BTreeMap<String, Vec<BTreeMap<String, String>>>;

pub fn check(daemon: &Daemon, name: &str) -> Result<()> {
    let shown = shown(&probes::readme(name)?)?;
    if shown.is_empty() {
        return Ok(());
    }
    let given = given(daemon, name)?;
    for (title, rows) in &shown {
        let table = given
            .get(title)
            .with_context(|| format!("no table: {title}"))?;
        for row in rows {
            let is_row = |given: &BTreeMap<String, String>| {
                row.iter()
                    .all(|(column, cell)| given.get(column) == Some(cell))
            };
            ensure!(
                table.iter().any(is_row),
                "no row {row:?} in: {title}\n{table:?}"
            );
        }
    }
    Ok(())
}

/// Returns the tables of a README that are of its captures.
fn shown(readme: &str) -> Result<Tables> {
    let mut tables = Tables::new();
    for part in readme
        .split("\n## ")
        .filter(|part| part.contains(OF_CAPTURES))
    {
        for block in part.split("```text\n").skip(1) {
            tables.extend(parse(block.split("```").next().unwrap_or_default())?);
        }
    }
    Ok(tables)
}

/// Returns the tables that the command line shows of a replay.
fn given(daemon: &Daemon, name: &str) -> Result<Tables> {
    let hook = index::entry(name)?["hooks"][0]
        .as_str()
        .context("a hook")?
        .to_owned();
    let config: Value = configuration(name, &hook)?;
    let folder = tempfile::tempdir()?;
    let file = folder
        .path()
        .join("config.json")
        .to_string_lossy()
        .into_owned();
    fs::write(&file, config.to_string())?;
    let path = |direction| of_direction(name, direction).to_string_lossy().into_owned();
    let (ingress, egress) = (path("ingress"), path("egress"));
    let mut arguments = vec!["test", "-f", &file];
    if config.get("ingress").is_some() {
        arguments.push(&ingress);
    }
    if config.get("egress").is_some() {
        arguments.extend(["--egress-capture", &egress]);
    }
    let output = daemon.client(&arguments)?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    parse(&String::from_utf8(output.stdout)?)
}

/// Reads tables: a title, the columns, rows; an empty line is between two tables.
fn parse(text: &str) -> Result<Tables> {
    let cells = |line: &str| -> Vec<String> {
        line.trim()
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut tables = Tables::new();
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.trim_matches('\n').lines();
        let Some(title) = lines
            .next()
            .filter(|line| line.starts_with("ingress ") || line.starts_with("egress "))
        else {
            continue;
        };
        let columns = lines.next().map(cells).unwrap_or_default();
        // Percentiles are below a histogram.
        let lines = lines.filter(|line| !line.starts_with("p50 "));
        let rows = lines.map(cells).map(|row| {
            ensure!(
                row.len() == columns.len(),
                "{title}: {row:?} has not the columns {columns:?}"
            );
            Ok(columns.iter().cloned().zip(row).collect())
        });
        tables.insert(title.to_owned(), rows.collect::<Result<_>>()?);
    }
    Ok(tables)
}
