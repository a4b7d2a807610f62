//! The kernel objects of this daemon: opened once at the start. This is the entry point to everything else in this crate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use twinprobe_ebpf_common::DirectionCost;
use twinprobe_ebpf_common::finding::Rejection;

use crate::admit::uses::{MapUses, uses};
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::live::LiveRuns;
use crate::attach::epoch::EpochWords;
use crate::attach::expedite::{Expedite, Expedited, GracePeriods, Places};
use crate::attach::hook::attachment::TcMethod;
use crate::attach::host::{self, Host};
use crate::attach::quiesce::method::QuiesceMethod;
use crate::attach::quiesce::quiescer::Quiescer;
use crate::capabilities::Capabilities;
use crate::load::direction::LoadedDirection;
use crate::load::maps::Predecessor;
use crate::load::pins::{self, Deployment, DeploymentPins, DirectionRecord};
use crate::load::{bind, twins};
use crate::plan::object::ProbeObject;
use crate::plan::probe_plan::DirectionPlan;
use crate::plan::request::KernelFacts;
use crate::sys::bpffs::{self, PinsClaim};
use crate::sys::call::KernelError;
use crate::sys::{clock, cpus, process};
use crate::trial::replay::control::Control;
use crate::trial::{cost, options};
use twinprobe_state_files::private;

/// The kernel objects of this daemon, and the claim that keeps other daemons from the same pins.
#[derive(Debug)]
pub struct Kernel {
    /// The kernel objects that all probes share.
    pub host: Arc<Host>,
    grace_periods: GracePeriods,
    claim: PinsClaim,
}

impl Kernel {
    /// Takes over the pins in `bpffs` for the daemon of this state directory. The attachments of an earlier daemon continue
    /// unchanged until [`Self::settle`]; before that its probes must be [adopted](crate::attach::attached::Attached::adopt).
    /// `measured`: the caller will call [`Self::measure`]. Fails if another daemon holds the pins, or if the grace period
    /// method is not possible here.
    pub fn open(
        bpffs: &Path,
        state_dir: &Path,
        quiesce: QuiesceMethod,
        tc: TcMethod,
        expedite: Expedite,
        measured: bool,
    ) -> Result<Arc<Self>, KernelError> {
        let failed = |call| move |error| KernelError::new(call, bpffs.display().to_string(), error);
        // The check of the method comes first: an impossible method must not touch a pin.
        let quiescer = Quiescer::start(quiesce)
            .map_err(|error| KernelError::new("set-up", "the grace period", error))?;
        let quiescer = Arc::new(quiescer);
        process::raise_file_limit();
        bpffs::prepare(bpffs).map_err(failed("preparation"))?;
        let claim = PinsClaim::take(bpffs, state_dir).map_err(failed("taking over"))?;
        let pins = bpffs.join("probes");
        let hooks = bpffs.join("hooks");
        for directory in [&pins, &hooks] {
            private::directory(directory).map_err(failed("creation"))?;
        }
        let epochs = EpochWords::open(bpffs)?;
        let dispatchers =
            Dispatchers::open(hooks, Arc::clone(&quiescer), tc, measured).map_err(failed("adoption"))?;
        let possible_cpus = cpus::possible_cpus().map_err(failed("set-up"))?;
        let capabilities = Capabilities::probe(&quiescer, possible_cpus);
        let last = host::serials(&pins).map_err(failed("reading"))?.into_iter().max().unwrap_or(0);
        let boot_id = pins::boot_id().map_err(failed("set-up"))?;
        let serials = AtomicU64::new(last + 1);
        let unremoved = Mutex::default();
        let offloads = Arc::default();
        let host =
            Host { epochs, quiescer, dispatchers, capabilities, offloads, boot_id, pins, serials, unremoved };
        let grace_periods = GracePeriods::open(Places::here(state_dir), &host.boot_id, expedite);
        Ok(Arc::new(Self { host: Arc::new(host), grace_periods, claim }))
    }

