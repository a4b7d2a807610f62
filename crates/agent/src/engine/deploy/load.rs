//! The step from a valid configuration to programs in the kernel that are not attached yet.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use twinprobe_ebpf_common::ProbeCost;
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::hook::{Direction, ProgramKind};
use twinprobe_faults::crash;
use twinprobe_kernel::{
    Deadline, DirectionPlan, Footprint, Kernel, KernelError, KernelFacts, LoadedDirection,
    ReplayClock,
};

use crate::engine::deploy::admission::admit;
use crate::engine::deploy::cause::Occasion;
use crate::engine::deploy::load::objects::with_hints;
use crate::engine::deploy::loaded::{LoadedAhead, LoadedProbe, first_of, planned};
use crate::engine::deploy::tags;
use crate::engine::deploy::trials::Trials;
use crate::engine::deployer::Deployer;
use crate::engine::error::EngineError;
use crate::engine::placement::wanted;
use crate::engine::probe::clashes::clashes;
use crate::engine::probe::exactness::{self, fitting};
use crate::engine::probe::probe::Probe;
use crate::engine::reading::metric::readers;
use crate::limits::ledger::Ledger;
use twinprobe_compiler::CompiledObject;
use twinprobe_config::{Code, ProbeConfig};

/// The time limit for loading. The verifier needs a second for a million instructions. A load that
/// takes much longer never ends: if the verifier crashes in the kernel, the calling thread never
/// continues.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

impl Deployer {
    /// Compiles and loads the programs of a probe that replaces `old`. A restored probe may have to
    /// wait for its interfaces. The maps in `anew` have exactly the entries of `fill` afterwards.
    pub async fn load(
        &self,
        config: &ProbeConfig,
        occasion: Occasion,
        old: Option<Arc<Probe>>,
        anew: BTreeSet<String>,
    ) -> Result<LoadedProbe, EngineError> {
        // Problems with the interfaces are reported before anything is compiled. The interfaces are
        // listed again when the probe is attached.
        let beside_libxdp = self.is_beside_libxdp(config, occasion).await?;
        self.load_as(
            config,
            Purpose::Deployment {
                occasion,
                old,
                anew,
                beside_libxdp,
            },
        )
        .await
    }

    /// Tells whether XDP programs of a probe must be called through libxdp's dispatcher. Refuses
    /// interfaces that do not exist.
    async fn is_beside_libxdp(
        &self,
        config: &ProbeConfig,
        occasion: Occasion,
    ) -> Result<bool, EngineError> {
        let (asked, pods) = (config.places.clone(), Arc::clone(&self.pods));
        let host = Arc::clone(&self.kernel.host);
        let look = move || {
            let wanted = wanted(&asked, occasion, &pods)?;
            Ok::<_, Rejection>(host.is_beside_libxdp(&wanted.interfaces))
        };
        Ok(tokio::task::spawn_blocking(look).await??)
    }

    /// Returns a loaded probe if its programs still have the kind that its interfaces need.
    pub async fn still_fitting(
        &self,
        ready: Option<Box<LoadedAhead>>,
    ) -> Result<Option<Box<LoadedAhead>>, EngineError> {
        let Some(ready) = ready else { return Ok(None) };
        let beside_libxdp = self.is_beside_libxdp(&ready.config, Occasion::New).await?;
        let fits = |loaded: &LoadedDirection| match loaded.plan.attach.hook.kind() {
            ProgramKind::Xdp => loaded.plan.joined == beside_libxdp,
            ProgramKind::Tc => true,
        };
        Ok(Some(ready).filter(|ready| ready.loaded.directions.iter().all(fits)))
    }

    /// Compiles and loads the programs of a probe that will not be attached. Earlier trials of the
    /// programs do not count.
    pub async fn load_for_validation(
        &self,
        config: &ProbeConfig,
    ) -> Result<LoadedProbe, EngineError> {
        let (asked, pods) = (config.places.clone(), Arc::clone(&self.pods));
        let wanted =
            tokio::task::spawn_blocking(move || wanted(&asked, Occasion::New, &pods)).await??;
        let mut loaded = self.load_as(config, Purpose::Validation).await?;
        let (host, name) = (Arc::clone(&self.kernel.host), config.name.clone());
        let (interfaces, _) = fitting(wanted.interfaces, &loaded.directions)?;
        loaded
            .warnings
            .extend(exactness::warnings(&interfaces, &loaded.directions));
        // A change of probes may hold the list of dispatchers for a while.
        let look = move || {
            let misfits = host.misfits(&name, &loaded.directions, &interfaces);
            let warning = |(direction, reason): (usize, String)| {
                Finding::new(
                    Stage::Attach,
                    &loaded.directions[direction].plan.code,
                    reason,
                )
            };
            loaded.warnings.extend(misfits.into_iter().map(warning));
            loaded
        };
        Ok(tokio::task::spawn_blocking(look).await?)
    }

