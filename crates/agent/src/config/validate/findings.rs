//! Findings, and the settings that a direction or a metric takes over from its probe.

use twinprobe_client::ConfigDocument;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::hook::Position;
use twinprobe_ebpf_common::metric::OnReplace;

use crate::config::validate::names;

/// The mistakes found so far, each at a field of the configuration.
#[derive(Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding::config(field, message));
    }
}

/// The values of fields that a direction or a metric leaves out.
pub struct Defaults {
    priority: i16,
    pub position: Position,
    pub on_replace: OnReplace,
}

impl Defaults {
    pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Self {
        let none = Self { priority: 0, position: Position::default(), on_replace: OnReplace::default() };
        Self {
            priority: priority("priority", document.priority, &none, findings),
            position: position("position", document.position.as_deref(), &none, findings),
            on_replace: on_replace("on_replace", document.on_replace.as_deref(), &none, findings),
        }
    }
}

pub fn priority(field: &str, value: Option<i64>, defaults: &Defaults, findings: &mut Findings) -> i16 {
    let Some(value) = value else { return defaults.priority };
    i16::try_from(value).unwrap_or_else(|_| {
        let message = format!("{value} is no priority; -32768 to 32767 are possible, lower ones run first");
        findings.add(field, message);
        defaults.priority
    })
}

pub fn position(field: &str, name: Option<&str>, defaults: &Defaults, findings: &mut Findings) -> Position {
    let Some(name) = name else { return defaults.position };
    names::choose("position", name, &Position::NAMES).unwrap_or_else(|message| {
        findings.add(field, message);
        defaults.position
    })
}

pub fn on_replace(
    field: &str,
    name: Option<&str>,
    defaults: &Defaults,
    findings: &mut Findings,
) -> OnReplace {
    let Some(name) = name else { return defaults.on_replace };
    names::choose("way to replace", name, &OnReplace::NAMES).unwrap_or_else(|message| {
        findings.add(field, message);
        defaults.on_replace
    })
}
