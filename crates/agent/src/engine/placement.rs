//! The placement of probes: the interfaces and the namespace that a configuration selects, where a
//! probe is attached, and what it waits for.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};
use twinprobe_kernel::interface::{self, Interfaces};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::{AttachInterface, NotAttached};

use crate::engine::deploy::cause::Occasion;
use crate::engine::pods::table::{NodePods, SelectedPods};
use twinprobe_config::PlacesConfig;

/// A network namespace: `None` is the daemon's own, or else the path of the namespace.
pub type Namespace = Option<PathBuf>;

/// The interfaces for a probe at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Placement {
    /// The names (never alternative ones) and indices, without duplicates. Named interfaces have
    /// the order of the configuration. The matches of a pattern are sorted by name.
    wanted: Vec<(String, u32)>,
    /// For each interface, the index of the name or pattern that selected it.
    named_by: Vec<usize>,
    pending: Vec<PendingPlace>,
}

/// A name or pattern of interfaces for which a probe waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPlace {
    /// The name or pattern of the configuration.
    pub interface: String,
    pub reason: String,
}

impl Placement {
    /// Selects the interfaces of the selected pods for which `is_wanted` returns true, and waits
    /// for every pod without an interface.
    fn place_on_pods(
        &mut self,
        (named_by, words): (usize, &str),
        selected: &SelectedPods,
        is_wanted: impl Fn(&(String, u32)) -> bool,
    ) {
        // Two pods have the same interface only if they share a namespace.
        let mut found: Vec<_> = selected
            .interfaces
            .iter()
            .filter(|at| is_wanted(at))
            .cloned()
            .collect();
        found.sort();
        found.dedup();
        self.named_by.extend(found.iter().map(|_| named_by));
        self.wanted.extend(found);
        let waiting = selected.waiting.iter().map(|(pod, reason)| PendingPlace {
            interface: format!("pod {pod}"),
            reason: (*reason).to_owned(),
        });
        self.pending.extend(waiting);
        if self.wanted.is_empty() && self.pending.is_empty() {
            let reason = match selected.on_host {
                0 => format!("this node has no {words} yet"),
                all => format!("{all} {words} use the host's network; others do not exist yet"),
            };
            self.pending.push(PendingPlace {
                interface: words.to_owned(),
                reason,
            });
        }
    }
}

/// The interfaces for a probe.
#[derive(Debug)]
pub struct WantedInterfaces {
    pub interfaces: Vec<AttachInterface>,
    pub pending: Vec<PendingPlace>,
    /// The reason why the interfaces can't be listed; `None` if they can. With a reason, the other
    /// fields do not show which interfaces are missing.
    pub unlisted: Option<String>,
}

/// The reason why a namespace's interfaces are not listed.
struct Unlisted {
    error: io::Error,
    /// True if the namespace does not exist, so that none of its interfaces exist.
    gone: bool,
}

