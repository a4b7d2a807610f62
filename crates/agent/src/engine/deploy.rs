//! From a valid configuration to programs in the kernel that are attached to nothing yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use twinprobe_ebpf_common::hook::Hook;
use twinprobe_exporter::MergeRules;
use twinprobe_kernel::{
    Deployable, Extraction, Kernel, LoadedDirection, LoadedTwins, MetricRequest, TwinMap, crash,
};

use super::history::History;
use super::interfaces::wanted;
use super::reading::Running;
use super::{Engine, EngineError, Probe};
use crate::compiler::{CompiledObject, Compiler};
use crate::config::{
    self, AfterRead, ConfigDocument, Direction, DirectionConfig, MetricConfig, OnReplace, ProbeConfig,
    Source, Visibility,
};
use crate::store::{Pending, Store, StoreError, StoredDeployment, StoredProbe};
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};

/// The verifier needs a second for a million instructions. What takes much longer never ends: a verifier
/// that fails in the kernel takes the thread that called it with it.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Compiled, verified and loaded.
#[derive(Debug)]
pub struct LoadedProbe {
    /// True if every named interface has to exist.
    pub first: bool,
    /// In the order of [`ProbeConfig::directions`].
    pub directions: Vec<LoadedDirection>,
    /// What they were loaded from, by direction.
    pub objects: BTreeMap<&'static str, Vec<u8>>,
    pub warnings: Vec<Finding>,
}

impl LoadedProbe {
    /// Refuses an interval at which there is nothing to be closed.
    fn with_windows_to_close(self, config: &ProbeConfig) -> Result<Self, EngineError> {
        let resets = |(metric, map): (&MetricConfig, &TwinMap)| {
            Extraction::of(map, metric.after_read(), metric.visibility()).resets()
        };
        let mut metrics = config
            .directions()
            .zip(&self.directions)
            .flat_map(|((_, config), loaded)| config.metrics().iter().zip(&loaded.twins.maps));
        if config.schedule().is_none() || metrics.any(resets) {
            return Ok(self);
        }
        let message = "reading the metrics resets nothing, so that there are no windows to be closed; snapshot or init does";
        Err(Rejection::from(Finding::config("window.interval", message)).into())
    }

    /// Loads the directions again that were loaded for the other twin of `old`, because a window was closed since. Must
    /// be called while no window can be closed.
    pub fn follow(&mut self, kernel: &Kernel, config: &ProbeConfig, old: &Running) -> Result<(), Rejection> {
        let unnamed = config.on_replace() == OnReplace::Carry;
        for (loaded, (direction, config)) in self.directions.iter_mut().zip(config.directions()) {
            let name = direction.name();
            if !old.attached().is_continued_by(&loaded.twins) {
                let (hook, _) = hook(config);
                let old = old.predecessor(name, unnamed);
                let requests = requests(direction, config);
                loaded.twins = kernel.load(&self.objects[name], hook, name, &requests, old.as_ref())?;
            }
        }
        Ok(())
    }
}

impl Engine {
    /// `old` is what the probe will replace. Not `first`: it was deployed before, and may have to wait for its
    /// interfaces.
    pub(super) async fn load(
        &self,
        config: &ProbeConfig,
        first: bool,
        old: Option<Arc<Probe>>,
    ) -> Result<LoadedProbe, EngineError> {
        // Problems with the interfaces are reported before anything is compiled. The interfaces are listed again when
        // the probe is attached.
        let asked = config.clone();
        tokio::task::spawn_blocking(move || wanted(&asked, first)).await??;
        let toolchain = Arc::clone(&self.toolchain);
        let compiler = tokio::task::spawn_blocking(move || toolchain.get()).await?;
        let compiler = compiler.map_err(EngineError::NoCompiler)?;
        let mut compiled = Vec::new();
        let mut refused = Vec::new();
        let [ingress, egress] = Direction::ALL.map(|direction| self.compile(&compiler, config, direction));
        let (ingress, egress) = tokio::join!(ingress, egress);
        for outcome in [ingress, egress].into_iter().flatten() {
            match outcome {
                Ok(direction) => compiled.push(direction),
                Err(rejection) => refused.push(rejection),
            }
        }
        if !refused.is_empty() {
            return Err(merge(refused).into());
        }
        let kernel = Arc::clone(&self.kernel);
        let unnamed = config.on_replace() == OnReplace::Carry;
        let loading =
            tokio::task::spawn_blocking(move || load_all(&kernel, first, compiled, unnamed, old.as_deref()));
        match tokio::time::timeout(LOAD_LIMIT, loading).await {
            Ok(loaded) => loaded??.with_windows_to_close(config),
            Err(_) => Err(EngineError::LoadStuck(LOAD_LIMIT)),
        }
    }

