//! Benchmarks of windows: their cost for monitored packets, and the length of grace periods. Prints Markdown;
//! docs/benchmarks.md keeps a run. Arguments choose sections by name; `TWINPROBE_SCALE` scales the repetitions.

mod loss;
mod quiesce;
mod slices;

use twinprobe_tests::{measure, report};

fn main() -> anyhow::Result<()> {
    measure::come_first()?;
    report::run(&[("loss", loss::run), ("quiesce", quiesce::run)])
}
