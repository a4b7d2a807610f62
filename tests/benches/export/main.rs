//! What it costs to get map contents out: over HTTP, against the kernel's own calls and against bpftool. Prints Markdown
//! and draws docs/figures/extraction.svg; docs/benchmarks.md keeps a run. Names of sections as arguments choose among
//! them; `TWINPROBE_SCALE` scales the repetitions.
#![allow(
    clippy::disallowed_methods,
    reason = "the agent's extraction, which makes system calls, is compiled in"
)]

mod client;
mod curve;
mod http;
mod memory;
mod million;
mod plot;
mod window;

use twinprobe_tests::report;

/// The agent's extraction itself, without daemon, HTTP and rendering: the agent is a program and no library.
#[allow(dead_code, unused_imports, reason = "of the agent's kernel module, only reading maps is used here")]
#[path = "../../../crates/agent/src/kernel"]
mod kernel {
    pub mod map;
    pub mod mapping;
    pub mod memory;
    pub mod quiesce;
    pub mod sys;
}

/// What the agent's extraction takes from its configuration.
mod config {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AfterRead {
        Keep,
        Reset,
    }
}

/// The agent's crash points, which nothing here reaches.
mod crash {
    pub const fn point(_step: &str) {}
}

fn main() -> anyhow::Result<()> {
    report::run(&[
        ("http", http::run),
        ("memory", memory::run),
        ("window", window::run),
        ("curve", curve::run),
    ])
}
