//! The reading of a `MonitoringProbe` from a file.

use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use twinprobe_api::{ConfigDocument, FleetProbeSpec, ParseError, parse_any_yaml, place_of};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_fleet::FleetPlan;
use twinprobe_library::fleet_probe;

use crate::error::CommandError;
use crate::files::files::{ProbeFile, inline_sources};

const API: &str = "twinprobe.dev/v1alpha1";
const KIND: &str = "MonitoringProbe";

/// A probe of a fleet in a file.
#[derive(Debug)]
pub struct FleetFile {
    pub plan: FleetPlan,
    /// True if the file says that the rollout stops.
    pub is_paused: bool,
}

/// The object as Kubernetes has it. Other metadata than the name is for Kubernetes alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Manifest {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: FleetProbeSpec,
    #[serde(default, rename = "status")]
    _status: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl FleetFile {
    /// Reads a probe of a fleet in YAML or JSON; `-` is the standard input. Sources that its configuration names by
    /// `source_file` are read, too.
    pub fn read(path: &Path) -> Result<Self, CommandError> {
        let is_stdin = path == Path::new("-");
        let text = if is_stdin { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
        let text = text.map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
        let refused = |problem: String| CommandError::FleetProbe { path: path.to_owned(), problem };
        let mut manifest: Manifest = parse_any_yaml(text.as_bytes()).map_err(|error| match error {
            ParseError::Invalid(rejection) => refused(lines(&text, &rejection)),
            ParseError::Malformed { message, line, column } => {
                refused(format!("line {line}, column {column}: {message}"))
            }
        })?;
        if (manifest.api_version.as_str(), manifest.kind.as_str()) != (API, KIND) {
            let (api, kind) = (&manifest.api_version, &manifest.kind);
            return Err(refused(format!("it is a {kind} of {api}; {KIND} of {API} is possible")));
        }
        if let Some(config) = &mut manifest.spec.config {
            let directory = if is_stdin { None } else { path.parent() }.unwrap_or(Path::new(""));
            with_sources(path, directory, &manifest.metadata.name, config)?;
        }
        let Manifest { metadata, spec, .. } = manifest;
        if spec.attach.pod_selector.is_some() || spec.attach.namespace_selector.is_some() {
            return Err(refused("spec.attach: only Kubernetes can select pods; give interfaces".to_owned()));
        }
        let plan = FleetPlan::new(&metadata.name, &spec, fleet_probe);
        let plan = plan.map_err(|rejection| refused(lines(&text, &rejection)))?;
        Ok(Self { plan, is_paused: spec.paused })
    }
}

/// Replaces `source_file` by the content of the file. A configuration that can't be read is left to the plan, which says why.
fn with_sources(path: &Path, directory: &Path, name: &str, config: &mut Value) -> Result<(), CommandError> {
    let Ok(document) = serde_json::from_value::<ConfigDocument>(config.clone()) else { return Ok(()) };
    let mut probe = ProbeFile::new(name.to_owned(), document);
    inline_sources(path, directory, &mut probe)?;
    if let Ok(document) = serde_json::to_value(&probe.config) {
        *config = document;
    }
    Ok(())
}

/// Formats mistakes with the lines of their fields in the file.
fn lines(text: &str, rejection: &Rejection) -> String {
    let line = |finding: &Finding| {
        let field = finding.field.as_deref().unwrap_or_default();
        let at = place_of(text, field).map(|(line, _)| format!("line {line}: ")).unwrap_or_default();
        let name = if field.is_empty() { String::new() } else { format!("{field}: ") };
        format!("{at}{name}{}", finding.message)
    };
    rejection.findings.iter().map(line).collect::<Vec<_>>().join("\n  ")
}
