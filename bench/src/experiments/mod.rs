//! The experiments, one file each.

mod adaptivity;
mod charts;
mod cost;
mod cpus;
mod decisions;
mod deployment;
mod dispatcher;
mod events;
mod export;
mod extraction;
mod features;
mod loss;
mod memory;
mod rate;
mod reading;
mod rules;
mod scale;
mod stores;
mod streams;

use anyhow::Result;

use crate::frame::options::Bench;
use crate::frame::section::Section;

/// An experiment, which names a page below docs/benchmarks/.
#[derive(Debug)]
pub struct Experiment {
    pub name: &'static str,
    pub run: fn(&Bench) -> Result<Section>,
}

/// All experiments, in the order of docs/SUMMARY.md.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "deployment",
        run: deployment::run,
    },
    Experiment {
        name: "loss",
        run: loss::run,
    },
    Experiment {
        name: "reading",
        run: reading::run,
    },
    Experiment {
        name: "extraction",
        run: extraction::run,
    },
    Experiment {
        name: "adaptivity",
        run: adaptivity::run,
    },
    Experiment {
        name: "rules",
        run: rules::run,
    },
    Experiment {
        name: "decisions",
        run: decisions::run,
    },
    Experiment {
        name: "features",
        run: features::run,
    },
    Experiment {
        name: "dispatcher",
        run: dispatcher::run,
    },
    Experiment {
        name: "cost",
        run: cost::run,
    },
    Experiment {
        name: "export",
        run: export::section::run,
    },
    Experiment {
        name: "events",
        run: events::delivery::run,
    },
    Experiment {
        name: "stages",
        run: events::stages::run,
    },
    Experiment {
        name: "actions",
        run: events::actions::run,
    },
    Experiment {
        name: "hooks",
        run: events::hooks::run,
    },
    Experiment {
        name: "memory",
        run: memory::run,
    },
    Experiment {
        name: "scale",
        run: scale::run,
    },
    Experiment {
        name: "charts",
        run: charts::run,
    },
    Experiment {
        name: "rate",
        run: rate::run,
    },
    Experiment {
        name: "stores",
        run: stores::run,
    },
    Experiment {
        name: "streams",
        run: streams::run,
    },
];
