//! Parser of the daemon's documents into numbers of packets by key.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::ledger::Key;
use super::spec::{MetricSpec, SHIFT, WEIGHTS};

/// The packets by key, for each field of the value.
pub type Rows = BTreeMap<&'static str, BTreeMap<Key, u64>>;

/// Returns the counts of one metric of a document, and the numbers of the packets that were queued.
pub fn rows(metric: &MetricSpec, reading: &Value) -> Result<(Rows, Vec<u32>)> {
    let entries = reading["entries"]
        .as_array()
        .with_context(|| format!("no entries in {reading}"))?;
    let mut rows: Rows = metric
        .fields()
        .iter()
        .map(|field| (*field, BTreeMap::new()))
        .collect();
    let mut numbers = Vec::new();
    match metric.map {
        "queue" => {
            for entry in entries {
                let number = entry["value"].as_u64().context("a number in the queue")? as u32;
                numbers.push(number);
                *rows
                    .get_mut("")
                    .context("one field")?
                    .entry(number >> SHIFT)
                    .or_default() += 1;
            }
        }
        "global" => {
            for entry in entries {
                add(metric, 0, &entry["value"], &mut rows)?;
            }
        }
        "nested" => {
            for outer in entries {
                let inner = outer["value"]["entries"]
                    .as_array()
                    .context("inner entries")?;
                for entry in inner {
                    let key = number(&entry["key"])?;
                    ensure!(
                        outer["key"] == key % 2,
                        "key {key} is in the map of {}",
                        outer["key"]
                    );
                    add(metric, key as Key, &entry["value"], &mut rows)?;
                }
            }
        }
        "trie" => {
            for entry in entries {
                let key = number(&entry["key"]["key"])? as u32;
                add(metric, key.swap_bytes(), &entry["value"], &mut rows)?;
            }
        }
        _ => {
            for entry in entries {
                add(
                    metric,
                    number(&entry["key"])? as Key,
                    &entry["value"],
                    &mut rows,
                )?;
            }
        }
    }
    Ok((rows, numbers))
}

fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .with_context(|| format!("{value} is not a number"))
}

fn add(metric: &MetricSpec, key: Key, value: &Value, rows: &mut Rows) -> Result<()> {
    for (field, rows) in rows {
        let weight = WEIGHTS
            .iter()
            .find(|(name, _)| name == field)
            .map_or(1, |(_, weight)| *weight);
        let found = if field.is_empty() {
            value
        } else {
            &value[*field]
        };
        let Some(found) = found.as_u64() else {
            bail!("no {field} in {value} of {}", metric.map)
        };
        ensure!(
            found % weight == 0,
            "{}, key {key}: {field} is {found}, no multiple of {weight}",
            metric.map
        );
        // Arrays have zeros for the keys without packets.
        if found > 0 {
            ensure!(
                rows.insert(key, found / weight).is_none(),
                "{}: key {key} comes twice",
                metric.map
            );
        }
    }
    Ok(())
}