    /// Expedites grace periods until the returned value is dropped, because attaching and detaching wait for them.
    pub fn expedite(&self) -> Expedited<'_> {
        self.grace_periods.expedite()
    }

    /// Returns the facts about this kernel that a plan needs.
    pub fn facts(&self) -> KernelFacts {
        KernelFacts {
            possible_cpus: self.host.capabilities.kernel.possible_cpus,
            page_size: rustix::param::page_size(),
            monotonic_zero_ns: u64::try_from(clock::monotonic_zero_ns()).unwrap_or(0),
            btf: aya::features().btf(),
            options: options::RUNNING,
            xdp_frags: self.host.capabilities.kernel.xdp_frags,
        }
    }

    /// Lets the kernel verify the program of a planned direction, and loads it with its maps, attached to nothing. Maps
    /// that both directions use are those of `first`, the direction that is loaded already.
    pub fn load(
        &self,
        plan: Arc<DirectionPlan>,
        object: &ProbeObject,
        old: Option<&Predecessor>,
        first: Option<&LoadedDirection>,
    ) -> Result<LoadedDirection, Rejection> {
        twins::load(plan, object, &self.host.capabilities, old, first, None)
    }

    /// Does the same as [`Self::load`] for a direction that sees packets of a capture, with their time as its
    /// clock: see [`Lane`](crate::trial::replay::lane::Lane).
    pub fn load_for_replay(
        &self,
        plan: Arc<DirectionPlan>,
        object: &ProbeObject,
        clock: &Control,
        first: Option<&LoadedDirection>,
    ) -> Result<LoadedDirection, Rejection> {
        twins::load(plan, object, &self.host.capabilities, None, first, Some(clock))
    }

    /// Tries the program of a planned direction on sample packets, with separate maps. Refuses a program that does
    /// more than its verdict allows. Returns the cost.
    pub fn cost(&self, plan: &DirectionPlan, object: &ProbeObject) -> Result<DirectionCost, Rejection> {
        cost::cost(plan, object, self.host.capabilities.kernel.possible_cpus)
    }

    /// Returns what metrics can read of the program of a loaded direction.
    pub fn uses(&self, plan: &DirectionPlan, object: &ProbeObject) -> Vec<MapUses> {
        let linked = bind::linked(object, plan);
        linked.map_or_else(|_| Vec::new(), |function| uses(plan, &object.defined, &function))
    }

    /// Opens the direction that an earlier daemon loaded. Fails with the reason if the pins differ from the
    /// record.
    pub fn open_direction(
        &self,
        mut plan: Arc<DirectionPlan>,
        object: &ProbeObject,
        deployment: &Deployment,
    ) -> Result<LoadedDirection, String> {
        if deployment.boot_id != self.host.boot_id {
            return Err("the machine has been started anew".into());
        }
        let name = plan.direction();
        let interface = plan.own_interface.as_ref().map(|own| own.index);
        let is_its = |record: &&DirectionRecord| record.direction == name && record.interface == interface;
        let record = deployment.directions.iter().find(is_its);
        let record = record.ok_or_else(|| format!("the record does not have the {name} direction"))?;
        // The programs keep their kind from the load, even if their section means another kind to this
        // version.
        if let Some(plan) = Arc::get_mut(&mut plan) {
            plan.frags = self.host.has_frags(plan.attach.hook, record.frags);
            plan.joined = record.joined;
        }
        let pins = DeploymentPins::new(&self.host.pins, deployment.serial);
        let open = |map: &str, twin: usize| pins.open_map(record, map, twin);
        twins::adopt(plan, object, &self.host.capabilities, pins.programs(record)?, open)
    }

    /// Removes the remains of deployments that were half made or half removed. To be called once every probe that an
    /// earlier daemon ran has been adopted. `kept` are the serials of the deployments that stay. If probes are `unsure`
    /// where their interfaces are, nothing is detached before [`Self::settle_again`].
    pub fn settle(&self, kept: &[u64], unsure: bool) {
        self.host.dispatchers.settle(unsure);
        for serial in host::serials(&self.host.pins).unwrap_or_default() {
            if !kept.contains(&serial) {
                self.host.remove_pins(serial);
            }
        }
    }

    /// Tells whether probes must look for their interfaces, and [`Self::settle_again`] must be called
    /// afterwards.
    pub fn is_unsettled(&self) -> bool {
        self.host.dispatchers.has_unclaimed()
    }

    /// Repeats the part of [`Self::settle`] that had to wait for probes to find their interfaces.
    pub fn settle_again(&self, unsure: bool) {
        self.host.dispatchers.settle(unsure);
    }

    /// Restores every attachment that another program has removed, and retries the removals that were not possible before.
    pub fn look(&self) {
        self.host.dispatchers.look();
        self.host.retry_removals();
    }

    /// Lets the kernel count what dispatchers take for `time`. Needs CAP_SYS_ADMIN and Linux 5.8.
    pub fn measure(&self, time: Duration) -> Result<Vec<LiveRuns>, KernelError> {
        let measured = self.host.dispatchers.measure(time);
        measured.map_err(|error| KernelError::new("counting", "the runs of programs", error))
    }

    /// Removes every pin of the daemon. To be called once all probes are detached. Failures are logged.
    pub fn unpin(&self) {
        let root = self.host.pins.parent().unwrap_or(&self.host.pins);
        let removed = self
            .host
            .epochs
            .unpin()
            .and_then(|()| self.claim.give_up())
            .and_then(|()| std::fs::remove_dir(root.join("hooks")))
            .and_then(|()| std::fs::remove_dir(&self.host.pins));
        if let Err(error) = removed {
            tracing::warn!(directory = %root.display(), %error, "not all pins could be removed");
        }
    }

    /// The capabilities found at the start, with the present state of the grace period methods.
    pub fn capabilities(&self) -> Capabilities {
        self.host.capabilities.now(&self.host.quiescer)
    }
}
