//! Arrays of counts by magnitude as buckets.

use super::{
    source::Source,
    text::{bound, integer},
};
use crate::leaf::Leaf;

/// What no value of 64 bits exceeds is the bound of the last slot but infinity.
const SLOTS: usize = 64;

/// All buckets of one array, or of one array per CPU.
pub fn write(name: &str, source: &Source<'_>, leaf: &Leaf<()>, out: &mut Vec<u8>) {
    let cpus = if source.is_percpu() { source.metric.layout.slots } else { 1 };
    let mut slots = vec![[0_u128; SLOTS]; if source.len() == 0 { 0 } else { cpus }];
    let mut last = 0;
    for row in (0..source.len()).filter(|row| !source.is_duplicate(*row)) {
        let index = source.key(row).iter().rev().fold(0, |index, &byte| index << 8 | usize::from(byte));
        let index = index.min(SLOTS - 1);
        last = last.max(index);
        for (slots, value) in slots.iter_mut().zip(source.slots(row)) {
            slots[index] = slots[index].saturating_add(leaf.load(value, 0));
        }
    }
    for (cpu, slots) in slots.iter().enumerate() {
        let mut count = 0_u128;
        for (index, slot) in slots.iter().enumerate().take(last + 1) {
            count = count.saturating_add(*slot);
            bucket(name, source, cpu, out, count, |out| bound(out, 2_f64.powi(index as i32 + 1) - 1.0));
        }
        bucket(name, source, cpu, out, count, |out| out.extend_from_slice(b"+Inf"));
    }
}

fn bucket(
    name: &str,
    source: &Source<'_>,
    cpu: usize,
    out: &mut Vec<u8>,
    count: u128,
    bound: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"_bucket");
    out.extend_from_slice(source.labels.as_bytes());
    if source.is_percpu() {
        out.extend_from_slice(b",cpu=\"");
        integer(out, cpu);
        out.push(b'"');
    }
    out.extend_from_slice(b",le=\"");
    bound(out);
    out.extend_from_slice(b"\"} ");
    integer(out, count);
    out.push(b'\n');
}
