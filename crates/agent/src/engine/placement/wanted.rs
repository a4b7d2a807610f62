//! The interfaces that a configuration means now.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use twinprobe_ebpf_common::finding::{Finding, Rejection, Stage, with_causes};
use twinprobe_kernel::interface::{self, Interfaces};
use twinprobe_kernel::netns::Netns;
use twinprobe_kernel::{Interface, NotAttached};

use crate::config::probe::ProbeConfig;
use crate::engine::placement::placement::{Pending, Placement, place, place_first};

/// The interfaces a probe is to be attached to.
#[derive(Debug)]
pub struct Wanted {
    pub interfaces: Vec<Interface>,
    pub pending: Vec<Pending>,
    /// The reason why the interfaces can't be listed. While there is one, the other fields do not mean that interfaces
    /// are missing.
    pub unlisted: Option<String>,
}

/// The reason why a namespace's interfaces are not listed.
#[derive(Debug)]
pub struct Unlisted {
    error: io::Error,
    /// True if the namespace is known not to exist, and so no interface in it.
    gone: bool,
}

/// Returns the interfaces that exist now. Without `first`, missing interfaces are waited for, whatever the
/// configuration says. May have to wait for the namespace's path.
pub fn wanted(config: &ProbeConfig, first: bool) -> Result<Wanted, Rejection> {
    let listed = listing(config.netns());
    let unlisted = listed.as_ref().err().filter(|unlisted| !unlisted.gone);
    let unlisted = unlisted.map(|Unlisted { error, .. }| format!("the interfaces can't be listed: {error}"));
    if let Some(reason) = unlisted.as_ref().filter(|_| first) {
        let field = if config.netns().is_some() { "netns" } else { "interface" };
        return Err(Finding::new(Stage::Attach, field, format!("{reason}; try again")).into());
    }
    let interfaces = listed.as_ref().map(|(_, interfaces)| interfaces).map_err(|unlisted| &unlisted.error);
    let Placement { wanted, pending } =
        if first { place_first(config, interfaces)? } else { place(config, interfaces) };
    let Ok((netns, _)) = &listed else { return Ok(Wanted { interfaces: Vec::new(), pending, unlisted }) };
    let named = |name: &str| {
        config.patterns().iter().any(|pattern| !pattern.is_pattern() && pattern.as_str() == name)
    };
    let interfaces = wanted
        .into_iter()
        .map(|(name, index)| {
            let required = first && named(&name);
            Interface { netns: netns.clone(), name, index, required }
        })
        .collect();
    Ok(Wanted { interfaces, pending, unlisted })
}

/// Returns the names of a namespace's interfaces by index; `None` if the interfaces can't be listed.
pub fn names(namespace: Option<&Path>) -> Option<HashMap<u32, String>> {
    let (_, interfaces) = listing(namespace).ok()?;
    Some(interfaces.by_name.iter().map(|(name, index)| (*index, name.clone())).collect())
}

pub fn listing(namespace: Option<&Path>) -> Result<(Netns, Interfaces), Unlisted> {
    let opened = namespace.map_or_else(Netns::own, Netns::open);
    let netns = opened.map_err(|error| Unlisted { gone: Netns::is_not_there(&error), error })?;
    let interfaces = interface::list(&netns).map_err(|error| Unlisted { error, gone: false })?;
    Ok((netns, interfaces))
}

/// Logs and returns the interfaces that exist and that a probe could not be attached to.
pub fn refused(failed: Vec<NotAttached>) -> Vec<Pending> {
    let pending = |NotAttached { interface, error }| {
        let reason = with_causes(&error);
        tracing::warn!(interface, reason, "a probe could not be attached");
        Pending { interface, reason }
    };
    failed.into_iter().map(pending).collect()
}
