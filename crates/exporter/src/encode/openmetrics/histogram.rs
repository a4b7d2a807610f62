//! Arrays of counts by magnitude as buckets.

use twinprobe_ebpf_common::RawTable;

use super::series::Series;
use super::text::{bound, integer};
use crate::leaf::Leaf;

/// What no value of 64 bits exceeds is the bound of the last slot but infinity.
const SLOTS: usize = 64;

/// The counts of one array, or of one array per CPU.
#[derive(Debug, Default)]
pub struct Histogram {
    cpus: Vec<[u128; SLOTS]>,
    last: usize,
}

impl Histogram {
    pub fn add(&mut self, series: &Series, leaf: &Leaf<()>, rows: &RawTable) {
        let len = series.len(rows);
        if len > 0 && self.cpus.is_empty() {
            self.cpus = vec![[0; SLOTS]; series.cpus()];
        }
        for row in 0..len {
            let key = series.key(rows, row);
            let index = key.iter().rev().fold(0, |index, &byte| index << 8 | usize::from(byte));
            let index = index.min(SLOTS - 1);
            self.last = self.last.max(index);
            for (slots, value) in self.cpus.iter_mut().zip(series.slots(rows, row)) {
                slots[index] = slots[index].saturating_add(leaf.load(value, 0));
            }
        }
    }

    pub fn write(&self, name: &str, series: &Series, out: &mut Vec<u8>) {
        for (cpu, slots) in self.cpus.iter().enumerate() {
            let mut count = 0_u128;
            for (index, slot) in slots.iter().enumerate().take(self.last + 1) {
                count = count.saturating_add(*slot);
                bucket(name, series, cpu, out, count, |out| bound(out, 2_f64.powi(index as i32 + 1) - 1.0));
            }
            bucket(name, series, cpu, out, count, |out| out.extend_from_slice(b"+Inf"));
        }
    }
}

fn bucket(
    name: &str,
    series: &Series,
    cpu: usize,
    out: &mut Vec<u8>,
    count: u128,
    bound: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"_bucket");
    out.extend_from_slice(series.labels.as_bytes());
    if series.is_percpu() {
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