    /// `None` if nothing is configured for the direction.
    async fn compile(
        &self,
        compiler: &Compiler,
        config: &ProbeConfig,
        direction: Direction,
    ) -> Option<Result<CompiledDirection, Rejection>> {
        let config = config.direction(direction)?;
        let field = format!("{direction}.source");
        let started = Instant::now();
        let object = compiler.compile(&field, config.source(), config.defines()).await;
        self.telemetry.compiled(started.elapsed(), object.is_ok());
        Some(object.map(|object| (direction, config.clone(), object)))
    }
}

/// A direction, what is configured for it and what its source compiled to.
type CompiledDirection = (Direction, DirectionConfig, CompiledObject);

fn load_all(
    kernel: &Kernel,
    first: bool,
    compiled: Vec<CompiledDirection>,
    unnamed: bool,
    old: Option<&Probe>,
) -> Result<LoadedProbe, EngineError> {
    let mut probe =
        LoadedProbe { first, directions: Vec::new(), objects: BTreeMap::new(), warnings: Vec::new() };
    let mut refused = Vec::new();
    for (direction, config, object) in compiled {
        let (hook, _) = hook(&config);
        let old = old.and_then(|old| old.predecessor(direction, unnamed));
        match kernel.load(&object.elf, hook, direction.name(), &requests(direction, &config), old.as_ref()) {
            Err(rejection) => refused.push(rejection),
            Ok(twins) => {
                let source = format!("{direction}.source");
                probe.warnings.extend(object.warnings);
                probe
                    .warnings
                    .extend(twins.warnings.iter().map(|warning| Finding::new(Stage::Load, &source, warning)));
                probe.directions.push(loaded_direction(&config, twins));
                probe.objects.insert(direction.name(), object.elf);
            }
        }
    }
    crash::pause("loaded");
    if refused.is_empty() { Ok(probe) } else { Err(merge(refused).into()) }
}

pub(super) fn hook(config: &DirectionConfig) -> (Hook, config::XdpMode) {
    match config.hook() {
        config::Hook::Xdp(mode) => (Hook::Xdp, mode),
        config::Hook::TcIngress => (Hook::TcIngress, config::XdpMode::Auto),
        config::Hook::TcEgress => (Hook::TcEgress, config::XdpMode::Auto),
    }
}

pub(super) fn loaded_direction(config: &DirectionConfig, twins: LoadedTwins) -> LoadedDirection {
    let (hook, xdp_mode) = hook(config);
    LoadedDirection {
        twins,
        hook,
        verdict: config.verdict(),
        xdp_mode,
        priority: i32::from(config.priority()),
        position: config.position(),
    }
}

pub(super) fn requests(direction: Direction, config: &DirectionConfig) -> Vec<MetricRequest> {
    config
        .metrics()
        .iter()
        .enumerate()
        .map(|(index, metric)| MetricRequest {
            field: format!("{direction}.metrics[{index}]"),
            map: metric.map().to_owned(),
            snapshot: metric.source() == Source::Snapshot,
            aggregated: metric.aggregation().is_some(),
            iterative: metric.extraction() == config::Extraction::Iterative,
            reset: metric.after_read() == AfterRead::Reset,
            hidden: metric.visibility() == Visibility::Hidden,
            merged: metric.merge().is_some_and(|rules| *rules != MergeRules::default()),
            event_type: metric.event_type().map(str::to_owned),
            carry: metric.on_replace() == OnReplace::Carry,
        })
        .collect()
}

/// What both directions say, in one answer.
fn merge(rejections: Vec<Rejection>) -> Rejection {
    let logs: Vec<String> = rejections.iter().filter_map(|rejection| rejection.log.clone()).collect();
    Rejection {
        findings: rejections.into_iter().flat_map(|rejection| rejection.findings).collect(),
        log: (!logs.is_empty()).then(|| logs.join("\n")),
    }
}

/// Writes to disk what a later daemon needs to adopt the deployment.
pub(super) fn prepare<'a>(
    store: &'a Store,
    name: &str,
    history: History,
    config: ConfigDocument,
    objects: &BTreeMap<&'static str, Vec<u8>>,
    deployable: &Deployable,
) -> Result<(StoredProbe, Pending<'a>), StoreError> {
    let keep =
        |(direction, elf): (&&'static str, &Vec<u8>)| Ok((String::from(*direction), store.keep_object(elf)?));
    let objects = objects.iter().map(keep).collect::<Result<_, StoreError>>()?;
    let running = Some(StoredDeployment { deployment: deployable.record().clone(), objects });
    let History { revision, created, .. } = history;
    let stored = StoredProbe { revision, created, config, running };
    let pending = store.prepare(name, &stored)?;
    Ok((stored, pending))
}
