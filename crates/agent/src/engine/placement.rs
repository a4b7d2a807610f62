//! Placement: the interfaces and the namespace that a configuration means, where a probe is attached and where it waits.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};
use twinprobe_kernel::interface::{self, Interfaces};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::{AttachInterface, NotAttached};

use crate::engine::deploy::cause::Occasion;
use twinprobe_config::ProbeConfig;

/// A network namespace: the daemon's own, or that of a path.
pub type Namespace = Option<PathBuf>;

/// The interfaces that a probe is to be attached to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Placement {
    /// Names (never alternative ones) and indices without duplicates. Named interfaces come in the configuration's
    /// order, the matches of a pattern by name.
    wanted: Vec<(String, u32)>,
    /// For each of them, the index of the name or pattern that stands for it.
    named_by: Vec<usize>,
    pending: Vec<PendingPlace>,
}

/// An interface or pattern that a probe waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPlace {
    /// The name or pattern of the configuration.
    pub interface: String,
    pub reason: String,
}

/// The interfaces a probe is to be attached to.
#[derive(Debug)]
pub struct WantedInterfaces {
    pub interfaces: Vec<AttachInterface>,
    pub pending: Vec<PendingPlace>,
    /// The reason why the interfaces can't be listed. While there is one, the other fields do not mean that interfaces
    /// are missing.
    pub unlisted: Option<String>,
}

/// The reason why a namespace's interfaces are not listed.
struct Unlisted {
    error: io::Error,
    /// True if the namespace is known not to exist, and so no interface in it.
    gone: bool,
}

