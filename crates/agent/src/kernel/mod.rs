//! The one door to the kernel: only this module knows aya and calls `bpf(2)`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the module they are kept for"
)]

mod asm;
mod bpffs;
mod capabilities;
pub mod clock;
mod dispatcher;
mod elf;
mod epoch;
mod events;
mod hook;
mod inner_maps;
pub mod interface;
mod loader;
mod map;
mod mapping;
pub mod memory;
mod object;
mod probe;
mod quiesce;
mod reclaim;
mod request;
mod sys;
mod twin_maps;
mod variables;
mod verifier;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::capabilities::Capabilities;
use self::dispatcher::{Dispatchers, Owner};
use self::epoch::EpochPage;
pub use self::events::{Event, EventMap, EventReader, Progress, Waiter};
pub use self::hook::{AttachError, Hook, TcMethod};
pub use self::loader::{LoadedTwins, with_causes};
pub use self::map::{MetricMap, Taken};
pub use self::probe::{Attached, LoadedDirection};
pub use self::quiesce::QuiesceMethod;
use self::quiesce::Quiescer;
pub use self::request::MetricRequest;
pub use self::sys::KernelError;
pub use self::twin_maps::TwinMap;
use crate::report::Rejection;

/// How the kernel is to be used.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub quiesce: QuiesceMethod,
    pub tc: TcMethod,
}

/// This daemon's part of the kernel.
#[derive(Debug)]
pub struct Kernel {
    epochs: Arc<EpochPage>,
    quiescer: Arc<Quiescer>,
    dispatchers: Dispatchers,
    capabilities: Capabilities,
    owners: AtomicU64,
}

impl Kernel {
    /// Takes over the pins in `bpffs`: what an earlier daemon left there is detached and removed.
    pub fn open(bpffs: &Path, options: Options) -> Result<Arc<Self>, KernelError> {
        let failed = |call| move |error| KernelError::new(call, bpffs.display().to_string(), error);
        raise_memlock_limit();
        bpffs::prepare(bpffs).map_err(failed("preparation"))?;
        let hooks = bpffs.join("hooks");
        dispatcher::remove_leftovers(&hooks).map_err(failed("clean-up"))?;
        let epochs_pin = bpffs.join("epochs");
        if epochs_pin.exists() {
            std::fs::remove_file(&epochs_pin).map_err(failed("clean-up"))?;
        }
        std::fs::create_dir_all(&hooks).map_err(failed("creation"))?;
        let epochs = EpochPage::create(&epochs_pin)?;
        let quiescer = Arc::new(Quiescer::start(options.quiesce).map_err(failed("set-up"))?);
        let possible_cpus = quiesce::possible_cpus().map_err(failed("set-up"))?;
        let capabilities = Capabilities::probe(quiescer.method(), possible_cpus);
        Ok(Arc::new(Self {
            dispatchers: Dispatchers::new(hooks, Arc::clone(&epochs), Arc::clone(&quiescer), options.tc),
            epochs,
            quiescer,
            capabilities,
            owners: AtomicU64::new(0),
        }))
    }

    /// Lets the kernel verify a direction's program and loads its twins, attached to nothing.
    pub fn load(
        &self,
        elf: &[u8],
        hook: Hook,
        field: &str,
        metrics: &[MetricRequest],
    ) -> Result<LoadedTwins, Rejection> {
        loader::load(elf, hook.kind(), field, metrics, &self.capabilities)
    }

    pub fn quiesce_method(&self) -> QuiesceMethod {
        self.quiescer.method()
    }

    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }
}

/// Before Linux 5.11 maps count as locked memory.
fn raise_memlock_limit() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a structure that lives through the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) } < 0 {
        tracing::debug!("the limit of locked memory stays as it is; kernels before 5.11 need it raised");
    }
}
