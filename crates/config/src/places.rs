//! The interfaces of a probe, and the rules for their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinprobe_api::{ConfigDocument, PodsDocument};

use crate::interface::InterfacePattern;
use crate::pods::PodSelector;
use crate::validate::findings::Findings;
use crate::validate::names;

const PER_INTERFACE: &str = "per_interface";
/// The most interfaces that have programs and maps of their own.
const ALONE: usize = 64;
const EXCLUDED: &str = "exclude_interfaces";
const PODS: &str = "pods";
/// The most labels of a selector, and the limits of a label in bytes, its prefix included.
const MOST_LABELS: usize = 32;
const LABEL_NAME: usize = 317;
const LABEL_VALUE: usize = 63;

/// The interfaces that a probe runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacesConfig {
    /// Names and patterns in the order of the configuration, at least one, without repeats; or one
    /// element for pods.
    pub interfaces: Vec<InterfacePattern>,
    /// Names and patterns of interfaces that the patterns exclude.
    pub exclude_interfaces: Vec<InterfacePattern>,
    /// True if each interface has programs and maps of its own, and each row names its interface.
    /// No interface is a pattern then.
    pub per_interface: bool,
    /// True if the probe may be deployed before its interfaces and network namespace exist.
    pub wait_for_interface: bool,
    /// The absolute path of the interfaces' network namespace; `None` for the daemon's own
    /// namespace.
    pub netns: Option<PathBuf>,
}

impl PlacesConfig {
    /// Checks the interfaces and adds their mistakes to `findings`.
    pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Self {
        let interfaces = interfaces(document, findings);
        let exclude_interfaces = excluded(document, &interfaces, findings);
        let per_interface = each_alone(document, &interfaces, findings);
        if let Some(Err(message)) = document.netns.as_deref().map(names::netns) {
            findings.add("netns", message);
        }
        Self {
            interfaces,
            exclude_interfaces,
            per_interface,
            wait_for_interface: document.wait_for_interface == Some(true),
            netns: document.netns.as_ref().map(Into::into),
        }
    }

    pub fn netns(&self) -> Option<&Path> {
        self.netns.as_deref()
    }

    /// Tells whether `interface` is one of the configured names. A pattern is not a name.
    pub fn names(&self, interface: &str) -> bool {
        self.interfaces
            .iter()
            .any(|named| named.text == interface && !named.is_pattern())
    }

    /// Returns the selector of the pods whose interfaces the probe uses; `None` if the
    /// configuration names interfaces.
    pub fn pods(&self) -> Option<&PodSelector> {
        self.interfaces.iter().find_map(InterfacePattern::pods)
    }

    /// Tells whether the configuration excludes an interface of this name, even if a pattern
    /// matches it.
    pub fn excludes(&self, interface: &str) -> bool {
        self.exclude_interfaces
            .iter()
            .any(|excluded| excluded.matches(interface))
    }

    /// Returns the names of the interfaces if each has programs and maps of its own.
    pub fn own_interfaces(&self) -> Option<Arc<[String]>> {
        let names = self
            .interfaces
            .iter()
            .map(|interface| interface.text.clone());
        self.per_interface.then(|| names.collect())
    }
}

fn interfaces(document: &ConfigDocument, findings: &mut Findings) -> Vec<InterfacePattern> {
    if let Some(pods) = &document.pods {
        return vec![of_pods(document, pods, findings)];
    }
    match (&document.interface, &document.interfaces) {
        (Some(_), Some(_)) => {
            findings.add(
                "interfaces",
                "interface and interfaces exclude each other; give one of them",
            );
            Vec::new()
        }
        (None, None) => {
            findings.add(
                "interface",
                "an interface is needed: interface (one name), interfaces (a list) or pods (labels)",
            );
            Vec::new()
        }
        (Some(text), None) => {
            let pattern =
                names::interface(text).map_err(|message| findings.add("interface", message));
            pattern.into_iter().collect()
        }
        (None, Some(list)) => {
            if list.is_empty() {
                findings.add(
                    "interfaces",
                    "the list is empty; at least one interface is needed",
                );
            }
            patterns("interfaces", list, findings)
        }
    }
}

