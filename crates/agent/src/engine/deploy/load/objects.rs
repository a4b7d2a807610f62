//! The objects of a probe's directions: the daemon compiles sources, and examines objects that were
//! compiled elsewhere.

use std::sync::Arc;
use std::time::Instant;

use twinprobe_api::hint;
use twinprobe_compiler::CompiledObject;
use twinprobe_config::{Code, DirectionConfig, ProbeConfig};
use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage};
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::unit::Unit;

use crate::engine::deploy::examination;
use crate::engine::deployer::Deployer;
use crate::engine::error::EngineError;

impl Deployer {
    /// Compiles the source of a direction, or examines its object; `None` if nothing is configured
    /// for the direction.
    pub(super) async fn object(
        &self,
        config: &ProbeConfig,
        direction: Direction,
    ) -> Option<Result<(Direction, CompiledObject), EngineError>> {
        let (whole, config) = (config, config.direction(direction)?);
        let field = format!("{direction}.{}", config.code.field());
        let frags = self.kernel.capabilities().kernel.xdp_frags;
        let object = match &config.code {
            Code::Source(source) => {
                self.compile(&whole.unit((direction, config), source, &field, frags))
                    .await
            }
            Code::Object(elf) => self.examine(&field, config, elf).await,
        };
        Some(object.map(|object| (direction, object)))
    }

    async fn compile(&self, unit: &Unit<'_>) -> Result<CompiledObject, EngineError> {
        let toolchain = Arc::clone(&self.toolchain);
        let compiler = tokio::task::spawn_blocking(move || toolchain.get()).await?;
        let compiler = compiler.map_err(EngineError::NoCompiler)?;
        // Waiting does not count against the time limit of a compilation.
        let _place = self.compilations.take().await?;
        let started = Instant::now();
        let object = compiler.compile(unit).await;
        if !object.as_ref().is_ok_and(|object| object.reused) {
            self.telemetry.compiled(started.elapsed(), object.is_ok());
        }
        Ok(object?)
    }

    /// Examines an object that was compiled elsewhere in a separate process, because a damaged
    /// object may end the process.
    async fn examine(
        &self,
        field: &str,
        config: &DirectionConfig,
        elf: &[u8],
    ) -> Result<CompiledObject, EngineError> {
        let _place = self.compilations.take().await?;
        let examined = examination::examine(config.attach.hook, config.entry.as_deref(), elf).await;
        examined.map_err(|message| Rejection::from(Finding::new(Stage::Load, field, message)))?;
        Ok(CompiledObject {
            elf: elf.to_owned(),
            warnings: Vec::new(),
            shared: Vec::new(),
            reused: false,
        })
    }
}

/// Adds advice to the frequent findings about a source.
pub fn with_hints(mut rejection: Rejection, config: &ProbeConfig) -> Rejection {
    for (direction, config) in config.directions() {
        let Code::Source(source) = &config.code else {
            continue;
        };
        let of_files = source
            .files
            .iter()
            .map(|(name, text)| (format!("{direction}.files.{name}"), text));
        let of_source = (format!("{direction}.source"), &source.text);
        for (field, text) in of_files.chain([of_source]) {
            let about = |finding: &&mut Finding| finding.field.as_ref() == Some(&field);
            for finding in rejection.findings.iter_mut().filter(about) {
                finding.hint = hint(finding, text);
            }
        }
    }
    rejection
}
