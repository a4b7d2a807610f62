//! Benchmarks of the extraction of maps: over HTTP, against the kernel's own calls and against bpftool. Prints Markdown
//! and draws docs/figures/extraction.svg; docs/benchmarks.md keeps a run. Arguments choose sections by name;
//! `TWINPROBE_SCALE` scales the repetitions.

mod client;
mod curve;
mod http;
mod memory;
mod million;
mod plot;
mod window;

use twinprobe_tests::report;

fn main() -> anyhow::Result<()> {
    report::run(&[
        ("http", http::run),
        ("memory", memory::run),
        ("window", window::run),
        ("curve", curve::run),
    ])
}
