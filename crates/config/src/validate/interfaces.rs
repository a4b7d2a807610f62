//! The rules of `interface`, `interfaces` and `exclude_interfaces`.

use std::collections::BTreeSet;

use twinprobe_api::ConfigDocument;

use crate::interface::InterfacePattern;
use crate::validate::findings::Findings;
use crate::validate::names;

const PER_INTERFACE: &str = "per_interface";
/// The most interfaces that have programs and maps of their own.
const ALONE: usize = 64;
const EXCLUDED: &str = "exclude_interfaces";

/// Checks where a probe is to be attached.
pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Vec<InterfacePattern> {
    match (&document.interface, &document.interfaces) {
        (Some(_), Some(_)) => {
            findings.add("interfaces", "interface and interfaces exclude each other; give one of them");
            Vec::new()
        }
        (None, None) => {
            findings.add("interface", "an interface is needed: interface (one name) or interfaces (a list)");
            Vec::new()
        }
        (Some(text), None) => {
            let pattern = names::interface(text).map_err(|message| findings.add("interface", message));
            pattern.into_iter().collect()
        }
        (None, Some(list)) => {
            if list.is_empty() {
                findings.add("interfaces", "the list is empty; at least one interface is needed");
            }
            patterns("interfaces", list, findings)
        }
    }
}

/// Checks what patterns do not stand for.
pub fn excluded(
    document: &ConfigDocument,
    interfaces: &[InterfacePattern],
    findings: &mut Findings,
) -> Vec<InterfacePattern> {
    let Some(list) = &document.exclude_interfaces else { return Vec::new() };
    let excluded = patterns(EXCLUDED, list, findings);
    if !interfaces.is_empty() && !interfaces.iter().any(InterfacePattern::is_pattern) {
        findings.add(
            EXCLUDED,
            "there is no pattern from which interfaces could be taken; leave it out, or write a pattern",
        );
    }
    for named in interfaces.iter().filter(|interface| !interface.is_pattern()) {
        if let Some(by) = excluded.iter().find(|excluded| excluded.matches(&named.text)) {
            let (by, named) = (&by.text, &named.text);
            findings.add(
                EXCLUDED,
                format!("{by:?} takes out {named:?}, which interfaces names; leave one of them out"),
            );
        }
    }
    excluded
}

/// Checks whether each interface has programs and maps of its own. The kernel gets them before any interface comes, so that
/// their number has to be known.
pub fn each_alone(
    document: &ConfigDocument,
    interfaces: &[InterfacePattern],
    findings: &mut Findings,
) -> bool {
    let per_interface = document.per_interface == Some(true);
    if let Some(pattern) = interfaces.iter().find(|interface| interface.is_pattern() && per_interface) {
        let message = format!(
            "each interface gets programs and maps of its own, so each has to be named, and {:?} is a pattern; name the interfaces, \
             with wait_for_interface those that will come",
            pattern.text
        );
        findings.add(PER_INTERFACE, message);
    }
    if per_interface && interfaces.len() > ALONE {
        let message = format!(
            "{} interfaces are too many, since each gets programs and maps of its own; {ALONE} are the limit",
            interfaces.len()
        );
        findings.add(PER_INTERFACE, message);
    }
    per_interface
}

fn patterns(field: &str, list: &[String], findings: &mut Findings) -> Vec<InterfacePattern> {
    if !findings.fits(field, list.len()) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut patterns = Vec::with_capacity(list.len());
    for (i, text) in list.iter().enumerate() {
        match names::interface(text) {
            Err(message) => findings.add(format!("{field}[{i}]"), message),
            Ok(_) if !seen.insert(text) => {
                findings.add(format!("{field}[{i}]"), format!("{text:?} is listed twice"));
            }
            Ok(pattern) => patterns.push(pattern),
        }
    }
    patterns
}
