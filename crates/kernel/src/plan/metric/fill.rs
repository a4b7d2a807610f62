//! The initial entries of maps, from the configuration.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::Value;
use twinprobe_ebpf_common::field::write::write;
use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::request::{Fills, MapEntry, MetricRequest};
use twinprobe_ebpf_common::{MapFamily, MapKind, TableLayout};

use crate::plan::object::Definitions;
use crate::plan::probe_plan::{FillEntry, MapPlan};
use crate::plan::request::DirectionRequest;
use crate::plan::shape::table_layout;

/// The most bytes of all entries of a map together, without the copies for the CPUs of PERCPU maps:
/// the daemon keeps the entries in memory.
const BYTES: usize = 16 << 20;
/// The bytes of a trie's key that hold the length of the prefix, before its bits.
const PREFIX: usize = 4;
/// Tells whether a map of this type can be filled.
const fn is_fillable(kind: MapKind) -> bool {
    matches!(
        kind.family(),
        MapFamily::Hash | MapFamily::Array | MapFamily::Trie
    )
}

/// Returns the entries of each map of a direction, or their mistakes. `readers` are the direction's
/// metrics, each with the index of its map.
pub fn plan(
    defined: &Definitions,
    maps: &[MapPlan],
    readers: &[(&MetricRequest, usize)],
    fill: &Fills,
    cpus: usize,
) -> Result<Vec<Vec<FillEntry>>, Vec<Finding>> {
    let mut findings = Vec::new();
    let fills = maps.iter().enumerate().map(|(index, map)| {
        let Some(entries) = fill.get(&map.name) else {
            return Vec::new();
        };
        let field = field_of(&map.name);
        let kind = match fillable(maps, readers, index) {
            Ok(kind) => kind,
            Err(message) => {
                findings.extend(message.map(|message| Finding::new(Stage::Load, field, message)));
                return Vec::new();
            }
        };
        let (layout, _) = table_layout(&defined.btf, &map.name, &map.spec, kind, cpus);
        encode_all(
            &field,
            entries,
            &layout,
            map.spec.max_entries,
            &mut findings,
        )
    });
    let fills = fills.collect();
    if findings.is_empty() {
        Ok(fills)
    } else {
        Err(findings)
    }
}

/// Returns a finding for each map of `fill` that no direction has.
pub fn unknown(requests: &[DirectionRequest], defined: &[&Definitions]) -> Vec<Finding> {
    let named = requests
        .first()
        .into_iter()
        .flat_map(|request| request.fill.keys());
    let unknown = named.filter(|name| {
        !defined
            .iter()
            .any(|defined| defined.maps.contains_key(*name))
    });
    let known = defined.iter().flat_map(|defined| defined.maps.keys());
    let mut known: Vec<&str> = known
        .map(String::as_str)
        .filter(|name| !name.starts_with('.'))
        .collect();
    known.sort_unstable();
    known.dedup();
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    let finding = |name: &String| {
        Finding::new(
            Stage::Load,
            field_of(name),
            format!("there is no map {name}; there are {known}"),
        )
    };
    unknown.map(finding).collect()
}

fn field_of(map: &str) -> String {
    format!("fill.{map}")
}

/// Returns the kind of a map that can be filled. The error says why the map can't be filled; it is
/// `None` if the other direction reports the reason.
fn fillable(
    maps: &[MapPlan],
    readers: &[(&MetricRequest, usize)],
    index: usize,
) -> Result<MapKind, Option<String>> {
    let map = &maps[index];
    let name = &map.name;
    let kind = MapKind::from_bpf_type(map.spec.map_type).filter(|kind| is_fillable(*kind));
    let Some(kind) = kind else {
        let found = map.kind_name().unwrap_or("map of another type");
        let fillable: Vec<&str> = MapKind::ALL
            .into_iter()
            .filter(|kind| is_fillable(*kind))
            .map(MapKind::name)
            .collect();
        let fillable = fillable.join(", ");
        return Err(Some(format!(
            "map {name} is a {found}, and fill is for {fillable}; leave it out"
        )));
    };
    let resets = |of: &MetricRequest| of.is_snapshot() || of.is_reset();
    if let Some((metric, _)) = readers
        .iter()
        .find(|(metric, map)| *map == index && resets(metric))
    {
        return Err(Some(format!(
            "metric {} reads map {name} and windows empty it, so that its entries would be lost; leave \
                snapshot and init of the metric \
             out, or leave {name} out of fill",
            metric.name
        )));
    }
    if map.private {
        let outer = maps.iter().find(|outer| outer.holds(index));
        return Err(outer.map(|outer| {
            format!(
                "map {name} is in map {}, which windows empty or which each twin has for itself; leave it out",
                outer.name
            )
        }));
    }
    Ok(kind)
}

