//! One consumer, with the events of one load.

use anyhow::{Result, ensure};

use super::consumer::{Consumer, Mode, Outcome};
use super::stand::{Load, Stand};
use super::tool::Tool;
use super::{ours, peers};

impl Consumer {
    /// Tells whether it is on this machine.
    pub fn is_here(self) -> bool {
        match self {
            Self::Bcc => peers::bcc_is_here(),
            Self::Bpftrace => peers::bpftrace_works(),
            _ => true,
        }
    }

    /// Sends packets to the tool while this consumer takes its events.
    pub fn run(self, stand: &Stand, tool: Tool, load: Load, mode: Mode) -> Result<Outcome> {
        let tool = Tool {
            interval: load.interval(),
            ..tool
        };
        let outcome = match self {
            Self::Twinprobe => ours::run(stand, tool, load, mode)?,
            Self::Bpftrace => peers::bpftrace(stand, tool, load)?,
            _ => peers::by_pin(stand, self, tool, load, mode)?,
        };
        let Outcome {
            events,
            lost,
            missed,
            delivered,
            gaps,
            disordered,
            damaged,
            ..
        } = outcome;
        ensure!(delivered > 0, "{} got no event", self.name());
        ensure!(
            delivered + lost + missed == events
                && gaps <= lost + missed
                && disordered == 0
                && damaged == 0,
            "{}: {outcome:?}",
            self.name()
        );
        Ok(outcome)
    }
}
