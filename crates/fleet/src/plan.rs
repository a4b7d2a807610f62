//! A fleet's probe that obeys every rule.

use std::collections::BTreeMap;

use twinprobe_api::{
    ConfigDocument, FleetProbeSpec, ParseError, PodsDocument, WindowDocument, parse_document,
};
use twinprobe_config::ProbeConfig;
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::decide::rule::rule_of;
use crate::revision::revision_name;
use crate::steps::RolloutPlan;

/// The probe that people want, checked, with the configuration that nodes get.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    pub name: String,
    /// The name of the revision.
    pub revision: String,
    pub config: ConfigDocument,
    /// True if nodes get sources, and no objects.
    pub on_nodes: bool,
    pub node_selector: BTreeMap<String, String>,
    pub rollout: RolloutPlan,
}

impl FleetPlan {
    /// Checks a probe of a fleet without a kernel. All mistakes that can be found at once are in
    /// the refusal, with their fields below `spec`. `library` returns a probe of the library with
    /// the definitions and variables that the spec names.
    pub fn new(
        name: &str,
        spec: &FleetProbeSpec,
        library: impl Fn(&str, &FleetProbeSpec) -> Result<ConfigDocument, String>,
    ) -> Result<Self, Rejection> {
        let mut findings = Vec::new();
        if rule_of(name).is_some() {
            let message = "names that begin with rule. are those of rules; choose another name";
            findings.push(Finding::config("metadata.name", message));
        }
        let rollout = RolloutPlan::new(&spec.rollout, &mut findings);
        let config = configuration(spec, library)
            .map_err(|rejection| findings.extend(rejection.findings))
            .ok();
        let attach = &spec.attach;
        if attach.pod_selector.is_some() && !attach.interfaces.is_empty() {
            let message = "podSelector and interfaces exclude each other; give one of them";
            findings.push(Finding::config("spec.attach", message));
        }
        let config = config.map(|config| placed(name, config, spec));
        if let Some(config) = &config {
            let checked = ProbeConfig::validate(name, config).map(|_| ());
            findings.extend(
                checked.err().into_iter().flat_map(|rejection| {
                    as_attached(spec, below("spec.config", rejection)).findings
                }),
            );
        }
        match (config, rollout) {
            (Some(config), Some(rollout)) if findings.is_empty() => Ok(Self {
                name: name.to_owned(),
                revision: revision_name(name, &config, spec.compile_on_nodes),
                config,
                on_nodes: spec.compile_on_nodes,
                node_selector: spec.node_selector.clone(),
                rollout,
            }),
            _ => Err(findings.into()),
        }
    }
}

/// Returns the configuration that a spec names.
fn configuration(
    spec: &FleetProbeSpec,
    library: impl Fn(&str, &FleetProbeSpec) -> Result<ConfigDocument, String>,
) -> Result<ConfigDocument, Rejection> {
    match (&spec.config, &spec.library) {
        (Some(config), None) => {
            let fields = [
                ("spec.defines", spec.defines.is_empty()),
                ("spec.variables", spec.variables.is_empty()),
                ("spec.interval", spec.interval.is_none()),
            ];
            if let Some((field, _)) = fields.into_iter().find(|(_, is_empty)| !is_empty) {
                return Err(mistake(
                    field,
                    "goes with a probe of the library; write it into the configuration",
                ));
            }
            parse_document(config.to_string().as_bytes()).map_err(|error| match error {
                ParseError::Malformed { message, .. } => mistake("spec.config", message),
                ParseError::Invalid(rejection) => below("spec.config", rejection),
            })
        }
        (None, Some(name)) => {
            let mut config =
                library(name, spec).map_err(|message| mistake("spec.library", message))?;
            if let Some(interval) = &spec.interval {
                let window = config.window.get_or_insert_with(WindowDocument::default);
                window.interval = Some(interval.clone());
            }
            Ok(config)
        }
        (Some(_), Some(_)) => Err(mistake("spec", "has config and library; give one of them")),
        (None, None) => Err(mistake(
            "spec",
            "names no probe; give config, or library with a name of the library",
        )),
    }
}

/// Returns the configuration with the interfaces and the lease of the spec.
fn placed(name: &str, mut config: ConfigDocument, spec: &FleetProbeSpec) -> ConfigDocument {
    config.name = Some(name.to_owned());
    let attach = &spec.attach;
    if attach.pod_selector.is_some() || attach.namespace_selector.is_some() {
        let (labels, namespace_labels) = (
            attach.pod_selector.clone(),
            attach.namespace_selector.clone(),
        );
        config.go_to_pods(
            PodsDocument {
                labels,
                namespace_labels,
            },
            &attach.exclude,
        );
    } else {
        config.go_to(&attach.interfaces, &attach.exclude);
    }
    if let Some(lease) = &spec.lease {
        config.expires = Some(lease.clone());
    }
    config
}

fn mistake(field: &str, message: impl Into<String>) -> Rejection {
    Finding::config(field, message).into()
}

/// Returns the rejection with the path `field` before the paths of its fields.
fn below(field: &str, mut rejection: Rejection) -> Rejection {
    for finding in &mut rejection.findings {
        let inner = finding.field.take().filter(|inner| !inner.is_empty());
        finding.field =
            Some(inner.map_or_else(|| field.to_owned(), |inner| format!("{field}.{inner}")));
    }
    rejection
}

/// Replaces the fields of pods in a rejection by the selectors of the spec that have set them.
fn as_attached(spec: &FleetProbeSpec, mut rejection: Rejection) -> Rejection {
    let selectors = [
        (
            spec.attach.pod_selector.is_some(),
            "spec.config.pods.labels",
            "spec.attach.podSelector",
        ),
        (
            spec.attach.namespace_selector.is_some(),
            "spec.config.pods.namespace_labels",
            "spec.attach.namespaceSelector",
        ),
    ];
    for finding in &mut rejection.findings {
        let own = selectors
            .iter()
            .find(|(is_there, field, _)| *is_there && finding.field.as_deref() == Some(field));
        if let Some((_, _, selector)) = own {
            finding.field = Some((*selector).to_owned());
        }
    }
    rejection
}

#[cfg(test)]
mod tests;
