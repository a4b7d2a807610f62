//! `twinprobe build`.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value, json};
use twinprobe_api::ConfigDocument;
use twinprobe_compiler::{Compiler, CompilerOptions, Toolchain};
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::Finding;

use twinprobe_cli::files::files::{self, ProbeFile};
use twinprobe_cli::output::print;
use twinprobe_cli::output::progress::ProgressLine;
use twinprobe_cli::{CommandError, Reporter};
use twinprobe_config::{Code, ProbeConfig};

#[derive(Debug, Args)]
pub struct Build {
    /// JSON or YAML with one or many configurations; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Take the source of ingress from this file
    #[arg(long, value_name = "FILE")]
    ingress: Option<PathBuf>,
    /// Take the source of egress from this file
    #[arg(long, value_name = "FILE")]
    egress: Option<PathBuf>,
    /// Build for kernels whose XDP programs see packets of one buffer only (before Linux 5.18)
    #[arg(long)]
    single_buffer: bool,
    /// Take the types of vmlinux.h from this file, the BTF of another kernel or an ELF file with it
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// Write the configuration to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Build {
    /// Writes the configurations with `object` in place of `source`.
    pub async fn run(self, reporter: &Reporter) -> Result<(), CommandError> {
        let mut probes = files::read_with(
            &self.file,
            [self.ingress.as_deref(), self.egress.as_deref()],
        )?;
        // The operator's own sources are compiled on the operator's own machine.
        let compiler = Toolchain::discover(CompilerOptions {
            allow_unconfined_compiler: true,
        })
        .known();
        let compiler = compiler.map_err(CommandError::NoCompiler)?;
        if let Some(btf) = &self.btf {
            compiler.take_types_from(btf);
        }
        let progress = ProgressLine::steps(probes.len());
        for probe in &mut probes {
            progress.at(format!("compiling {}", probe.name));
            let warnings = compile(&compiler, self.single_buffer, probe).await?;
            progress.pause(|| reporter.warnings(&warnings, &probe.sources));
            progress.done();
        }
        drop(progress);
        let text = format!("{:#}\n", document(probes)?);
        match self.output {
            None => print::print(text),
            Some(path) => {
                std::fs::write(&path, text).map_err(|source| CommandError::Written { path, source })
            }
        }
    }
}

/// Compiles the sources of a configuration. Returns the compiler's warnings.
async fn compile(
    compiler: &Compiler,
    single_buffer: bool,
    probe: &mut ProbeFile,
) -> Result<Vec<Finding>, CommandError> {
    let ProbeFile {
        name,
        config: document,
        sources,
    } = probe;
    let refused = |rejection| CommandError::Rejected {
        rejection,
        sources: Box::new(sources.clone()),
    };
    let mut warnings = Vec::new();
    // The interface may be named when the configuration is applied.
    let mut checked = document.clone();
    if checked.interfaces.is_none() {
        checked.interface.get_or_insert_with(|| "lo".to_owned());
    }
    let valid = ProbeConfig::validate(name, &checked).map_err(refused)?;
    for (direction, config) in valid.directions() {
        let Code::Source(source) = &config.code else {
            continue;
        };
        let field = format!("{direction}.source");
        let unit = valid.unit((direction, config), source, &field, !single_buffer);
        let object = compiler.compile(&unit).await.map_err(refused)?;
        warnings.extend(object.warnings);
        document.share(&object.shared);
        let written = match direction {
            Direction::Ingress => &mut document.ingress,
            Direction::Egress => &mut document.egress,
        };
        if let Some(written) = written {
            written.take_object(STANDARD.encode(object.elf));
        }
    }
    Ok(warnings)
}

/// Returns one configuration as it is, and several by their names.
fn document(mut probes: Vec<ProbeFile>) -> Result<Value, CommandError> {
    let value = |config: ConfigDocument| serde_json::to_value(config).map_err(std::io::Error::from);
    if let [ProbeFile { .. }] = &probes[..] {
        let ProbeFile {
            name, mut config, ..
        } = probes.remove(0);
        config.name.get_or_insert(name);
        return Ok(value(config)?);
    }
    let named = probes
        .into_iter()
        .map(|ProbeFile { name, config, .. }| Ok((name, value(config)?)));
    let named: Result<Map<String, Value>, std::io::Error> = named.collect();
    Ok(json!({ "probes": named? }))
}
