//! A fleet's probe that obeys every rule.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use twinprobe_api::{
    Canary, ConfigDocument, FleetBudget, FleetProbeSpec, FleetRollout, OnFailure, ParseError, WindowDocument,
    parse_document,
};
use twinprobe_config::ProbeConfig;
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::revision::revision_name;
use crate::rollout::RolloutStep;
use crate::share::WHOLE;

/// The canaries that an assignment can name and stay small.
const MOST_CANARIES: u32 = 10;
const MOST_WINDOWS: u32 = 1000;
const LONGEST: Duration = Duration::from_hours(24 * 7);
/// What a configuration names for the check where pods decide.
const PODS: &str = "pods";

/// What people ask for, checked, with the configuration that nodes get.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    pub name: String,
    /// The name of the revision.
    pub revision: String,
    pub config: ConfigDocument,
    pub node_selector: BTreeMap<String, String>,
    pub rollout: RolloutPlan,
}

/// The steps of a rollout, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutPlan {
    pub canary: Option<Canary>,
    /// The first is that of the canaries, if there are any.
    pub steps: Vec<RolloutStep>,
    pub windows: u32,
    pub timeout: Duration,
    pub budget: FleetBudget,
    pub on_failure: OnFailure,
}

impl FleetPlan {
    /// Checks a probe of a fleet without a kernel. All mistakes that can be found at once are in the refusal, with their fields
    /// below `spec`. `library` returns a probe of the library with the definitions and variables that the spec names.
    pub fn new(
        name: &str,
        spec: &FleetProbeSpec,
        library: impl Fn(&str, &FleetProbeSpec) -> Result<ConfigDocument, String>,
    ) -> Result<Self, Rejection> {
        let mut findings = Vec::new();
        let rollout = RolloutPlan::new(&spec.rollout, &mut findings);
        let config =
            configuration(spec, library).map_err(|rejection| findings.extend(rejection.findings)).ok();
        let config = config.map(|config| placed(name, config, spec));
        if let Some(config) = &config {
            let checked = ProbeConfig::validate(name, config).map(|_| ());
            findings.extend(
                checked.err().into_iter().flat_map(|rejection| below("spec.config", rejection).findings),
            );
        }
        match (config, rollout) {
            (Some(config), Some(rollout)) if findings.is_empty() => Ok(Self {
                name: name.to_owned(),
                revision: revision_name(name, &config),
                config,
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
            let mut config = library(name, spec).map_err(|message| mistake("spec.library", message))?;
            if let Some(interval) = &spec.interval {
                let window = config.window.get_or_insert_with(WindowDocument::default);
                window.interval = Some(interval.clone());
            }
            Ok(config)
        }
        (Some(_), Some(_)) => Err(mistake("spec", "has config and library; give one of them")),
        (None, None) => {
            Err(mistake("spec", "names no probe; give config, or library with a name of the library"))
        }
    }
}

/// Returns the configuration with the interfaces and the lease of the spec.
fn placed(name: &str, mut config: ConfigDocument, spec: &FleetProbeSpec) -> ConfigDocument {
    config.name = Some(name.to_owned());
    let attach = &spec.attach;
    if attach.pod_selector.is_some() {
        (config.interface, config.interfaces) = (Some(PODS.to_owned()), None);
    } else if !attach.interfaces.is_empty() {
        (config.interface, config.interfaces) = (None, Some(attach.interfaces.clone()));
    }
    if !attach.exclude.is_empty() {
        config.exclude_interfaces = Some(attach.exclude.clone());
    }
    if let Some(lease) = &spec.lease {
        config.expires = Some(lease.clone());
    }
    config
}

impl RolloutPlan {
    /// Checks the steps of a rollout.
    fn new(rollout: &FleetRollout, findings: &mut Vec<Finding>) -> Option<Self> {
        let known = findings.len();
        let mut refuse = |field: String, message: String| {
            findings.push(Finding::config(format!("spec.rollout.{field}"), message));
        };
        let mut steps = Vec::new();
        match &rollout.canary {
            Some(Canary::Nodes(count)) if !(1..=MOST_CANARIES).contains(count) => {
                refuse(
                    "canary".to_owned(),
                    format!("{count} nodes; 1 to {MOST_CANARIES} are possible, or labels"),
                );
            }
            Some(Canary::Labels(labels)) if labels.is_empty() => {
                refuse("canary".to_owned(), "has no labels; it would be every node".to_owned());
            }
            Some(_) => steps.push(RolloutStep { name: "canary".to_owned(), share: 0 }),
            None => {}
        }
        let mut before = 0;
        for (i, text) in rollout.steps.iter().enumerate() {
            match share(text) {
                Some(share) if share > before => {
                    steps.push(RolloutStep { name: text.clone(), share });
                    before = share;
                }
                Some(_) => {
                    refuse(format!("steps[{i}]"), format!("{text} is not more than the step before it"));
                }
                None => {
                    let rule = "a step is a share of nodes, such as 1%, 12.5% or 100%";
                    refuse(format!("steps[{i}]"), format!("{text:?} is no share; {rule}"));
                }
            }
        }
        if before != WHOLE {
            refuse("steps".to_owned(), "do not end with 100%; the last step is every node".to_owned());
        }
        if !(1..=MOST_WINDOWS).contains(&rollout.windows) {
            let count = rollout.windows;
            refuse("windows".to_owned(), format!("{count} windows; 1 to {MOST_WINDOWS} are possible"));
        }
        let timeout: Option<SignedDuration> = rollout.timeout.parse().ok();
        let timeout = timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let timeout = timeout.filter(|timeout| (Duration::from_secs(1)..=LONGEST).contains(timeout));
        if timeout.is_none() {
            let text = &rollout.timeout;
            refuse(
                "timeout".to_owned(),
                format!("{text:?} is no timeout; 1s to 168h are possible, such as 5m"),
            );
        }
        (findings.len() == known).then_some(())?;
        Some(Self {
            canary: rollout.canary.clone(),
            steps,
            windows: rollout.windows,
            timeout: timeout?,
            budget: rollout.budget,
            on_failure: rollout.on_failure,
        })
    }
}

/// Reads `10%` or `12.5%`, in hundredths of a per cent.
fn share(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 2 {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<2}").parse().ok()?;
    let share = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(fraction)?;
    (1..=WHOLE).contains(&share).then_some(share)
}

fn mistake(field: &str, message: impl Into<String>) -> Rejection {
    Finding::config(field, message).into()
}

/// Returns the rejection with its fields below another one.
fn below(field: &str, mut rejection: Rejection) -> Rejection {
    for finding in &mut rejection.findings {
        let inner = finding.field.take().filter(|inner| !inner.is_empty());
        finding.field = Some(inner.map_or_else(|| field.to_owned(), |inner| format!("{field}.{inner}")));
    }
    rejection
}

#[cfg(test)]
mod tests;
