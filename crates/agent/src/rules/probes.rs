//! The configurations of the probes that rules deploy.

use serde_json::Value;
use twinprobe_api::{ConfigDocument, ParseError, RuleProbe, parse_document};
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;

/// Returns the configuration of a probe: one of the library, or that of the rule, with the rule's values and lease. A probe
/// without interfaces of its own is attached where the watched one is.
pub fn configuration(probe: &RuleProbe, watched: &ConfigDocument) -> Result<ConfigDocument, Rejection> {
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

/// Returns the configuration of a probe that runs here, else of the library's probe of this name.
pub fn known(engine: &Engine, name: &str) -> Result<ConfigDocument, EngineError> {
    if let Ok(probe) = engine.registry.get(name) {
        return Ok(probe.stored.config.clone());
    }
    twinprobe_library::library_probe(name).map_err(|_| {
        let message = format!(
            "no probe {name} runs here, nor does the library have one; deploy it, or send its configuration as part config"
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

/// Returns the rejection with the fields below another one.
pub fn below(field: &str, mut rejection: Rejection) -> Rejection {
    for finding in &mut rejection.findings {
        let inner = finding.field.take().filter(|inner| !inner.is_empty());
        finding.field = Some(inner.map_or_else(|| field.to_owned(), |inner| format!("{field}.{inner}")));
    }
    rejection
}
