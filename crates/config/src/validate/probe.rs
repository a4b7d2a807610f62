//! The rules of a configuration. A refusal reports every broken rule, not only the first.

#[cfg(test)]
mod tests;

use std::time::Duration;

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::hook::Direction;

use crate::probe::ProbeConfig;
use crate::validate::findings::{Defaults, Findings};
use crate::validate::{direction, fill, interfaces, labels, names, shared, window};

const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Refuses a document whose `name` differs from the name in the request's path.
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

/// Refuses a document whose network namespace is at a place that no request may name. Stored configurations of earlier
/// versions may have other places, and continue.
pub fn check_netns(document: &ConfigDocument) -> Result<(), Rejection> {
    let path = document.netns.as_deref();
    let checked = path.map_or(Ok(()), names::place_of_netns);
    checked.map_err(|message| Finding::config("netns", message).into())
}

impl ProbeConfig {
    /// Checks everything that can be checked without compiling, and reports all mistakes at once.
    pub fn validate(name: &str, document: &ConfigDocument) -> Result<Self, Rejection> {
        let mut findings = Findings::default();
        if !names::is_probe_name(name) {
            findings.add("name", names::probe_name_rule(name));
        }
        if let Err(rejection) = check_name(name, document) {
            rejection.findings.into_iter().for_each(|finding| findings.add("name", finding.message));
        }
        let interfaces = interfaces::check(document, &mut findings);
        let exclude_interfaces = interfaces::excluded(document, &interfaces, &mut findings);
        let per_interface = interfaces::each_alone(document, &interfaces, &mut findings);
        if let Some(Err(message)) = document.netns.as_deref().map(names::netns) {
            findings.add("netns", message);
        }
        let defaults = Defaults::check(document, &mut findings);
        let format = format(document.format.as_deref(), &mut findings);
        if document.ingress.is_none() && document.egress.is_none() {
            findings.add("ingress", "at least one of ingress and egress is needed");
        }
        let mut check = |direction, document| direction::check(direction, document, &defaults, &mut findings);
        let ingress = document.ingress.as_ref().map(|document| check(Direction::Ingress, document));
        let egress = document.egress.as_ref().map(|document| check(Direction::Egress, document));
        let shared_maps = shared::check(document, &mut findings);
        let fill = fill::check(document, &mut findings);
        let directions = [(Direction::Ingress, &ingress), (Direction::Egress, &egress)];
        let directions = directions.into_iter().filter_map(|(name, config)| Some((name, config.as_ref()?)));
        shared::agree(directions, &shared_maps, &mut findings);
        let window = document.window.as_ref().map(|document| window::check(document, &mut findings));
        let expires = document.expires.as_deref().and_then(|text| {
            let lease = names::duration(text, "lease", SHORTEST_LEASE..=LONGEST_LEASE, "100ms to 8760h");
            lease.map_err(|message| findings.add("expires", message)).ok()
        });
        let labels = document.labels.clone().unwrap_or_default();
        labels::check(&labels, &mut findings);
        labels::check_keys(document, &mut findings);
        if let Some(Err(message)) = document.subsystem.as_deref().map(names::subsystem) {
            findings.add("subsystem", message);
        }
        findings.refuse()?;
        Ok(Self {
            name: name.to_owned(),
            interfaces,
            exclude_interfaces,
            per_interface,
            wait_for_interface: document.wait_for_interface == Some(true),
            netns: document.netns.as_ref().map(Into::into),
            format,
            expires,
            labels,
            subsystem: document.subsystem.clone(),
            on_replace: defaults.on_replace,
            shared_maps,
            fill,
            ingress,
            egress,
            window,
        })
    }
}

fn format(name: Option<&str>, findings: &mut Findings) -> Format {
    let Some(name) = name else { return Format::Json };
    Format::from_name(name).unwrap_or_else(|| {
        let known = Format::ALL.map(Format::name).join(", ");
        findings.add("format", format!("unknown format {}; use one of {known}", names::quote(name)));
        Format::Json
    })
}
