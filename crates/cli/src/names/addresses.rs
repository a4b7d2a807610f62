//! The names of addresses, from one request to the daemon.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Once;

use twinprobe_api::NameList;
use twinprobe_client::Client;
use twinprobe_ebpf_common::finding::with_causes;

use crate::error::CommandError;
use crate::output::print;
use crate::output::table::escaped;

/// The most addresses of one request. Further addresses have no name.
pub const MOST: usize = 256;
/// The most characters of a name.
const LONGEST: usize = 40;

/// The note that the daemon has no names, once for all requests of a watch.
static TOLD: Once = Once::new();

/// The best name of each address with a name.
#[derive(Clone, Debug, Default)]
pub struct NamedAddresses(BTreeMap<IpAddr, String>);

impl NamedAddresses {
    /// Asks a daemon for the names of the first addresses among these words. Names are an addition:
    /// without an answer there are none, and a note says why.
    pub async fn ask<'a>(client: &Client, words: impl Iterator<Item = &'a str>) -> Self {
        let mut wanted: Vec<String> = Vec::new();
        for address in words.filter_map(address).map(|address| address.to_string()) {
            if wanted.len() < MOST && !wanted.contains(&address) {
                wanted.push(address);
            }
        }
        if wanted.is_empty() {
            return Self::default();
        }
        match client
            .names(&wanted, &[])
            .await
            .and_then(|answer| answer.read())
        {
            Ok(list) => {
                if list.kinds.is_empty() {
                    TOLD.call_once(|| print::complain(&format!("note: {}", CommandError::NoNames)));
                }
                Self::from(list)
            }
            Err(error) => {
                print::complain(&format!("note: no names: {}", with_causes(&error)));
                Self::default()
            }
        }
    }

    /// Adds the names of an answer.
    pub fn extend(&mut self, list: NameList) {
        self.0.extend(Self::from(list).0);
    }

    /// Returns the name of an address in at most this number of characters.
    pub fn of(&self, word: &str, most: usize) -> Option<String> {
        let name = self.0.get(&address(word)?)?;
        let length = name.chars().count();
        let kept = most.min(LONGEST);
        if length <= kept {
            return Some(name.clone());
        }
        let cut: String = name.chars().take(kept.saturating_sub(1)).collect();
        (kept > 1).then(|| format!("{cut}…"))
    }
}

impl From<NameList> for NamedAddresses {
    fn from(list: NameList) -> Self {
        // Owners of addresses choose names, so a terminal must not obey them.
        let first = |names: Vec<twinprobe_api::FoundName>| {
            names
                .into_iter()
                .next()
                .map(|found| escaped(&found.name, usize::MAX))
        };
        Self(
            list.addresses
                .into_iter()
                .filter_map(|of| Some((of.address, first(of.names)?)))
                .collect(),
        )
    }
}

/// Reads an address. IPv4 in IPv6 is the address that people write.
pub fn address(word: &str) -> Option<IpAddr> {
    word.parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_cut_and_obey_nothing() {
        let names = |name: &str| json!([{ "name": name, "from": "dns" }, { "name": "other", "from": "mmdb" }]);
        let list = json!({ "kinds": ["dns"], "ports": [], "addresses": [
            { "address": "192.0.2.1", "names": names("db.example") },
            { "address": "192.0.2.2", "names": names(&"x".repeat(90)) },
            { "address": "192.0.2.3", "names": names("\u{1b}[2J") },
            { "address": "192.0.2.4", "names": [], "pending": true },
        ] });
        let names = NamedAddresses::from(serde_json::from_value::<NameList>(list).unwrap());
        assert_eq!(
            names.of("192.0.2.1", usize::MAX).as_deref(),
            Some("db.example")
        );
        assert_eq!(
            names.of("::ffff:192.0.2.1", usize::MAX).as_deref(),
            Some("db.example")
        );
        assert_eq!(names.of("192.0.2.1", 4).as_deref(), Some("db.…"));
        assert_eq!(
            names.of("192.0.2.2", usize::MAX).unwrap().chars().count(),
            LONGEST
        );
        assert_eq!(
            names.of("192.0.2.3", usize::MAX).as_deref(),
            Some(r"\u{1b}[2J")
        );
        for word in ["192.0.2.4", "192.0.2.9", "192.0.2.0/24", "db"] {
            assert_eq!(names.of(word, usize::MAX), None);
        }
        assert_eq!(names.of("192.0.2.1", 1), None, "there is no room");
    }
}
