//! The configurations of the probes that rules deploy.

use std::borrow::Cow;

use serde_json::Value;
use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, ParseError, RuleDocument, RuleProbe, parse_document};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{Templates, check_template};

use crate::engine::engine::{Engine, permitted};
use crate::engine::error::EngineError;

/// Returns the configuration of a probe that a rule deploys: from the library or from the rule,
/// with the rule's values and lease. A probe without interfaces gets the interfaces of the watched
/// probe.
pub fn configuration(
    probe: &RuleProbe,
    watched: &ConfigDocument,
) -> Result<ConfigDocument, Rejection> {
    let mut config = match (&probe.probe, &probe.config) {
        (Some(name), _) => {
            twinprobe_library::library_probe(name).map_err(|error| refused("probe", &error))?
        }
        (None, Some(config)) => parse(config)?,
        (None, None) => return Err(refused("probe", &"names no probe of the library")),
    };
    config.name = Some(probe.name.clone());
    config.expires = Some(probe.expires.clone());
    let chosen = twinprobe_library::choose(&mut config, &probe.defines, &probe.variables);
    chosen.map_err(|error| refused("", &error))?;
    if config.goes_nowhere() {
        config.go_where(watched);
    }
    Ok(config)
}

/// Reads the templates that a rule names. Missing templates are left out.
pub fn templates(engine: &Engine, document: &RuleDocument) -> Result<Templates, EngineError> {
    let mut found = Templates::new();
    for name in document.templates() {
        if let Some(template) = engine.deployer.store.template(name)? {
            found.insert(name.to_owned(), template.config);
        }
    }
    Ok(found)
}

/// Returns a rule's probe with the configuration of its template. The expressions of the template
/// must fit windows of `shape`.
pub fn whole<'a>(
    probe: &'a RuleProbe,
    templates: &Templates,
    shape: &WindowShape,
) -> Result<Cow<'a, RuleProbe>, Rejection> {
    let Some(name) = &probe.template else {
        return Ok(Cow::Borrowed(probe));
    };
    let config = templates.get(name);
    let config = config.ok_or_else(|| {
        refused(
            "template",
            &format!("there is no template named {name}; put it first"),
        )
    })?;
    check_template(config, Some(shape)).map_err(|finding| below("template", finding.into()))?;
    match serde_json::to_value(config) {
        Ok(Value::Object(config)) => Ok(Cow::Owned(RuleProbe {
            config: Some(config),
            ..probe.clone()
        })),
        _ => Err(refused("template", &"the template is not an object")),
    }
}

/// Refuses a rule's probe that can't be deployed, or that `by` may not deploy. `probe` has the
/// configuration of its template.
pub fn check_probe(
    field: &str,
    probe: &RuleProbe,
    watched: &ConfigDocument,
    by: &Principal,
) -> Result<(), EngineError> {
    let config = configuration(probe, watched).map_err(|rejection| below(field, rejection))?;
    // Values of windows are not known yet.
    if serde_json::to_string(probe).is_ok_and(|text| text.contains("{{")) {
        return Ok(());
    }
    let part = match (&probe.template, &probe.config) {
        (Some(_), _) => "template",
        (None, Some(_)) => "config",
        (None, None) => "probe",
    };
    permitted(&probe.name, &config, by)
        .map(drop)
        .map_err(|error| match error {
            EngineError::Rejected(rejection) => {
                EngineError::Rejected(below(&format!("{field}.{part}"), rejection))
            }
            error => error,
        })
}

/// Returns the configuration of a probe that runs on this daemon, or else of the library's probe of
/// this name.
pub fn known(engine: &Engine, name: &str) -> Result<ConfigDocument, EngineError> {
    if let Ok(probe) = engine.registry.get(name) {
        return Ok(probe.stored.config.clone());
    }
    twinprobe_library::library_probe(name).map_err(|_| {
        let message = format!(
            "no probe {name} runs here, and the library has none; deploy it, or send its configuration as part config"
        );
        EngineError::Rejected(refused("watch", &message))
    })
}

fn parse(config: &serde_json::Map<String, Value>) -> Result<ConfigDocument, Rejection> {
    let text = Value::Object(config.clone()).to_string();
    parse_document(text.as_bytes()).map_err(|error| match error {
        ParseError::Malformed { message, .. } => refused("config", &message),
        ParseError::Invalid(rejection) => below("config", rejection),
    })
}

fn refused(field: &str, message: &impl ToString) -> Rejection {
    Finding::config(field, message.to_string()).into()
}

/// Returns the rejection with `field` added before the field of each finding.
pub fn below(field: &str, mut rejection: Rejection) -> Rejection {
    for finding in &mut rejection.findings {
        let inner = finding.field.take().filter(|inner| !inner.is_empty());
        finding.field =
            Some(inner.map_or_else(|| field.to_owned(), |inner| format!("{field}.{inner}")));
    }
    rejection
}
