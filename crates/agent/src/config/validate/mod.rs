//! The rules of a configuration. Every broken one is reported, not only the first.

mod direction;
mod metric;
mod names;

use std::collections::BTreeSet;

use twinprobe_exporter::Format;

use super::{ConfigDocument, Direction, ProbeConfig};
use crate::report::{Finding, Rejection};

/// The mistakes found so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding::config(field, message));
    }
}

/// A name inside the document must be the one it is stored under.
pub fn check_name(name: &str, document: &ConfigDocument) -> Result<(), Rejection> {
    match &document.name {
        Some(inner) if inner != name => {
            let message =
                format!("the configuration says {inner:?}, the request says {name:?}; they must agree");
            Err(Finding::config("name", message).into())
        }
        _ => Ok(()),
    }
}

impl ProbeConfig {
    /// Checks everything that can be known without compiling, and reports all of it.
    pub fn validate(name: &str, document: &ConfigDocument) -> Result<Self, Rejection> {
        let mut findings = Findings::default();
        if !names::is_probe_name(name) {
            findings.add("name", names::probe_name_rule(name));
        }
        if let Err(rejection) = check_name(name, document) {
            findings.0.extend(rejection.findings);
        }
        let interfaces = interfaces(document, &mut findings);
        let format = format(document.format.as_deref(), &mut findings);
        if document.ingress.is_none() && document.egress.is_none() {
            findings.add("ingress", "at least one of ingress and egress is needed");
        }
        let ingress =
            document.ingress.as_ref().map(|doc| direction::check(Direction::Ingress, doc, &mut findings));
        let egress =
            document.egress.as_ref().map(|doc| direction::check(Direction::Egress, doc, &mut findings));
        if document.window.is_some() {
            findings.add(
                "window",
                "scheduled windows are not available in this version; leave it out, every read closes a window",
            );
        }
        if !findings.0.is_empty() {
            return Err(findings.0.into());
        }
        Ok(Self { name: name.to_owned(), interfaces, format, ingress, egress })
    }
}

fn interfaces(document: &ConfigDocument, findings: &mut Findings) -> Vec<String> {
    match (&document.interface, &document.interfaces) {
        (Some(_), Some(_)) => {
            findings.add("interfaces", "interface and interfaces exclude each other; give one of them");
            Vec::new()
        }
        (None, None) => {
            findings.add("interface", "an interface is needed: interface (one name) or interfaces (a list)");
            Vec::new()
        }
        (Some(name), None) => {
            if let Err(message) = names::interface(name) {
                findings.add("interface", message);
            }
            vec![name.clone()]
        }
        (None, Some(list)) => {
            if list.is_empty() {
                findings.add("interfaces", "the list is empty; at least one interface is needed");
            }
            let mut seen = BTreeSet::new();
            for (i, name) in list.iter().enumerate() {
                if let Err(message) = names::interface(name) {
                    findings.add(format!("interfaces[{i}]"), message);
                } else if !seen.insert(name) {
                    findings.add(format!("interfaces[{i}]"), format!("{name:?} is listed twice"));
                }
            }
            list.clone()
        }
    }
}

fn format(name: Option<&str>, findings: &mut Findings) -> Format {
    let Some(name) = name else { return Format::Json };
    Format::from_name(name).unwrap_or_else(|| {
        let known = Format::ALL.map(Format::name).join(", ");
        findings.add("format", format!("unknown format {}; possible are {known}", names::quote(name)));
        Format::Json
    })
}

#[cfg(test)]
mod tests;
