//! From a valid configuration to programs in the kernel that are attached to nothing yet.

use std::sync::Arc;
use std::time::Duration;

use twinprobe_exporter::MergeRules;

use super::{Engine, EngineError};
use crate::compiler::CompiledObject;
use crate::config::{
    self, AfterRead, Direction, DirectionConfig, Extraction, ProbeConfig, Source, Visibility,
};
use crate::kernel::{Hook, Kernel, LoadedDirection, MetricRequest, interface};
use crate::report::{Finding, Rejection, Stage};

/// The verifier needs a second for a million instructions. What takes much longer never ends: a verifier
/// that fails in the kernel takes the thread that called it with it.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Compiled, verified and loaded.
#[derive(Debug)]
pub struct LoadedProbe {
    pub interfaces: Vec<(String, u32)>,
    /// In the order of [`ProbeConfig::directions`].
    pub directions: Vec<LoadedDirection>,
    pub warnings: Vec<Finding>,
}

impl Engine {
    pub(super) async fn load(&self, config: &ProbeConfig) -> Result<LoadedProbe, EngineError> {
        let interfaces = resolve(config.interfaces())?;
        let mut compiled = Vec::new();
        let mut refused = Vec::new();
        let [ingress, egress] = Direction::ALL.map(|direction| self.compile(config, direction));
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
        let loading = tokio::task::spawn_blocking(move || load_all(&kernel, interfaces, compiled));
        match tokio::time::timeout(LOAD_LIMIT, loading).await {
            Ok(loaded) => loaded?,
            Err(_) => Err(EngineError::LoadStuck(LOAD_LIMIT)),
        }
    }

    /// `None` if nothing is configured for the direction.
    async fn compile(
        &self,
        config: &ProbeConfig,
        direction: Direction,
    ) -> Option<Result<CompiledDirection, Rejection>> {
        let config = config.direction(direction)?;
        let field = format!("{direction}.source");
        let object = self.compiler.compile(&field, config.source(), config.defines()).await;
        Some(object.map(|object| (direction, config.clone(), object)))
    }
}

/// A direction, what is configured for it and what its source compiled to.
type CompiledDirection = (Direction, DirectionConfig, CompiledObject);

/// The index of each interface; all that do not exist are named.
fn resolve(names: &[String]) -> Result<Vec<(String, u32)>, Rejection> {
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for name in names {
        match interface::index(name) {
            Ok(index) => found.push((name.clone(), index)),
            Err(error) => {
                let message = format!(
                    "there is no interface {name} in the daemon's network namespace ({error}); see ip link"
                );
                findings.push(Finding::new(Stage::Attach, "interface", message));
            }
        }
    }
    if findings.is_empty() { Ok(found) } else { Err(Rejection { findings, log: None }) }
}

fn load_all(
    kernel: &Kernel,
    interfaces: Vec<(String, u32)>,
    compiled: Vec<CompiledDirection>,
) -> Result<LoadedProbe, EngineError> {
    let mut probe = LoadedProbe { interfaces, directions: Vec::new(), warnings: Vec::new() };
    let mut refused = Vec::new();
    for (direction, config, object) in compiled {
        let (hook, xdp_mode) = match config.hook() {
            config::Hook::Xdp(mode) => (Hook::Xdp, mode),
            config::Hook::TcIngress => (Hook::TcIngress, config::XdpMode::Auto),
            config::Hook::TcEgress => (Hook::TcEgress, config::XdpMode::Auto),
        };
        match kernel.load(&object.elf, hook, direction.name(), &requests(direction, &config)) {
            Err(rejection) => refused.push(rejection),
            Ok(twins) => {
                let source = format!("{direction}.source");
                probe.warnings.extend(object.warnings);
                probe
                    .warnings
                    .extend(twins.warnings.iter().map(|warning| Finding::new(Stage::Load, &source, warning)));
                let verdict = config.verdict();
                probe.directions.push(LoadedDirection { twins, hook, verdict, xdp_mode });
            }
        }
    }
    if refused.is_empty() { Ok(probe) } else { Err(merge(refused).into()) }
}

fn requests(direction: Direction, config: &DirectionConfig) -> Vec<MetricRequest> {
    config
        .metrics()
        .iter()
        .enumerate()
        .map(|(index, metric)| MetricRequest {
            field: format!("{direction}.metrics[{index}]"),
            map: metric.map().to_owned(),
            snapshot: metric.source() == Source::Snapshot,
            aggregated: metric.aggregation().is_some(),
            iterative: metric.extraction() == Extraction::Iterative,
            reset: metric.after_read() == AfterRead::Reset,
            hidden: metric.visibility() == Visibility::Hidden,
            merged: metric.merge().is_some_and(|rules| *rules != MergeRules::default()),
            event_type: metric.event_type().map(str::to_owned),
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
