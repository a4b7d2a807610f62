//! The one door to the kernel: only this module knows aya and calls `bpf(2)`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the module they are kept for"
)]

mod asm;
mod bpffs;
mod capabilities;
mod carry;
pub mod clock;
pub mod confine;
mod dispatcher;
mod elf;
mod epoch;
mod events;
mod extraction;
mod held;
mod hook;
mod inner_maps;
pub mod interface;
mod loader;
mod map;
mod mapping;
pub mod memory;
pub mod netns;
mod object;
mod pins;
mod probe;
mod quiesce;
mod reclaim;
mod request;
mod rtnl;
mod sys;
mod twin_maps;
mod variables;
mod verifier;
pub mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::bpffs::Claim;
pub use self::capabilities::Capabilities;
pub use self::carry::{Loss, Predecessor, Remains};
use self::dispatcher::Dispatchers;
pub use self::dispatcher::Health;
use self::epoch::EpochPage;
pub use self::events::{Event, EventMap, EventReader, Progress, Waiter};
pub use self::extraction::Extraction;
pub use self::held::{Held, Replaced};
pub use self::hook::{AttachError, Hook, TcMethod};
pub use self::loader::{LoadedTwins, with_causes};
pub use self::map::MetricMap;
use self::pins::Pins;
pub use self::pins::{Deployment, Identity};
pub use self::probe::{
    Attached, AttachedAt, Beginning, Deployable, Interface, LoadedDirection, NotAttached, Quiesced,
};
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
    boot_id: String,
    /// One directory of pins for each deployment.
    pins: PathBuf,
    claim: Claim,
    serials: AtomicU64,
    /// Serials whose pins could not be removed, for want of descriptors, say; [`Self::look`] tries again.
    unremoved: Mutex<Vec<u64>>,
}

impl Kernel {
    /// Takes over the pins in `bpffs`, for the daemon of this state directory. What an earlier daemon left there goes
    /// on as it is until [`Self::settle`]; before that its probes are to be [adopted](Attached::adopt).
    pub fn open(bpffs: &Path, state_dir: &Path, options: Options) -> Result<Arc<Self>, KernelError> {
        let failed = |call| move |error| KernelError::new(call, bpffs.display().to_string(), error);
        // First of all: a method that is not possible here is refused before anything is touched.
        let quiescer = Quiescer::start(options.quiesce)
            .map_err(|error| KernelError::new("set-up", "the grace period", error))?;
        let quiescer = Arc::new(quiescer);
        raise_file_limit();
        bpffs::prepare(bpffs).map_err(failed("preparation"))?;
        let claim = Claim::take(bpffs, state_dir).map_err(failed("taking over"))?;
        let pins = bpffs.join("probes");
        std::fs::create_dir_all(&pins).map_err(failed("creation"))?;
        let epochs = EpochPage::open(bpffs)?;
        let hooks = bpffs.join("hooks");
        let dispatchers = Dispatchers::open(hooks, Arc::clone(&epochs), Arc::clone(&quiescer), options.tc)
            .map_err(failed("adoption"))?;
        let possible_cpus = quiesce::possible_cpus().map_err(failed("set-up"))?;
        let capabilities = Capabilities::probe(&quiescer, possible_cpus);
        let last = serials(&pins).map_err(failed("reading"))?.into_iter().max().unwrap_or(0);
        Ok(Arc::new(Self {
            dispatchers,
            epochs,
            quiescer,
            capabilities,
            boot_id: pins::boot_id().map_err(failed("set-up"))?,
            pins,
            claim,
            serials: AtomicU64::new(last + 1),
            unremoved: Mutex::default(),
        }))
    }

    /// Lets the kernel verify a direction's program and loads its twins, attached to nothing.
    pub fn load(
        &self,
        elf: &[u8],
        hook: Hook,
        field: &str,
        metrics: &[MetricRequest],
        old: Option<&Predecessor>,
    ) -> Result<LoadedTwins, Rejection> {
        loader::load(elf, hook.kind(), field, metrics, &self.capabilities, old)
    }

    /// The twins that an earlier daemon loaded from `elf`, if what is pinned is what the record says.
    pub fn open_twins(
        &self,
        elf: &[u8],
        hook: Hook,
        metrics: &[MetricRequest],
        deployment: &Deployment,
    ) -> Result<LoadedTwins, String> {
        if deployment.boot_id != self.boot_id {
            return Err("the machine has been started anew".into());
        }
        let name = hook.direction();
        let record = deployment.directions.iter().find(|record| record.direction == name);
        let record = record.ok_or_else(|| format!("the record does not have the {name} direction"))?;
        let pins = Pins::new(&self.pins, deployment.serial);
        let open = |map: &str, twin: usize| pins.open_map(record, map, twin);
        loader::adopt(elf, hook.kind(), metrics, &self.capabilities, pins.programs(record)?, open)
    }

    /// Removes what is left of deployments that were half made or half removed, once every probe that an earlier daemon
    /// ran has been adopted. `kept` are the serials of the deployments that stay. If probes are `unsure` where their
    /// interfaces are, nothing is detached before [`Self::settle_again`].
    pub fn settle(&self, kept: &[u64], unsure: bool) {
        self.dispatchers.settle(unsure);
        for serial in serials(&self.pins).unwrap_or_default() {
            if !kept.contains(&serial) {
                self.remove_pins(serial);
            }
        }
    }

    /// Tells whether probes have to look for their interfaces, and [`Self::settle_again`] has to be called afterwards.
    pub fn is_unsettled(&self) -> bool {
        self.dispatchers.has_unclaimed()
    }

    pub fn settle_again(&self, unsure: bool) {
        self.dispatchers.settle(unsure);
    }

    /// Makes every attachment again that somebody has removed, and retries the removals that were not possible before.
    pub fn look(&self) {
        self.dispatchers.look();
        self.unremoved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|serial| Pins::new(&self.pins, *serial).remove().is_err());
    }

    /// Removes the pins of a deployment that is no more; if this fails, [`Self::look`] tries again.
    fn remove_pins(&self, serial: u64) {
        if let Err(error) = Pins::new(&self.pins, serial).remove() {
            tracing::warn!(serial, %error, "a probe's pins could not be removed; it is tried again");
            self.unremoved.lock().unwrap_or_else(PoisonError::into_inner).push(serial);
        }
    }

    /// Once all probes are detached: leaves no pin.
    pub fn unpin(&self) {
        let root = self.pins.parent().unwrap_or(&self.pins);
        let removed = epoch::PINS
            .iter()
            .try_for_each(|pin| std::fs::remove_file(root.join(pin)))
            .and_then(|()| self.claim.give_up())
            .and_then(|()| std::fs::remove_dir(root.join("hooks")))
            .and_then(|()| std::fs::remove_dir(&self.pins));
        if let Err(error) = removed {
            tracing::warn!(directory = %root.display(), %error, "not all pins could be removed");
        }
    }

    pub fn quiesce_method(&self) -> QuiesceMethod {
        self.quiescer.method()
    }

    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.now(&self.quiescer)
    }

    fn new_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Serials up to this one have been used.
    pub fn skip_serials(&self, used: u64) {
        self.serials.fetch_max(used + 1, Ordering::Relaxed);
    }
}

/// Those that have pins.
fn serials(pins: &Path) -> std::io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(pins)? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(found)
}

/// Every map and program of every probe is open: as many files as may be.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives through the calls.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
        }
    };
    if !raised {
        tracing::warn!("the limit of open files stays as it is");
    }
}
