//! Benchmark of batches against single lookups, on the agent's own code path: Fig. 5 of the paper.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{Layout, MapKind, RawTable, TableLayout};
use twinprobe_kernel::extraction::{self, Access, MapCreate, MetricMap, Table, Taken};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::{report, scaled};

use crate::plot::{self, Curve, Panel};

const SIZES: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
const KEY: usize = 4;
const VALUE: usize = 8;
const FIGURE: &str = "docs/figures/extraction.svg";

pub fn run() -> Result<()> {
    report::section(
        "Batches against one by one",
        "A full map of u32 -> u64 read, or read and reset, by the code that the daemon does it with, in this process: \
         no HTTP, no rendering. The same map in alternating order, filled again after each reset. Medians with \
         quartiles; the ratio is that of each pair. A reset deletes from a HASH and writes zeros to an ARRAY. The \
         kernel has no batches for a QUEUE, and the only way to look at more than its head is to pop: reading and \
         resetting are the same there, and one by one.",
    );
    report::table(&[
        "map",
        "operation",
        "entries",
        "pairs",
        "batches, us",
        "one by one, us",
        "one by one / batches",
    ]);
    let mut panels = Vec::new();
    for kind in [MapKind::Hash, MapKind::Array, MapKind::Queue] {
        panels.push(panel(kind)?);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FIGURE);
    std::fs::create_dir_all(path.parent().context("a directory")?)?;
    std::fs::write(&path, plot::draw(&panels)).with_context(|| format!("write {FIGURE}"))?;
    eprintln!("drawn: {FIGURE}");
    Ok(())
}

fn panel(kind: MapKind) -> Result<Panel> {
    let best = Access::new(kind, extraction::operations(kind, 1)?);
    let batched = best.iterative() != best;
    let operations: &[_] = if batched {
        &[("lookup", AfterRead::Keep), ("lookup and reset", AfterRead::Reset)]
    } else {
        &[("pop", AfterRead::Reset)]
    };
    let mut curves = Vec::new();
    for &(name, after) in operations {
        let mut medians = [Vec::new(), Vec::new()];
        for entries in SIZES {
            let map = Filled::new(kind, entries, best)?;
            let times = map.times(after, batched)?;
            times.report(kind, name, entries);
            for (medians, sample) in medians.iter_mut().zip([&times.batches, &times.one_by_one]) {
                if !sample.is_empty() {
                    medians.push((f64::from(entries), sample.median()));
                }
            }
        }
        let [batches, one_by_one] = medians;
        let reset = batched && after == AfterRead::Reset;
        if batched {
            curves.push(Curve {
                name: format!("{name}, batches"),
                second: reset,
                dashed: false,
                points: batches,
            });
        }
        curves.push(Curve {
            name: format!("{name}, one by one"),
            second: reset,
            dashed: true,
            points: one_by_one,
        });
    }
    Ok(Panel { title: kind.name().to_uppercase(), curves })
}

/// The times of both strategies in microseconds.
#[derive(Default)]
struct Times {
    batches: Sample,
    one_by_one: Sample,
    ratio: Sample,
}

impl Times {
    fn report(&self, kind: MapKind, operation: &str, entries: u32) {
        let summary = |sample: &Sample| {
            if sample.is_empty() {
                return String::new();
            }
            let decimals = if sample.median() < 100.0 { 2 } else { 0 };
            sample.summary(decimals)
        };
        report::row(&[
            kind.name().to_uppercase(),
            operation.to_owned(),
            entries.to_string(),
            self.one_by_one.len().to_string(),
            summary(&self.batches),
            summary(&self.one_by_one),
            summary(&self.ratio),
        ]);
    }
}

/// A full map, and both strategies to read it.
struct Filled {
    kind: MapKind,
    entries: u32,
    fd: OwnedFd,
    batches: MetricMap,
    one_by_one: MetricMap,
}

impl Filled {
    fn new(kind: MapKind, entries: u32, access: Access) -> Result<Self> {
        let key_size = if kind.has_keys() { KEY } else { 0 };
        let create = MapCreate {
            name: "tp_bench",
            map_type: kind.bpf_type().context("a map of the kernel")?,
            key_size: key_size as u32,
            value_size: VALUE as u32,
            max_entries: entries,
            ..MapCreate::default()
        };
        let fd = extraction::map_create(&create).context("create a map")?;
        let (key, value) = (Layout::opaque(key_size), Layout::opaque(VALUE));
        let layout = Arc::new(TableLayout { kind, key, value, slots: 1, inner: None });
        let table = |access| {
            let table = Table::new(fd.try_clone()?, "bench", Arc::clone(&layout), entries, [access; 2]);
            anyhow::Ok(MetricMap::Table(table))
        };
        let (batches, one_by_one) = (table(access)?, table(access.iterative())?);
        let map = Self { kind, entries, fd, batches, one_by_one };
        map.fill()?;
        Ok(map)
    }

    fn fill(&self) -> Result<()> {
        if !self.kind.has_keys() {
            for value in 0..u64::from(self.entries) {
                extraction::map_update(self.fd.as_fd(), &[], &value.to_ne_bytes()).context("push")?;
            }
            return Ok(());
        }
        let keys: Vec<u8> = (0..self.entries).flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = (0..u64::from(self.entries)).flat_map(u64::to_ne_bytes).collect();
        extraction::map_update_batch(self.fd.as_fd(), &keys, &values, self.entries as usize)
            .result
            .context("fill")
    }

    fn times(&self, after: AfterRead, batched: bool) -> Result<Times> {
        // Short readings are repeated more often, so that interrupts do not shape the median.
        let pairs = scaled((300_000 / u64::from(self.entries)).clamp(5, 500), 1_000);
        let mut times = Times::default();
        // The first reading touches the memory.
        self.read(&self.one_by_one, after)?;
        for pair in 0..pairs {
            let [mut batches, mut one_by_one] = [0.0; 2];
            for now_batches in [pair % 2 == 0, pair % 2 == 1] {
                if now_batches && batched {
                    batches = self.read(&self.batches, after)?;
                } else if !now_batches {
                    one_by_one = self.read(&self.one_by_one, after)?;
                }
            }
            times.one_by_one.add(one_by_one);
            if batched {
                times.batches.add(batches);
                times.ratio.add(one_by_one / batches);
            }
        }
        Ok(times)
    }

    fn read(&self, map: &MetricMap, after: AfterRead) -> Result<f64> {
        let mut rows = 0;
        let mut sink = |chunk: &RawTable| {
            rows += chunk.values.len() / VALUE;
            black_box(chunk);
            ControlFlow::Continue(())
        };
        let started = Instant::now();
        let flow = map.read_chunks(after, &mut Taken::default(), &mut sink)?;
        let time = started.elapsed().as_secs_f64();
        ensure!(flow.is_continue() && rows == self.entries as usize, "{rows} entries of {}", self.entries);
        if after == AfterRead::Reset {
            self.fill()?;
        }
        Ok(1e6 * time)
    }
}