fn encode_all(
    field: &str,
    entries: &[MapEntry],
    layout: &TableLayout,
    max_entries: u32,
    findings: &mut Vec<Finding>,
) -> Vec<FillEntry> {
    let mut refuse =
        |field: String, message: String| findings.push(Finding::new(Stage::Load, field, message));
    if entries.len() > max_entries as usize {
        let message = format!(
            "{} entries do not fit, the map has max_entries {max_entries}; leave some out, or make the map larger",
            entries.len()
        );
        refuse(field.to_owned(), message);
        return Vec::new();
    }
    let bytes = entries
        .len()
        .saturating_mul(layout.key.size + layout.value.size);
    if bytes > BYTES {
        refuse(
            field.to_owned(),
            format!("the entries have {bytes} bytes; the limit is {BYTES}"),
        );
        return Vec::new();
    }
    let mut seen = HashMap::new();
    let mut encoded = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("{field}[{index}]");
        let key = match key(layout, &entry.key, max_entries) {
            Ok(key) => key,
            Err(message) => {
                refuse(format!("{at}.key"), message);
                continue;
            }
        };
        if let Some(first) = seen.insert(key.clone(), index) {
            refuse(
                format!("{at}.key"),
                format!(
                    "{} has a value already, in {field}[{first}]; leave one out",
                    entry.key
                ),
            );
        }
        let mut value = vec![0; layout.value.size];
        match write(&layout.value, &entry.value, &mut value) {
            Ok(()) => encoded.push(FillEntry {
                key,
                value: value.into(),
            }),
            Err(message) => refuse(format!("{at}.value"), message),
        }
    }
    encoded
}

fn key(layout: &TableLayout, value: &Value, max_entries: u32) -> Result<Box<[u8]>, String> {
    let mut key = vec![0; layout.key.size];
    let is_trie = layout.kind.family() == MapFamily::Trie;
    match value.as_str().filter(|text| is_trie && text.contains('/')) {
        Some(text) => prefix(text, &mut key)?,
        None => write(&layout.key, value, &mut key)?,
    }
    let first = key.first_chunk().map(|first| u32::from_ne_bytes(*first));
    match (layout.kind.family(), first) {
        (MapFamily::Array, Some(index)) if index >= max_entries => Err(format!(
            "{value} does not fit; the map has the indices 0 to {}",
            max_entries - 1
        )),
        (MapFamily::Trie, Some(length)) => {
            let bits = 8 * (key.len() - PREFIX);
            if length as usize > bits {
                return Err(format!(
                    "{value} does not fit; a prefix has at most {bits} bits"
                ));
            }
            clear_rest(&mut key[PREFIX..], length as usize);
            Ok(key.into())
        }
        _ => Ok(key.into()),
    }
}

/// Writes a prefix such as `10.0.0.0/8` into a key of a trie, after its length.
fn prefix(text: &str, key: &mut [u8]) -> Result<(), String> {
    let refuse = || {
        let example = if key.len() == PREFIX + 16 {
            "2001:db8::/32"
        } else {
            "10.0.0.0/8"
        };
        format!(
            "{text:?} does not fit; a prefix such as {example}, or the fields of the key are needed"
        )
    };
    let (address, length) = text.split_once('/').ok_or_else(refuse)?;
    let address: IpAddr = address.parse().map_err(|_| refuse())?;
    let mut length: u32 = length.parse().map_err(|_| refuse())?;
    let bits = match (address, key.len().saturating_sub(PREFIX)) {
        (IpAddr::V4(address), 4) => address.octets().to_vec(),
        (IpAddr::V4(address), 16) if length <= 32 => {
            length += 96;
            address.to_ipv6_mapped().octets().to_vec()
        }
        (IpAddr::V6(address), 16) => address.octets().to_vec(),
        _ => return Err(refuse()),
    };
    key[..PREFIX].copy_from_slice(&length.to_ne_bytes());
    key[PREFIX..].copy_from_slice(&bits);
    Ok(())
}

/// Clears the bits after a prefix, so that one prefix has one key.
fn clear_rest(bits: &mut [u8], length: usize) {
    for (index, byte) in bits.iter_mut().enumerate() {
        let kept = length.saturating_sub(8 * index).min(8);
        *byte &= (0xff00_u16 >> kept) as u8;
    }
}