impl Unlisted {
    /// To a request a namespace that the daemon may not enter is one that is not there.
    fn is_denied(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Returns the interfaces that exist now. A probe that is there already waits for missing
/// interfaces, whatever its configuration says. May have to wait for the namespace's path.
pub fn wanted(config: &ProbeConfig, occasion: Occasion) -> Result<WantedInterfaces, Rejection> {
    let is_new = occasion.is_new();
    let listed = listing(config.netns());
    let unlisted =
        listed.as_ref().err().filter(|unlisted| !(unlisted.gone || is_new && unlisted.is_denied()));
    let unlisted = unlisted.map(|Unlisted { error, .. }| format!("the interfaces can't be listed: {error}"));
    if let Some(reason) = unlisted.as_ref().filter(|_| is_new) {
        let field = if config.netns.is_some() { "netns" } else { "interface" };
        return Err(Finding::new(Stage::Attach, field, format!("{reason}; try again")).into());
    }
    let interfaces = listed.as_ref().map(|(_, interfaces)| interfaces).map_err(|unlisted| &unlisted.error);
    let Placement { wanted, named_by, pending } = match occasion {
        Occasion::New => place_new(config, interfaces)?,
        Occasion::Restored => place(config, interfaces),
    };
    let Ok((netns, _)) = &listed else {
        return Ok(WantedInterfaces { interfaces: Vec::new(), pending, unlisted });
    };
    let interface = |((name, index), named_by): ((String, u32), usize)| {
        let required = is_new && config.names(&name);
        AttachInterface { netns: netns.clone(), name, index, required, named_by }
    };
    let interfaces = wanted.into_iter().zip(named_by).map(interface).collect();
    Ok(WantedInterfaces { interfaces, pending, unlisted })
}

/// Returns the placement of a probe. `interfaces` are those of the configured network namespace, or the reason why
/// they can't be listed; then the whole probe waits.
fn place(config: &ProbeConfig, interfaces: Result<&Interfaces, &io::Error>) -> Placement {
    let mut placement = Placement::default();
    let interfaces = match interfaces {
        Ok(interfaces) => interfaces,
        Err(error) => {
            let reason = match config.netns {
                Some(_) => error.to_string(),
                None => format!("the interfaces can't be listed: {error}"),
            };
            let wait = |text: &String| PendingPlace { interface: text.clone(), reason: reason.clone() };
            placement.pending = config.interfaces.iter().map(|pattern| wait(&pattern.text)).collect();
            return placement;
        }
    };
    let place = config.netns().map_or_else(String::new, |path| format!(" in {}", path.display()));
    let mut placed = BTreeSet::new();
    for (named_by, pattern) in config.interfaces.iter().enumerate() {
        let text = &pattern.text;
        let (found, missing): (Vec<(&str, u32)>, _) = if pattern.is_pattern() {
            let named = interfaces.by_name.iter().map(|(name, index)| (name.as_str(), *index));
            let is_wanted = |name: &str| pattern.matches(name) && !is_excluded(config, interfaces, name);
            (named.filter(|(name, _)| is_wanted(name)).collect(), "no interface matches")
        } else {
            (interfaces.find(text).into_iter().collect(), "there is no interface")
        };
        if found.is_empty() {
            let reason = format!("{missing} {text}{place} yet");
            placement.pending.push(PendingPlace { interface: text.clone(), reason });
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

/// Tells whether an interface is taken out of patterns, by its name or an alternative one.
fn is_excluded(config: &ProbeConfig, interfaces: &Interfaces, name: &str) -> bool {
    let named = config.exclude_interfaces.iter().filter_map(|excluded| interfaces.find(&excluded.text));
    config.excludes(name) || named.into_iter().any(|(excluded, _)| excluded == name)
}

/// Returns the placement like [`place`] for a probe that a request deploys: every named interface has to exist unless
/// the configuration has `wait_for_interface`.
fn place_new(
    config: &ProbeConfig,
    interfaces: Result<&Interfaces, &io::Error>,
) -> Result<Placement, Rejection> {
    let placement = place(config, interfaces);
    if config.wait_for_interface {
        return Ok(placement);
    }
    let advice = "or set wait_for_interface to deploy the probe before it is there";
    if let Err(error) = interfaces {
        let (field, message) = match config.netns {
            Some(_) => ("netns", format!("{error}; see ip netns, {advice}")),
            None => ("interface", format!("the interfaces can't be listed: {error}")),
        };
        return Err(Finding::new(Stage::Attach, field, message).into());
    }
    let place = match config.netns() {
        Some(path) => format!("the network namespace {}", path.display()),
        None => "the daemon's network namespace".to_owned(),
    };
    let missing = placement.pending.iter().filter(|pending| config.names(&pending.interface));
    let finding = |PendingPlace { interface, .. }: &PendingPlace| {
        let message = format!("there is no interface {interface} in {place}; see ip link, {advice}");
        Finding::new(Stage::Attach, "interface", message)
    };
    let findings: Vec<Finding> = missing.map(finding).collect();
    if findings.is_empty() { Ok(placement) } else { Err(findings.into()) }
}

/// Returns the names of a namespace's interfaces by index; `None` if the interfaces can't be listed.
pub fn names(namespace: Option<&Path>) -> Option<HashMap<u32, String>> {
    let (_, interfaces) = listing(namespace).ok()?;
    Some(interfaces.by_name.iter().map(|(name, index)| (*index, name.clone())).collect())
}

fn listing(namespace: Option<&Path>) -> Result<(Netns, Interfaces), Unlisted> {
    let opened = namespace.map_or_else(Netns::own, Netns::open);
    let netns = opened.map_err(|error| Unlisted { gone: Netns::is_not_there(&error), error })?;
    let interfaces = interface::list(&netns).map_err(|error| Unlisted { error, gone: false })?;
    Ok((netns, interfaces))
}

/// Logs and returns the interfaces that exist and that a probe could not be attached to.
pub fn refused(failed: Vec<NotAttached>) -> Vec<PendingPlace> {
    let pending = |NotAttached { interface, error }| {
        let reason = with_causes(&error);
        tracing::warn!(interface, reason, "a probe could not be attached to an interface");
        PendingPlace { interface, reason }
    };
    failed.into_iter().map(pending).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use twinprobe_api::parse_document;

    use super::*;

    fn config(patch: &Value) -> ProbeConfig {
        let mut config = json!({ "ingress": { "source": "x" } });
        let fields = patch.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(fields);
        ProbeConfig::validate("p", &parse_document(config.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn interfaces() -> Interfaces {
        let mut interfaces = Interfaces::default();
        for (index, name) in [(1, "lo"), (2, "eth0"), (9, "veth1"), (4, "veth2")] {
            interfaces.insert(name, index, []);
        }
        interfaces.insert("eth1", 3, ["enp0s3".to_owned()]);
        interfaces
    }

    fn wanted(names: &[(&str, u32)]) -> Vec<(String, u32)> {
        names.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect()
    }

    fn pending(interface: &str, reason: &str) -> PendingPlace {
        PendingPlace { interface: interface.to_owned(), reason: reason.to_owned() }
    }

    fn refused(patch: &Value, interfaces: Result<&Interfaces, &io::Error>) -> Vec<(String, String)> {
        let findings = place_new(&config(patch), interfaces).unwrap_err().findings;
        assert!(findings.iter().all(|finding| finding.stage == Stage::Attach));
        findings.into_iter().map(|finding| (finding.field.unwrap(), finding.message)).collect()
    }

    #[test]
    fn names_and_patterns_are_placed_once() {
        let config = config(&json!({ "interfaces": ["veth2", "veth*", "eth[0-9]", "enp0s3"] }));
        let placement = place_new(&config, Ok(&interfaces())).unwrap();
        // `enp0s3` is an alternative name of eth1, which a pattern has placed already.
        assert_eq!(placement.wanted, wanted(&[("veth2", 4), ("veth1", 9), ("eth0", 2), ("eth1", 3)]));
        assert_eq!(placement.pending, []);
    }

    #[test]
    fn what_is_excluded_is_taken_out_of_patterns() {
        let all = ["lo", "eth0", "enp0s3", "veth[2-9]"];
        for (excluded, expected) in [
            (&all[..0], &[("eth0", 2), ("eth1", 3), ("lo", 1), ("veth1", 9), ("veth2", 4)][..]),
            (&all[..1], &[("eth0", 2), ("eth1", 3), ("veth1", 9), ("veth2", 4)]),
            // An alternative name takes out the interface.
            (&all[2..3], &[("eth0", 2), ("lo", 1), ("veth1", 9), ("veth2", 4)]),
            (&all[..], &[("veth1", 9)]),
        ] {
            let config = config(&json!({ "interfaces": ["*"], "exclude_interfaces": excluded }));
            assert_eq!(place(&config, Ok(&interfaces())).wanted, wanted(expected), "{excluded:?}");
        }
        let config = config(&json!({ "interface": "veth*", "exclude_interfaces": ["v*"] }));
        let placement = place_new(&config, Ok(&interfaces())).unwrap();
        assert_eq!(placement.pending, [pending("veth*", "no interface matches veth* yet")]);
    }

    #[test]
    fn alternative_names_give_the_proper_one() {
        let config = config(&json!({ "interface": "enp0s3" }));
        assert_eq!(place(&config, Ok(&interfaces())).wanted, wanted(&[("eth1", 3)]));
    }

    #[test]
    fn patterns_wait_by_themselves_and_names_when_they_are_told_to() {
        let patch = json!({ "interfaces": ["tap*", "eth0", "eth7"] });
        let waiting = json!({ "interfaces": ["tap*", "eth0", "eth7"], "wait_for_interface": true });
        let expected = Placement {
            wanted: wanted(&[("eth0", 2)]),
            named_by: vec![1],
            pending: vec![
                pending("tap*", "no interface matches tap* yet"),
                pending("eth7", "there is no interface eth7 yet"),
            ],
        };
        assert_eq!(place_new(&config(&waiting), Ok(&interfaces())), Ok(expected.clone()));
        assert_eq!(place(&config(&patch), Ok(&interfaces())), expected, "once it is deployed");
        let [(field, message)] = &refused(&patch, Ok(&interfaces()))[..] else { panic!("one finding") };
        assert_eq!(field, "interface");
        assert!(message.contains("no interface eth7 in the daemon's network namespace"), "{message}");
        assert!(message.contains("wait_for_interface"), "{message}");
        let only = config(&json!({ "interface": "tap*" }));
        assert_eq!(place_new(&only, Ok(&interfaces())).unwrap().pending.len(), 1);
    }

    #[test]
    fn all_that_are_missing_are_named() {
        let patch = json!({ "interfaces": ["a", "b"], "netns": "/run/netns/x" });
        let findings = refused(&patch, Ok(&interfaces()));
        assert_eq!(findings.len(), 2);
        assert!(findings[1].1.contains("no interface b in the network namespace /run/netns/x"));
        let reasons = place(&config(&patch), Ok(&interfaces())).pending;
        assert_eq!(reasons[0], pending("a", "there is no interface a in /run/netns/x yet"));
    }

    #[test]
    fn everything_waits_for_the_namespace() {
        let text = "there is no network namespace /run/netns/x that can be opened";
        let error = io::Error::new(io::ErrorKind::NotFound, text);
        let patch = json!({ "interfaces": ["veth*", "eth0"], "netns": "/run/netns/x" });
        let placement = place(&config(&patch), Err(&error));
        assert_eq!(placement.wanted, []);
        assert_eq!(placement.pending, [pending("veth*", text), pending("eth0", text)]);
        let [(field, message)] = &refused(&patch, Err(&error))[..] else { panic!("one finding") };
        assert_eq!(field, "netns");
        assert!(message.starts_with(text) && message.contains("wait_for_interface"), "{message}");

        let waiting = json!({ "interface": "eth0", "netns": "/run/netns/x", "wait_for_interface": true });
        assert_eq!(place_new(&config(&waiting), Err(&error)).unwrap().pending, [pending("eth0", text)]);
        let [(field, _)] = &refused(&json!({ "interface": "eth0" }), Err(&error))[..] else {
            panic!("one finding")
        };
        assert_eq!(field, "interface");
    }
}
