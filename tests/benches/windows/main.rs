//! What windows cost the packets that are monitored, and how long their grace periods are. Prints Markdown;
//! docs/benchmarks.md keeps a run. Names of sections as arguments choose among them; `TWINPROBE_SCALE` scales the
//! repetitions.

mod loss;
mod quiesce;
mod slices;

use twinprobe_tests::{measure, report};

fn main() -> anyhow::Result<()> {
    measure::come_first()?;
    report::run(&[("loss", loss::run), ("quiesce", quiesce::run)])
}
