//! The transfer of late counts: the counts that an old map got after it was copied are added to the
//! map that counts now. The meaning of a field decides how: counts are added, and other numbers are
//! joined by the rules for windows.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use twinprobe_ebpf_common::field::join::LeafJoin;
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::{Leaf, Leaves};
use twinprobe_ebpf_common::{MapFamily, MergeRule, MergeRules, RawTable, TableLayout};

use crate::admit::maps::trie_has_atomics;
use crate::load::carry::adder::Adder;
use crate::load::carry::exchanger::{Exchange, Exchanger};
use crate::sys::{cpus, map};

/// The number of times that a field is computed again because programs have changed it. Each
/// attempt brings the field nearer to its result, except for counts that are too small for an
/// atomic addition.
const TRIES: usize = 1000;

/// Tells whether a map has no room for another entry: the error depends on the family of the map.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::E2BIG | libc::ENOSPC))
}

/// An entry of the old map that has changed, with its value when it was copied.
#[derive(Clone, Copy, Debug)]
struct ChangedEntry<'a> {
    key: &'a [u8],
    now: &'a [u8],
    before: Option<&'a [u8]>,
}

/// The numbers of a value.
struct Fields {
    /// The offset and the size in bytes of every number that a program can add to atomically:
    /// aligned, of 4 or 8 bytes, in the machine's own byte order.
    counters: Vec<(usize, usize)>,
    /// All other numbers, each with the offset of its array element.
    others: Vec<(Leaf<LeafJoin>, usize)>,
}

impl Fields {
    fn of(layout: &TableLayout) -> Self {
        let rules = MergeRules::default();
        let leaves = Leaves::new(&layout.value, &mut |path, meaning| {
            Some(rules.join(path, meaning))
        });
        let (mut counters, mut others) = (Vec::new(), Vec::new());
        leaves.for_each(|leaf, base| {
            let offset = base + leaf.offset;
            let is_counter = leaf.tag.rule == MergeRule::Sum
                && leaf.bits.is_none()
                && matches!(leaf.kind, LeafKind::Number { swapped: false, .. })
                && matches!(leaf.size, 4 | 8)
                && offset.is_multiple_of(leaf.size);
            if is_counter {
                counters.push((offset, leaf.size));
            } else {
                others.push((leaf.clone(), base));
            }
        });
        Self { counters, others }
    }
}

/// Adds the changes since the copy, while programs also add. Returns the keys of the entries that
/// do not fit, without the keys that are `known` not to fit.
pub fn add_changes(
    map: &OwnedFd,
    layout: &TableLayout,
    copied: &HashMap<Box<[u8]>, Box<[u8]>>,
    known: &HashSet<Box<[u8]>>,
    rows: &RawTable,
) -> io::Result<HashSet<Box<[u8]>>> {
    let mut left = HashSet::new();
    let mut changes = Vec::new();
    for (key, value) in rows.entries(layout) {
        let before = copied.get(key);
        if before.is_some_and(|before| **before == *value) {
            continue;
        }
        // An entry that is missing in the copy was made by the new programs after the copy.
        let is_new = before.is_none() && layout.kind.family() != MapFamily::Array;
        match if is_new {
            map::map_insert(map.as_fd(), key, value)
        } else {
            Ok(false)
        } {
            Ok(true) => {}
            Ok(false) => {
                changes.push(ChangedEntry {
                    key,
                    now: value,
                    before: before.map(|before| &**before),
                });
            }
            Err(error) if is_full(&error) => {
                left.extend((!known.contains(key)).then(|| key.into()));
            }
            Err(error) => return Err(error),
        }
    }
    join_changes(map, layout, &changes)?;
    Ok(left)
}