/// Checks the labels of pods, and that no other field names interfaces.
fn of_pods(
    document: &ConfigDocument,
    pods: &PodsDocument,
    findings: &mut Findings,
) -> InterfacePattern {
    for (field, is_there) in [
        ("interface", document.interface.is_some()),
        ("interfaces", document.interfaces.is_some()),
    ] {
        if is_there {
            findings.add(
                PODS,
                format!("pods and {field} exclude each other; give one of them"),
            );
        }
    }
    if document.netns.is_some() {
        let message = "the interfaces that lead to pods are in the daemon's own network namespace; leave netns out";
        findings.add("netns", message);
    }
    if document.per_interface == Some(true) {
        let message = "each interface gets programs and maps of its own, so each must have its name here, \
            but pods come and go; name interfaces";
        findings.add(PER_INTERFACE, message);
    }
    let labels = pods.labels.clone().unwrap_or_default();
    let namespace_labels = pods.namespace_labels.clone().unwrap_or_default();
    for (field, labels) in [("labels", &labels), ("namespace_labels", &namespace_labels)] {
        check_labels(&format!("{PODS}.{field}"), labels, findings);
    }
    InterfacePattern::of_pods(PodSelector {
        labels,
        namespace_labels,
    })
}

/// Checks labels by the limits of Kubernetes: a label beyond these limits selects no pod.
fn check_labels(field: &str, labels: &BTreeMap<String, String>, findings: &mut Findings) {
    if labels.len() > MOST_LABELS {
        let message = format!(
            "{} labels are too many; the limit is {MOST_LABELS}",
            labels.len()
        );
        findings.add(field, message);
    }
    for (name, value) in labels.iter().take(MOST_LABELS) {
        let name_fits =
            (1..=LABEL_NAME).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_graphic());
        let value_fits = value.len() <= LABEL_VALUE && value.bytes().all(|c| c.is_ascii_graphic());
        if !name_fits || !value_fits {
            let label = names::quote(&format!("{name}={value}"));
            let message = format!(
                "{label} can't be a label; a name has 1 to {LABEL_NAME} bytes, a value up to {LABEL_VALUE}, of ASCII without white space"
            );
            findings.add(field, message);
        }
    }
}

/// Checks the names of interfaces that are not patterns.
fn excluded(
    document: &ConfigDocument,
    interfaces: &[InterfacePattern],
    findings: &mut Findings,
) -> Vec<InterfacePattern> {
    let Some(list) = &document.exclude_interfaces else {
        return Vec::new();
    };
    let excluded = patterns(EXCLUDED, list, findings);
    if !interfaces.is_empty() && !interfaces.iter().any(InterfacePattern::is_pattern) {
        findings.add(
            EXCLUDED,
            "it takes interfaces out of patterns, but there is no pattern; leave it out, or write a pattern",
        );
    }
    for named in interfaces
        .iter()
        .filter(|interface| !interface.is_pattern())
    {
        if let Some(by) = excluded
            .iter()
            .find(|excluded| excluded.matches(&named.text))
        {
            let (by, named) = (&by.text, &named.text);
            findings.add(
                EXCLUDED,
                format!(
                    "{by:?} excludes {named:?}, which interfaces contains; leave one of them out"
                ),
            );
        }
    }
    excluded
}

/// Checks a configuration with programs and maps per interface. They are loaded before any
/// interface appears, so their number must be known.
fn each_alone(
    document: &ConfigDocument,
    interfaces: &[InterfacePattern],
    findings: &mut Findings,
) -> bool {
    let per_interface = document.per_interface == Some(true);
    if let Some(pattern) = interfaces
        .iter()
        .find(|interface| interface.is_pattern() && interface.pods().is_none() && per_interface)
    {
        let message = format!(
            "each interface gets programs and maps of its own, so each must have its name here, but {:?} is \
             a pattern; name the interfaces, and set wait_for_interface for those that do not exist yet",
            pattern.text
        );
        findings.add(PER_INTERFACE, message);
    }
    if per_interface && interfaces.len() > ALONE {
        let message = format!(
            "{} interfaces are too many, since each gets programs and maps of its own; the limit is {ALONE}",
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