    /// Compiles and loads the programs of a probe that sees the packets of a capture. The place
    /// `place` is occupied until the load has ended.
    pub async fn load_for_replay(
        &self,
        config: &ProbeConfig,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Result<LoadedProbe, EngineError> {
        // Captured packets come from no interface of this machine.
        let mut config = config.clone();
        config.places.per_interface = false;
        self.load_as(&config, Purpose::Replay { _place: place })
            .await
    }

    async fn load_as(
        &self,
        config: &ProbeConfig,
        purpose: Purpose,
    ) -> Result<LoadedProbe, EngineError> {
        self.load_or_refuse(config, purpose)
            .await
            .map_err(|error| match error {
                EngineError::Rejected(rejection) => with_hints(rejection, config).into(),
                error => error,
            })
    }

    async fn load_or_refuse(
        &self,
        config: &ProbeConfig,
        purpose: Purpose,
    ) -> Result<LoadedProbe, EngineError> {
        let mut compiled = Vec::new();
        let mut refused = Vec::new();
        let [ingress, egress] = Direction::ALL.map(|direction| self.object(config, direction));
        let (ingress, egress) = tokio::join!(ingress, egress);
        for outcome in [ingress, egress].into_iter().flatten() {
            match outcome {
                Ok(direction) => compiled.push(direction),
                Err(EngineError::Rejected(rejection)) => refused.push(rejection),
                Err(error) => return Err(error),
            }
        }
        if !refused.is_empty() {
            return Err(merge(refused).into());
        }
        let place = self.loads.take().await?;
        let (kernel, trials) = (Arc::clone(&self.kernel), Arc::clone(&self.trials));
        let (ledger, config) = (Arc::clone(&self.ledger), config.clone());
        let loading = tokio::task::spawn_blocking(move || {
            let _place = place;
            load_all((&kernel, &trials), &ledger, &purpose, &config, compiled)
        });
        match tokio::time::timeout(LOAD_LIMIT, loading).await {
            Ok(loaded) => loaded?,
            Err(_) => Err(EngineError::LoadStuck(LOAD_LIMIT)),
        }
    }
}

/// The purpose for which programs are loaded.
enum Purpose {
    Deployment {
        occasion: Occasion,
        old: Option<Arc<Probe>>,
        anew: BTreeSet<String>,
        beside_libxdp: bool,
    },
    Validation,
    Replay {
        _place: Arc<OwnedSemaphorePermit>,
    },
}

fn load_all(
    (kernel, trials): (&Kernel, &Trials),
    ledger: &Arc<Ledger>,
    purpose: &Purpose,
    config: &ProbeConfig,
    compiled: Vec<(Direction, CompiledObject)>,
) -> Result<LoadedProbe, EngineError> {
    let none = BTreeSet::new();
    let (occasion, old, anew) = match purpose {
        Purpose::Deployment {
            occasion,
            old,
            anew,
            ..
        } => (*occasion, old.as_deref(), anew),
        Purpose::Validation | Purpose::Replay { .. } => (Occasion::New, None, &none),
    };
    let elfs: Vec<&[u8]> = compiled.iter().map(|(_, object)| &object.elf[..]).collect();
    // A source in the dialect of BCC can name shared maps itself.
    let named = compiled.iter().flat_map(|(_, object)| &object.shared);
    let named = named.filter(|name| !config.shared_maps.contains(name));
    // The objects of both directions may name the same table.
    let named: BTreeSet<&String> = named.collect();
    let common: Vec<String> = config.shared_maps.iter().chain(named).cloned().collect();
    let facts = match purpose {
        // A probe continues that was loaded before daemons checked whether a kernel has such
        // packets.
        Purpose::Deployment {
            occasion: Occasion::Restored,
            ..
        } => KernelFacts {
            xdp_frags: true,
            ..kernel.facts()
        },
        Purpose::Deployment { .. } | Purpose::Validation => kernel.facts(),
        // The clock of a replay counts from the Unix epoch.
        Purpose::Replay { .. } => KernelFacts {
            monotonic_zero_ns: 0,
            ..kernel.facts()
        },
    };
    let (mut plan, parsed, findings) = planned(config, anew, &elfs, &common, facts);
    if !kernel.facts().xdp_frags {
        plan = plan.without_frags();
    }
    match purpose {
        Purpose::Replay { .. } => plan = plan.without_twins(),
        Purpose::Deployment {
            beside_libxdp: true,
            ..
        } => plan = plan.beside_libxdp(),
        Purpose::Deployment { .. } | Purpose::Validation => {}
    }
    let mut refused: Vec<Rejection> = findings.into_iter().map(Rejection::from).collect();
    let mut metrics = plan
        .directions
        .iter()
        .flat_map(|direction| &direction.metrics);
    if refused.is_empty()
        && config.schedule().is_some()
        && !metrics.any(|metric| metric.extraction.resets())
    {
        let message = "reading the metrics resets nothing, so there are no windows to close; use snapshot or init";
        refused.push(Finding::config("window.interval", message).into());
    }
    let (mut objects, mut warnings) = (BTreeMap::new(), Vec::new());
    for (direction, object) in compiled {
        warnings.extend(object.warnings);
        objects.insert(direction.name(), object.elf);
    }
    warnings.append(&mut plan.warnings);
    let of_first =
        |plan: &DirectionPlan| plan.own_interface.as_ref().is_none_or(|own| own.index == 0);
    for (plan, object) in plan
        .directions
        .iter()
        .zip(&parsed)
        .filter(|(plan, _)| of_first(plan))
    {
        let direction = config
            .directions()
            .find(|(direction, _)| direction.name() == plan.direction());
        let source = direction.and_then(|(_, config)| match &config.code {
            Code::Source(source) => Some(source.text.as_str()),
            Code::Object(_) => None,
        });
        warnings.extend(tags::warnings(plan, object, source));
    }
    let footprint = Footprint::of(&plan, &parsed, kernel.facts());
    // Probes that have run continue, even if the limits at this start are lower.
    let taken = match occasion {
        Occasion::New => ledger.take(
            &footprint,
            old.and_then(|old| old.running.as_ref().map(|running| &running.share)),
        ),
        Occasion::Restored => Ok(ledger.take_stored(&footprint)),
    };
    let share = match taken {
        Ok(share) => share,
        Err(rejection) => {
            refused.push(rejection);
            return Err(merge(refused).into());
        }
    };
    let limit = Duration::from_millis(ledger.limits.max_verification_ms);
    let begun = Instant::now();
    let deadline = occasion
        .is_new()
        .then(|| Deadline::start(limit))
        .transpose()
        .map_err(no_deadline)?;
    let (mut directions, mut clocks) = (Vec::<LoadedDirection>::new(), Vec::new());
    let old = old.and_then(Probe::predecessor);
    for (plan, object) in plan.directions.into_iter().zip(&parsed) {
        let (code, is_first, first) = (
            plan.code.clone(),
            of_first(&plan),
            first_of(&directions, &plan),
        );
        let loaded = match purpose {
            Purpose::Deployment { .. } | Purpose::Validation => {
                kernel.load(plan, object, old.as_ref(), first)
            }
            Purpose::Replay { .. } => {
                let clock = ReplayClock::new().map_err(no_clock)?;
                let loaded = kernel.load_for_replay(plan, object, &clock, first);
                clocks.push(clock);
                loaded
            }
        };
        match loaded {
            Err(_) if occasion.is_new() && begun.elapsed() >= limit => {
                let message = format!(
                    "the kernel has not verified the programs within {} ms, as --max-verification-ms allows; simplify them",
                    limit.as_millis()
                );
                refused.push(Finding::new(Stage::Load, code, message).into());
                break;
            }
            Err(rejection) => refused.push(rejection),
            Ok(mut loaded) => {
                warnings.extend(
                    std::mem::take(&mut loaded.warnings)
                        .into_iter()
                        .filter(|_| is_first),
                );
                directions.push(loaded);
            }
        }
    }
    drop(deadline);
    let mut cost = ProbeCost::default();
    if refused.is_empty() {
        let tries = (kernel, trials, matches!(purpose, Purpose::Validation));
        match admit(
            tries,
            config,
            occasion,
            &directions,
            (&parsed, &objects),
            &mut warnings,
        ) {
            Ok(found) => {
                cost = ProbeCost {
                    map_bytes: footprint.map_bytes,
                    ..found
                }
            }
            Err(rejections) => refused = rejections,
        }
    }
    crash::pause("loaded");
    if !refused.is_empty() {
        return Err(merge(refused).into());
    }
    let metrics = readers(config, &directions)?;
    let clashes = clashes(config, &metrics);
    // A probe that an earlier version has accepted continues.
    if occasion.is_new() && !clashes.is_empty() {
        return Err(Rejection::from(clashes).into());
    }
    Ok(LoadedProbe {
        occasion,
        directions,
        clocks,
        metrics,
        parsed,
        objects,
        warnings,
        cost,
        share,
    })
}

fn no_clock(error: io::Error) -> EngineError {
    KernelError::new("creation", "the clock of a replay", error).into()
}

fn no_deadline(error: io::Error) -> EngineError {
    KernelError::new("timer_create", "the time limit of the verifier", error).into()
}

/// Merges the refusals of both directions into one answer.
fn merge(rejections: Vec<Rejection>) -> Rejection {
    let logs: Vec<String> = rejections
        .iter()
        .filter_map(|rejection| rejection.log.clone())
        .collect();
    Rejection {
        findings: rejections
            .into_iter()
            .flat_map(|rejection| rejection.findings)
            .collect(),
        log: (!logs.is_empty()).then(|| logs.join("\n")),
    }
}