/// Joins the changes with the present values of the entries, which the map has already.
fn join_changes(
    map: &OwnedFd,
    layout: &TableLayout,
    changes: &[ChangedEntry<'_>],
) -> io::Result<()> {
    let fields = Fields::of(layout);
    if changes.is_empty() || fields.counters.is_empty() && fields.others.is_empty() {
        return Ok(());
    }
    let atomic = layout.kind.family() != MapFamily::Trie || trie_has_atomics(layout.key.size);
    let key_size = layout.key.size;
    let adder = if fields.counters.is_empty() {
        None
    } else {
        Some(Adder::new(map.as_fd(), key_size, &fields.counters, atomic)?)
    };
    let mut exchanger = Exchanger::new(map.as_fd(), key_size, layout.value.size, atomic);
    for slot in 0..layout.slots {
        let mut add = || {
            for change in changes {
                join_others(map, layout, slot, *change, &fields.others, &mut exchanger)?;
                if let Some(adder) = &adder {
                    add_counters(adder, layout, slot, *change, &fields.counters)?;
                }
            }
            Ok(())
        };
        // The addition runs on the CPU of the value: only programs there reach the value.
        if layout.kind.is_percpu() {
            cpus::run_on(slot, add)?;
        } else {
            add()?;
        }
    }
    Ok(())
}

fn add_counters(
    adder: &Adder,
    layout: &TableLayout,
    slot: usize,
    ChangedEntry { key, now, before }: ChangedEntry<'_>,
    counters: &[(usize, usize)],
) -> io::Result<()> {
    let number = |value: &[u8], offset: usize, size: usize| {
        load(&value[slot * layout.slot_stride() + offset..][..size])
    };
    let added = |&(offset, size): &(usize, usize)| {
        number(now, offset, size)
            .wrapping_sub(before.map_or(0, |before| number(before, offset, size)))
    };
    let numbers: Vec<u64> = counters.iter().map(added).collect();
    if numbers.iter().any(|number| *number != 0) {
        adder.add(key, &numbers)?;
    }
    Ok(())
}

/// Joins the numbers that can't be added atomically with the present numbers of the new programs.
fn join_others(
    map: &OwnedFd,
    layout: &TableLayout,
    slot: usize,
    ChangedEntry { key, now, before }: ChangedEntry<'_>,
    others: &[(Leaf<LeafJoin>, usize)],
    exchanger: &mut Exchanger<'_>,
) -> io::Result<()> {
    let of_slot = |value: &[u8]| value[slot * layout.slot_stride()..][..layout.value.size].to_vec();
    let (now, before) = (of_slot(now), before.map(of_slot));
    let is_changed = |(leaf, base): &&(Leaf<LeafJoin>, usize)| {
        before
            .as_ref()
            .is_none_or(|before| leaf.load(before, *base) != leaf.load(&now, *base))
    };
    let mut value = vec![0; layout.value_stride()];
    // True if the value is all zeros: the new programs have written nothing to it.
    let mut is_untouched = None;
    for (leaf, base) in others.iter().filter(is_changed) {
        for _ in 0..TRIES {
            if !map::map_lookup(map.as_fd(), key, &mut value)? {
                return Ok(());
            }
            let current = of_slot(&value);
            let untouched =
                *is_untouched.get_or_insert_with(|| current.iter().all(|&byte| byte == 0));
            let [old, new] = [&now, &current].map(|value| leaf.load(value, *base));
            let copied = before.as_ref().map(|before| leaf.load(before, *base));
            let joined = match (leaf.tag.rule, copied) {
                _ if untouched && new == 0 => old,
                (MergeRule::Sum, Some(copied)) if leaf.kind != LeafKind::Float => {
                    new.wrapping_add(old.wrapping_sub(copied))
                }
                // The number has not changed since the copy.
                (MergeRule::Last, Some(copied)) if new == copied => old,
                _ => leaf.tag.join(leaf.kind, leaf.width(), old, new),
            };
            if joined == new
                || exchanger.exchange(key, &current, (leaf, *base), joined)? != Exchange::Changed
            {
                break;
            }
        }
    }
    Ok(())
}

fn load(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u64::from(u32::from_ne_bytes(bytes.try_into().unwrap_or_default())),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
