//! The entries that a probe's configuration gives to its maps, and the exchange of these entries
//! while packets arrive.

use std::collections::BTreeSet;
use std::sync::Arc;

use twinprobe_api::{MapChange, MapEntries, ProbeStatus};
use twinprobe_config::ProbeConfig;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::request::{Fills, MapEntry};

use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::{ChangeAuthor, DeployCause};
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;

/// The effect of an exchange of entries on packets.
const DETAIL: &str = "each packet meets either all old entries or all new ones, for any type of map: a new \
                      map with the new entries replaces the old one in both twins, between two packets; \
                      interfaces and directions change one after the other, and no window is closed";

impl Engine {
    /// Returns the entries that the configuration gives the map.
    pub fn entries(&self, name: &str, map: &str) -> Result<MapEntries, EngineError> {
        let probe = self.registry.get(name)?;
        let config = &probe.stored.config;
        let entries = config.fill.as_ref().and_then(|fill| fill.get(map));
        let entries = entries.ok_or_else(|| EngineError::Missing(not_filled(&probe, map)))?;
        Ok(MapEntries {
            probe: name.to_owned(),
            map: map.to_owned(),
            revision: probe.stored.revision,
            change: None,
            entries: entries.clone(),
        })
    }

    /// Replaces all entries of a map, in a new revision of the probe. The configuration must
    /// already fill this map.
    pub async fn put_entries(
        self: &Arc<Self>,
        name: &str,
        map: &str,
        entries: Vec<MapEntry>,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<(MapEntries, ProbeStatus), EngineError> {
        let turn = self.registry.turns.request(name).await?;
        let probe = self.registry.get(name)?;
        when.check(Some(&probe.stored))?;
        let mut document = probe.stored.config.clone();
        let filled = document.fill.as_mut().and_then(|fill| fill.get_mut(map));
        let filled = filled
            .ok_or_else(|| Rejection::from(Finding::config("map", not_filled(&probe, map))))?;
        filled.clone_from(&entries);
        let mut config = ProbeConfig::validate(name, &document)?;
        // An interface may have disappeared since the probe was deployed. All other interfaces get
        // the entries.
        config.places.wait_for_interface = true;
        let author = author.explained(|| format!("entries of map {map}"));
        let cause = DeployCause::Request {
            author,
            anew: BTreeSet::from([map.to_owned()]),
        };
        drop(probe);
        let (_, status) = self.deploy(config, document, cause, turn, None).await?;
        let change = Some(MapChange {
            atomic: true,
            detail: DETAIL.to_owned(),
        });
        let (probe, map, revision) = (name.to_owned(), map.to_owned(), status.revision);
        Ok((
            MapEntries {
                probe,
                map,
                revision,
                change,
                entries,
            },
            status,
        ))
    }
}

/// Returns the error about a map that the configuration does not fill, and what to do.
fn not_filled(probe: &Probe, map: &str) -> String {
    let none = Fills::new();
    let filled = probe.stored.config.fill.as_ref().unwrap_or(&none);
    let filled: Vec<&str> = filled.keys().map(String::as_str).collect();
    let filled = if filled.is_empty() {
        "no map".to_owned()
    } else {
        filled.join(", ")
    };
    format!(
        "the configuration of probe {} fills {filled}, and not map {map}; clients can write only to maps \
         that fill names: name the map in fill, with an empty list if it has no entries",
        probe.name
    )
}
