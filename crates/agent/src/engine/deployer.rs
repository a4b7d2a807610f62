//! The parts that deployments need in addition to the probes: the kernel, the compiler, the store
//! of configurations, and limits.

use std::sync::Arc;

use twinprobe_compiler::Toolchain;
use twinprobe_kernel::Kernel;

use crate::engine::deploy::trials::Trials;
use crate::engine::pods::options::PodOptions;
use crate::engine::pods::table::NodePods;
use crate::limits::ledger::Ledger;
use crate::limits::options::RequestLimits;
use crate::limits::queue::Queue;
use crate::store::Store;
use crate::store::spool::Spools;
use crate::telemetry::registry::Telemetry;

#[derive(Debug)]
pub struct Deployer {
    pub kernel: Arc<Kernel>,
    pub toolchain: Arc<Toolchain>,
    pub store: Store,
    pub ledger: Arc<Ledger>,
    pub trials: Arc<Trials>,
    /// The pods of this node. Probes may be attached to their interfaces.
    pub pods: Arc<NodePods>,
    pub compilations: Queue,
    pub loads: Queue,
    /// Counts the compilations.
    pub telemetry: Arc<Telemetry>,
}

impl Deployer {
    pub fn new(
        kernel: Arc<Kernel>,
        toolchain: Toolchain,
        store: Store,
        limits: RequestLimits,
        telemetry: &Arc<Telemetry>,
        pods: PodOptions,
    ) -> Self {
        let compilations = limits.max_compilations.get();
        let pods = Arc::new(NodePods::new(pods, store.pods()));
        Self {
            kernel,
            toolchain: Arc::new(toolchain),
            store,
            trials: Arc::default(),
            pods,
            compilations: Queue::new("compilations", "--max-compilations", compilations),
            loads: Queue::new("loads", "--max-loads", limits.max_loads.get()),
            ledger: Ledger::new(limits),
            telemetry: Arc::clone(telemetry),
        }
    }

    /// Returns the place for files with data that is too large for the memory.
    pub fn spools(&self) -> Spools {
        self.store.spools(self.ledger.limits.keep_free_bytes)
    }
}
