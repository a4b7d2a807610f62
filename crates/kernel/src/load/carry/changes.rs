//! The addition of what an old map has counted since it was copied to the map that packets are counted in now.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout, counters};

use crate::admit::maps::trie_has_atomics;
use crate::load::carry::adder::Adder;
use crate::sys::{cpus, map};

/// Tells whether a map has no room for another entry: the error depends on the family of the map.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::E2BIG | libc::ENOSPC))
}

/// Adds the changes since the copy, while programs add, too. Returns the keys of the entries that do not fit, except
/// those that are `known` not to fit.
pub fn add_changes(
    map: &OwnedFd,
    layout: &TableLayout,
    copied: &HashMap<Box<[u8]>, Box<[u8]>>,
    known: &HashSet<Box<[u8]>>,
    rows: &RawTable,
) -> io::Result<HashSet<Box<[u8]>>> {
    let counters = counters(&layout.value);
    let mut left = HashSet::new();
    let mut changes = Vec::new();
    for (key, value) in rows.entries(layout) {
        let before = copied.get(key);
        if before.is_some_and(|before| **before == *value) {
            continue;
        }
        // An entry that is missing in the copy can only have been made by the new programs in the meantime.
        let is_new = before.is_none() && layout.kind.family() != MapFamily::Array;
        match if is_new { map::map_insert(map.as_fd(), key, value) } else { Ok(false) } {
            Ok(true) => {}
            Ok(false) => changes.push((key, value, before)),
            Err(error) if is_full(&error) => left.extend((!known.contains(key)).then(|| key.into())),
            Err(error) => return Err(error),
        }
    }
    if changes.is_empty() || counters.is_empty() {
        return Ok(left);
    }
    let atomic = layout.kind.family() != MapFamily::Trie || trie_has_atomics(layout.key.size);
    let adder = Adder::new(map.as_fd(), layout.key.size, &counters, atomic)?;
    let stride = layout.slot_stride();
    for slot in 0..layout.slots {
        let add = || {
            for (key, value, before) in &changes {
                let now = &value[slot * stride..][..stride];
                let before = before.map(|before| &before[slot * stride..][..stride]);
                let numbers: Vec<u64> = counters
                    .iter()
                    .map(|&(offset, size)| {
                        let number = |slot: &[u8]| load(&slot[offset..offset + size]);
                        number(now).wrapping_sub(before.map_or(0, number))
                    })
                    .collect();
                if numbers.iter().any(|number| *number != 0) {
                    adder.add(key, &numbers)?;
                }
            }
            Ok(())
        };
        // Only programs on a CPU reach that CPU's value, so the addition runs there.
        if layout.kind.is_percpu() { cpus::run_on(slot, add)? } else { add()? }
    }
    Ok(left)
}

fn load(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u64::from(u32::from_ne_bytes(bytes.try_into().unwrap_or_default())),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    }
}