impl Unlisted {
    /// Tells whether the daemon may not enter the namespace. For a request, such a namespace counts
    /// as missing.
    fn is_denied(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Returns the interfaces that exist now. A probe that exists already waits for missing interfaces,
/// even if its configuration does not ask for it. May wait for the namespace's path.
pub fn wanted(
    config: &PlacesConfig,
    occasion: Occasion,
    pods: &NodePods,
) -> Result<WantedInterfaces, Rejection> {
    let is_new = occasion.is_new();
    let selected = config.pods().map(|selector| {
        if is_new {
            pods.look();
        }
        pods.selected(selector)
    });
    let mut selected = selected.unwrap_or_default();
    let listed = listing(config.netns());
    let unlisted = listed
        .as_ref()
        .err()
        .filter(|unlisted| !(unlisted.gone || is_new && unlisted.is_denied()));
    let unlisted =
        unlisted.map(|Unlisted { error, .. }| format!("the interfaces can't be listed: {error}"));
    let unlisted = unlisted.or(selected.error.take());
    if let Some(reason) = unlisted.as_ref().filter(|_| is_new) {
        return Err(not_listed(config, reason));
    }
    let interfaces = listed
        .as_ref()
        .map(|(_, interfaces)| interfaces)
        .map_err(|unlisted| &unlisted.error);
    let Placement {
        wanted,
        named_by,
        pending,
    } = match occasion {
        Occasion::New => place_new(config, interfaces, &selected)?,
        Occasion::Restored => place(config, interfaces, &selected),
    };
    let Ok((netns, _)) = &listed else {
        return Ok(WantedInterfaces {
            interfaces: Vec::new(),
            pending,
            unlisted,
        });
    };
    let interface = |((name, index), named_by): ((String, u32), usize)| {
        let required = is_new && config.names(&name);
        AttachInterface {
            netns: netns.clone(),
            name,
            index,
            required,
            named_by,
        }
    };
    let interfaces = wanted.into_iter().zip(named_by).map(interface).collect();
    Ok(WantedInterfaces {
        interfaces,
        pending,
        unlisted,
    })
}

/// Makes the rejection of a new probe whose interfaces can't be listed for this reason.
fn not_listed(config: &PlacesConfig, reason: &str) -> Rejection {
    let field = match (&config.netns, config.pods()) {
        (Some(_), _) => "netns",
        (None, Some(_)) => "pods",
        (None, None) => "interface",
    };
    Finding::new(Stage::Attach, field, format!("{reason}; try again")).into()
}

/// Returns the placement of a probe. `interfaces` are those of the configured network namespace, or
/// the reason why they can't be listed; then the whole probe waits.
fn place(
    config: &PlacesConfig,
    interfaces: Result<&Interfaces, &io::Error>,
    selected: &SelectedPods,
) -> Placement {
    let interfaces = match interfaces {
        Ok(interfaces) => interfaces,
        Err(error) => return place_nowhere(config, error),
    };
    let mut placement = Placement::default();
    let place = config
        .netns()
        .map_or_else(String::new, |path| format!(" in {}", path.display()));
    let mut placed = BTreeSet::new();
    for (named_by, pattern) in config.interfaces.iter().enumerate() {
        let text = &pattern.text;
        if pattern.pods().is_some() {
            placement.place_on_pods((named_by, text), selected, |(name, index)| {
                // If an interface has disappeared since this look, the next look notices it.
                interfaces.by_name.get(name) == Some(index)
                    && !is_excluded(config, interfaces, name)
            });
            continue;
        }
        let (found, missing): (Vec<(&str, u32)>, _) = if pattern.is_pattern() {
            let named = interfaces
                .by_name
                .iter()
                .map(|(name, index)| (name.as_str(), *index));
            let is_wanted =
                |name: &str| pattern.matches(name) && !is_excluded(config, interfaces, name);
            (
                named.filter(|(name, _)| is_wanted(name)).collect(),
                "no interface matches",
            )
        } else {
            (
                interfaces.find(text).into_iter().collect(),
                "there is no interface",
            )
        };
        if found.is_empty() {
            let reason = format!("{missing} {text}{place} yet");
            placement.pending.push(PendingPlace {
                interface: text.clone(),
                reason,
            });
        }
        for (name, index) in found {
            if placed.insert(index) {
                placement.wanted.push((name.to_owned(), index));
                placement.named_by.push(named_by);
            }
        }
    }
    placement
}

/// Returns the placement of a probe that waits for all its interfaces, because they can't be
/// listed.
fn place_nowhere(config: &PlacesConfig, error: &io::Error) -> Placement {
    let reason = match config.netns {
        Some(_) => error.to_string(),
        None => format!("the interfaces can't be listed: {error}"),
    };
    let wait = |text: &String| PendingPlace {
        interface: text.clone(),
        reason: reason.clone(),
    };
    let patterns = config.interfaces.iter();
    Placement {
        pending: patterns.map(|pattern| wait(&pattern.text)).collect(),
        ..Placement::default()
    }
}

/// Tells whether the configuration excludes an interface from its patterns, by the interface's name
/// or an alternative name.
fn is_excluded(config: &PlacesConfig, interfaces: &Interfaces, name: &str) -> bool {
    let named = config
        .exclude_interfaces
        .iter()
        .filter_map(|excluded| interfaces.find(&excluded.text));
    config.excludes(name) || named.into_iter().any(|(excluded, _)| excluded == name)
}

/// Returns the placement like [`place`] for a probe that a request deploys: every named interface
/// must exist unless the configuration has `wait_for_interface`.
fn place_new(
    config: &PlacesConfig,
    interfaces: Result<&Interfaces, &io::Error>,
    selected: &SelectedPods,
) -> Result<Placement, Rejection> {
    let placement = place(config, interfaces, selected);
    if config.wait_for_interface {
        return Ok(placement);
    }
    let advice = "or set wait_for_interface to deploy the probe before the interface exists";
    if let Err(error) = interfaces {
        let (field, message) = match config.netns {
            Some(_) => ("netns", format!("{error}; see ip netns, {advice}")),
            None => (
                "interface",
                format!("the interfaces can't be listed: {error}"),
            ),
        };
        return Err(Finding::new(Stage::Attach, field, message).into());
    }
    let place = match config.netns() {
        Some(path) => format!("the network namespace {}", path.display()),
        None => "the daemon's network namespace".to_owned(),
    };
    let missing = placement
        .pending
        .iter()
        .filter(|pending| config.names(&pending.interface));
    let finding = |PendingPlace { interface, .. }: &PendingPlace| {
        let message =
            format!("there is no interface {interface} in {place}; see ip link, {advice}");
        Finding::new(Stage::Attach, "interface", message)
    };
    let findings: Vec<Finding> = missing.map(finding).collect();
    if findings.is_empty() {
        Ok(placement)
    } else {
        Err(findings.into())
    }
}

/// Returns the names of a namespace's interfaces by index; `None` if the interfaces can't be
/// listed.
pub fn names(namespace: Option<&Path>) -> Option<HashMap<u32, String>> {
    let (_, interfaces) = listing(namespace).ok()?;
    Some(
        interfaces
            .by_name
            .iter()
            .map(|(name, index)| (*index, name.clone()))
            .collect(),
    )
}

fn listing(namespace: Option<&Path>) -> Result<(Netns, Interfaces), Unlisted> {
    let opened = namespace.map_or_else(Netns::own, Netns::open);
    let netns = opened.map_err(|error| Unlisted {
        gone: Netns::is_not_there(&error),
        error,
    })?;
    let interfaces = interface::list(&netns).map_err(|error| Unlisted { error, gone: false })?;
    Ok((netns, interfaces))
}

/// Logs and returns existing interfaces to which a probe could not be attached.
pub fn refused(failed: Vec<NotAttached>) -> Vec<PendingPlace> {
    let pending = |NotAttached { interface, error }| {
        let reason = with_causes(&error);
        tracing::warn!(
            interface,
            reason,
            "a probe could not be attached to an interface"
        );
        PendingPlace { interface, reason }
    };
    failed.into_iter().map(pending).collect()
}
