//! A configuration that obeys every rule, made only by [`ProbeConfig::validate`]. A refusal reports
//! every broken rule, not only the first.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use twinprobe_api::{ConfigDocument, DirectionDocument};
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::request::Fills;
use twinprobe_ebpf_common::unit::Unit;

use crate::direction::code::{Code, SourceCode};
use crate::direction::{self, DirectionConfig};
use crate::places::PlacesConfig;
use crate::validate::findings::{Defaults, Findings};
use crate::validate::{fill, labels, names, shared};
use crate::window::{self, Schedule, WindowConfig};

const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The programs to run, the interfaces to run them on, and the metrics to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeConfig {
    pub name: String,
    pub places: PlacesConfig,
    /// The format of answers to a client that asks for no format.
    pub format: Format,
    /// The time after which the probe is removed unless a PUT renews its lease; `None` if it stays.
    pub expires: Option<Duration>,
    /// The labels of every document and sample.
    pub labels: BTreeMap<String, String>,
    /// The prefix of the names of the probe's families in OpenMetrics; `None` for the names of its
    /// metrics.
    pub subsystem: Option<String>,
    /// The effect of a replacement of the probe on maps that no metric names.
    pub on_replace: OnReplace,
    /// The names of the maps that both directions use.
    pub shared_maps: Vec<String>,
    /// The entries that maps begin with.
    pub fill: Arc<Fills>,
    pub ingress: Option<DirectionConfig>,
    pub egress: Option<DirectionConfig>,
    pub window: Option<WindowConfig>,
}

impl ProbeConfig {
    /// Checks everything that can be checked without compiling, and reports all mistakes at once.
    pub fn validate(name: &str, document: &ConfigDocument) -> Result<Self, Rejection> {
        let mut findings = Findings::default();
        if !names::is_probe_name(name) {
            findings.add("name", names::probe_name_rule(name));
        }
        if let Err(rejection) = check_name(name, document) {
            rejection
                .findings
                .into_iter()
                .for_each(|finding| findings.add("name", finding.message));
        }
        let places = PlacesConfig::check(document, &mut findings);
        let defaults = Defaults::check(document, &mut findings);
        let format = format(document.format.as_deref(), &mut findings);
        if document.ingress.is_none() && document.egress.is_none() {
            findings.add("ingress", "at least one of ingress and egress is needed");
        }
        let mut check = |direction, document: Option<&DirectionDocument>| {
            let config = direction::check(direction, document?, &defaults, &mut findings);
            Some(config)
        };
        let ingress = check(Direction::Ingress, document.ingress.as_ref());
        let egress = check(Direction::Egress, document.egress.as_ref());
        let shared_maps = shared::check(document, &mut findings);
        let fill = fill::check(document, &mut findings);
        let directions = [(Direction::Ingress, &ingress), (Direction::Egress, &egress)];
        let directions = directions
            .into_iter()
            .filter_map(|(name, config)| Some((name, config.as_ref()?)));
        shared::agree(directions, &shared_maps, &mut findings);
        let window = document
            .window
            .as_ref()
            .map(|document| window::check(document, &mut findings));
        let expires = expires(document.expires.as_deref(), &mut findings);
        let labels = document.labels.clone().unwrap_or_default();
        labels::check(&labels, &mut findings);
        labels::check_keys(document, &mut findings);
        if let Some(Err(message)) = document.subsystem.as_deref().map(names::subsystem) {
            findings.add("subsystem", message);
        }
        findings.refuse()?;
        Ok(Self {
            name: name.to_owned(),
            places,
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

    pub fn direction(&self, direction: Direction) -> Option<&DirectionConfig> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Returns the compiler's input for a direction with this source, whose place in the
    /// configuration is `field`. `frags` tells whether XDP programs get packets of several buffers.
    pub fn unit<'a>(
        &'a self,
        (direction, of): (Direction, &'a DirectionConfig),
        source: &'a SourceCode,
        field: &'a str,
        frags: bool,
    ) -> Unit<'a> {
        let other = self
            .directions()
            .find_map(|(name, config)| match &config.code {
                Code::Source(source) if name != direction => Some(source.text.as_str()),
                Code::Source(_) | Code::Object(_) => None,
            });
        Unit {
            field,
            source: &source.text,
            files: &source.files,
            defines: &source.defines,
            dialect: source.dialect,
            entry: of.entry.as_deref(),
            calls: &source.calls,
            other,
            hook: of.attach.hook,
            verdict: of.attach.verdict,
            frags,
        }
    }

    /// Returns the configured directions, at least one; ingress comes first.
    pub fn directions(&self) -> impl Iterator<Item = (Direction, &DirectionConfig)> {
        Direction::ALL
            .into_iter()
            .filter_map(|direction| Some((direction, self.direction(direction)?)))
    }

    /// Returns the schedule on which the clock closes windows; `None` if only requests close them.
    pub fn schedule(&self) -> Option<Schedule> {
        self.window.as_ref()?.schedule
    }
}

/// Refuses a document whose `name` differs from the name in the request's path.
pub fn check_name(name: &str, document: &ConfigDocument) -> Result<(), Rejection> {
    match &document.name {
        Some(inner) if inner != name => {
            let message = format!(
                "the configuration says {inner:?}, the request says {name:?}; they must agree (apply --name sets both)"
            );
            Err(Finding::config("name", message).into())
        }
        _ => Ok(()),
    }
}

/// Refuses a document whose network namespace is at a place that no request may name. Stored
/// configurations of earlier versions may have other places, and continue.
pub fn check_netns(document: &ConfigDocument) -> Result<(), Rejection> {
    let path = document.netns.as_deref();
    let checked = path.map_or(Ok(()), names::place_of_netns);
    checked.map_err(|message| Finding::config("netns", message).into())
}

fn format(name: Option<&str>, findings: &mut Findings) -> Format {
    let Some(name) = name else {
        return Format::Json;
    };
    Format::from_name(name).unwrap_or_else(|| {
        let known = Format::ALL.map(Format::name).join(", ");
        findings.add(
            "format",
            format!("unknown format {}; use one of {known}", names::quote(name)),
        );
        Format::Json
    })
}

/// Returns the time after which the probe is removed; `None` if it stays.
fn expires(text: Option<&str>, findings: &mut Findings) -> Option<Duration> {
    let possible = SHORTEST_LEASE..=LONGEST_LEASE;
    let lease = names::duration(text?, "lease", possible, "100ms to 8760h");
    lease
        .map_err(|message| findings.add("expires", message))
        .ok()
}
