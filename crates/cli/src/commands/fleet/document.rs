//! The reading of a `MonitoringProbe` or a `MonitoringRule` from a file.

use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use twinprobe_api::{
    ConfigDocument, FleetProbeSpec, FleetRuleSpec, ParseError, parse_any_yaml, place_of,
};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_fleet::{FleetPlan, misnamed_rule};
use twinprobe_library::fleet_probe;
use twinprobe_rules::check_fleet_rule;

use crate::error::CommandError;
use crate::files::files::{ProbeFile, inline_sources};

const API: &str = "twinprobe.dev/v1alpha1";
const PROBE: &str = "MonitoringProbe";
const RULE: &str = "MonitoringRule";
const ONE_BY_ONE: &str = "each daemon judges its own windows; `twinprobe stream --rules` judges those of several together";

/// An object in a file.
#[derive(Debug)]
pub enum FleetFile {
    Probe(Box<FleetProbeFile>),
    Rule(Box<FleetRuleFile>),
}

/// A probe of a fleet.
#[derive(Debug)]
pub struct FleetProbeFile {
    pub plan: FleetPlan,
    /// True if the file says that the rollout stops.
    pub is_paused: bool,
}

/// A rule of a fleet, for the daemons that each judge their own windows.
#[derive(Debug)]
pub struct FleetRuleFile {
    pub name: String,
    pub spec: FleetRuleSpec,
}

/// The object as Kubernetes has it. Other metadata than the name is for Kubernetes alone.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Manifest<T> {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: T,
    #[serde(default, rename = "status")]
    _status: Value,
}

/// The fields that say what an object is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManifestKind {
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl FleetFile {
    /// Reads the objects of a file in YAML or JSON; `-` is the standard input. Documents of YAML
    /// are separated by `---`. Also reads the sources that configurations name by `source_file`.
    pub fn read(path: &Path) -> Result<Vec<Self>, CommandError> {
        let is_stdin = path == Path::new("-");
        let text = if is_stdin {
            io::read_to_string(io::stdin())
        } else {
            std::fs::read_to_string(path)
        };
        let text = text.map_err(|source| CommandError::Read {
            path: path.to_owned(),
            source,
        })?;
        let directory = if is_stdin { None } else { path.parent() }.unwrap_or(Path::new(""));
        let objects = documents(&text);
        let objects = objects.iter().map(|text| {
            object(ObjectText {
                path,
                directory,
                text,
            })
        });
        objects.collect()
    }
}

/// Returns the documents of a text. Each has as many empty lines before it as the file has lines
/// there, so that its mistakes have the lines of the file. A document without content is left out,
/// unless all documents are empty.
fn documents(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for (before, line) in text.lines().enumerate() {
        let rest = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if rest.is_some() {
            all.push("\n".repeat(before));
        }
        if let Some(document) = all.last_mut() {
            document.push_str(rest.map_or(line, str::trim_end));
            document.push('\n');
        }
    }
    let has_content = |document: &String| {
        document
            .lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    if all.iter().any(has_content) {
        all.retain(has_content);
    } else {
        all.truncate(1);
    }
    all
}

/// A document of a file.
#[derive(Clone, Copy)]
struct ObjectText<'a> {
    path: &'a Path,
    /// The directory of its sources.
    directory: &'a Path,
    text: &'a str,
}

impl ObjectText<'_> {
    fn refused(self, problem: String) -> CommandError {
        CommandError::FleetObject {
            path: self.path.to_owned(),
            problem,
        }
    }

    fn rejected(self, rejection: &Rejection) -> CommandError {
        self.refused(lines(self.text, rejection))
    }

    fn parse<T: DeserializeOwned>(self) -> Result<T, CommandError> {
        parse_any_yaml(self.text.as_bytes()).map_err(|error| match error {
            ParseError::Invalid(rejection) => self.rejected(&rejection),
            ParseError::Malformed {
                message,
                line,
                column,
            } => self.refused(format!("line {line}, column {column}: {message}")),
        })
    }
}

fn object(file: ObjectText<'_>) -> Result<FleetFile, CommandError> {
    let ManifestKind { api_version, kind } = file.parse()?;
    match (api_version.as_str(), kind.as_str()) {
        (API, PROBE) => probe(file).map(|probe| FleetFile::Probe(Box::new(probe))),
        (API, RULE) => rule(file).map(|rule| FleetFile::Rule(Box::new(rule))),
        ("", _) | (_, "") => Err(file.refused(format!(
            "apiVersion or kind is missing; give `apiVersion: {API}` and `kind: {PROBE}` or `{RULE}`"
        ))),
        _ => Err(file.refused(format!("it is a {kind} of {api_version}; use {PROBE} or {RULE} of {API}"))),
    }
}

fn probe(file: ObjectText<'_>) -> Result<FleetProbeFile, CommandError> {
    let Manifest {
        metadata, mut spec, ..
    } = file.parse::<Manifest<FleetProbeSpec>>()?;
    if let Some(config) = &mut spec.config {
        with_sources(file.path, file.directory, &metadata.name, config)?;
    }
    if spec.attach.pod_selector.is_some() || spec.attach.namespace_selector.is_some() {
        return Err(file
            .refused("spec.attach: only Kubernetes can select pods; give interfaces".to_owned()));
    }
    let plan = FleetPlan::new(&metadata.name, &spec, fleet_probe);
    let plan = plan.map_err(|rejection| file.rejected(&rejection))?;
    Ok(FleetProbeFile {
        plan,
        is_paused: spec.paused,
    })
}

fn rule(file: ObjectText<'_>) -> Result<FleetRuleFile, CommandError> {
    let Manifest { metadata, spec, .. } = file.parse::<Manifest<FleetRuleSpec>>()?;
    let mut findings: Vec<Finding> = misnamed_rule(&metadata.name).into_iter().collect();
    findings.extend(check_fleet_rule(&spec, Err(ONE_BY_ONE)));
    match findings.is_empty() {
        true => Ok(FleetRuleFile {
            name: metadata.name,
            spec,
        }),
        false => Err(file.rejected(&findings.into())),
    }
}

/// Replaces `source_file` by the content of the file. A configuration that can't be read is left to
/// the plan, which says why.
fn with_sources(
    path: &Path,
    directory: &Path,
    name: &str,
    config: &mut Value,
) -> Result<(), CommandError> {
    let Ok(document) = serde_json::from_value::<ConfigDocument>(config.clone()) else {
        return Ok(());
    };
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
        let at = place_of(text, field)
            .map(|(line, _)| format!("line {line}: "))
            .unwrap_or_default();
        let name = if field.is_empty() {
            String::new()
        } else {
            format!("{field}: ")
        };
        format!("{at}{name}{}", finding.message)
    };
    rejection
        .findings
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines() {
        assert_eq!(documents("a: 1\nb: 2\n"), ["a: 1\nb: 2\n"]);
        assert_eq!(
            documents("---\na: 1\n---\n# nothing\n--- \nb: |\n  --- x\n---\n"),
            ["\na: 1\n", "\n\n\n\n\nb: |\n  --- x\n"]
        );
        assert_eq!(documents("--- {a: 1}\n"), [" {a: 1}\n"]);
        assert_eq!(documents(""), [""]);
    }
}
