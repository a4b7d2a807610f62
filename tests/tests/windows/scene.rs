//! The scene of the tests of windows over HTTP and on the command line.

use anyhow::Result;
use serde_json::Value;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::{Windows, config, packets};
use twinprobe_tests::{Bystanders, Daemon, Topology};

/// The path of the probe.
pub const PROBE: &str = "/v1/probes/p";

/// A probe whose windows are closed by requests or by the clock, beside bystanders.
pub struct Scene {
    pub daemon: Daemon,
    pub bystanders: Bystanders,
    pub windows: Windows,
    pub generator: Generator,
    _topology: Topology,
}

impl Scene {
    pub fn new(window: &Value) -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        daemon.put(PROBE, &config(window, &[])).expect(201);
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        Ok(Self {
            windows: Windows::of(&daemon, "p"),
            daemon,
            bystanders,
            generator,
            _topology: topology,
        })
    }

    /// Sends packets and closes the window that counts them.
    pub fn close(&mut self, count: u64) -> Result<Value> {
        self.generator.send(count)?;
        let document = self.windows.close();
        assert_eq!(packets(&document), count);
        Ok(document)
    }
}
