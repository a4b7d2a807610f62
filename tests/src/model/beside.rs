//! A second daemon with directories of its own on the same interface, which nothing done to the
//! first one may affect.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::ledger::{Mode, Range};
use super::probe::ProbeModel;
use super::spec::{MetricSpec, Place, ProbeSpec};
use super::world::Sent;
use crate::windows::Windows;
use crate::{Daemon, DaemonOptions, Directories, Topology};

/// A daemon with one probe and the model of that probe.
#[derive(Debug)]
pub struct Beside {
    daemon: Daemon,
    probe: ProbeModel,
}

impl Beside {
    pub fn start(topology: &Topology) -> Result<Self> {
        let directories = Arc::new(Directories::new()?);
        let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        let metric = |map, mode| MetricSpec {
            map,
            mode,
            layout: 1,
            entries: 256,
            other_type: false,
            reset: false,
        };
        let spec = ProbeSpec {
            place: Place::TcIngress,
            metrics: vec![
                metric("hash", Mode::Window),
                metric("array", Mode::Sum),
                metric("trie", Mode::Live),
            ],
            enforce: false,
            interval: None,
            collectors: false,
            variant: 0,
            generation: 0,
            broken: None,
            netns: None,
        };
        daemon.put("/v1/probes/beside", &spec.config()).expect(201);
        Ok(Self {
            daemon,
            probe: ProbeModel::new("beside", spec, 0, Arc::default()),
        })
    }

    /// Notes a burst that has reached the probe.
    pub fn see(&mut self, sent: Sent) {
        self.probe.see(
            sent.key,
            Range::exactly(sent.packets),
            sent.begun,
            sent.ended,
        );
    }

    /// Closes a window and compares everything with the model.
    pub fn check(&mut self) -> Result<()> {
        let address = self.daemon.address();
        let answer = Windows::at(address.clone(), &self.probe.name).try_close()?;
        ensure!(answer.status == 201, "the daemon beside: {}", answer.text());
        self.probe
            .collect(&address, None)
            .context("the daemon beside")?;
        let status = self.daemon.json(&self.probe.path());
        super::status::check(&mut self.probe, &status, false).context("the daemon beside")
    }
}
