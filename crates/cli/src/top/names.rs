//! Names beside the addresses of entries. They use only the room that the keys leave.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use twinprobe_api::NameList;

use crate::names::addresses::{MOST, NamedAddresses, address};

/// The time after which the view asks for a name again, and the shorter time for an address without
/// a name: DNS may still be looking.
const KEPT: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(5);
/// The most addresses with stored names.
const ROOM: usize = 4_096;

/// The names that the view knows.
#[derive(Clone, Debug, Default)]
pub struct LiveNames {
    names: NamedAddresses,
    /// The time of the next question for each address.
    due: BTreeMap<IpAddr, Instant>,
}

impl LiveNames {
    /// Returns the addresses in keys that are due, as many as one request may have.
    pub fn wanted<'a>(&mut self, keys: impl Iterator<Item = &'a str>, now: Instant) -> Vec<String> {
        if self.due.len() > ROOM {
            *self = Self::default();
        }
        let mut wanted: Vec<String> = Vec::new();
        for address in keys.flat_map(words).filter_map(address) {
            let is_due = self.due.get(&address).is_none_or(|due| *due <= now);
            if is_due && wanted.len() < MOST {
                self.due.insert(address, now + AGAIN);
                wanted.push(address.to_string());
            }
        }
        wanted
    }

    /// Takes an answer. Addresses without a name are asked for again soon.
    pub fn take(&mut self, list: NameList, now: Instant) {
        let named = list.addresses.iter().filter(|of| !of.names.is_empty());
        self.due.extend(named.map(|of| (of.address, now + KEPT)));
        self.names.extend(list);
    }

    /// Adds names to the addresses of a shown entry of this width. The labels of its key stay
    /// whole.
    pub fn beside(&self, entry: &str, width: usize) -> String {
        let key = entry.find('=').map_or(entry, |at| {
            &entry[entry[..at].rfind(' ').map_or(0, |at| at + 1)..]
        });
        let named = words(key)
            .filter(|word| self.names.of(word, usize::MAX).is_some())
            .count();
        let room = width
            .saturating_sub(key.chars().count())
            .checked_div(named)
            .unwrap_or_default();
        let with_name = |part: &str| {
            let value = words(part).next().unwrap_or_default();
            match self.names.of(value, room.saturating_sub(1)) {
                Some(name) => format!("{part} {name}"),
                None => part.to_owned(),
            }
        };
        entry
            .split(' ')
            .map(with_name)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Returns the values of the labels in a key.
fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split(' ')
        .filter_map(|part| Some(part.split_once('=')?.1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FLOW: &str = "ingress flow_packets source=192.0.2.1 destination=192.0.2.2 port=53";

    fn list(addresses: &[(&str, &[&str])]) -> NameList {
        let addresses = addresses.iter().map(|(address, names)| {
            let names = names
                .iter()
                .map(|name| json!({ "name": name, "from": "dns" }));
            json!({ "address": address, "names": names.collect::<Vec<_>>() })
        });
        let addresses: Vec<_> = addresses.collect();
        serde_json::from_value(json!({ "kinds": ["dns"], "ports": [], "addresses": addresses }))
            .unwrap()
    }

    #[test]
    fn each_address_is_asked_for_once_until_its_time_comes() {
        let (mut names, now) = (LiveNames::default(), Instant::now());
        let wanted = |names: &mut LiveNames, later: Duration| {
            names.wanted([FLOW, FLOW, "plain 7"].into_iter(), now + later)
        };
        assert_eq!(
            wanted(&mut names, Duration::ZERO),
            ["192.0.2.1", "192.0.2.2"]
        );
        assert!(
            wanted(&mut names, Duration::ZERO).is_empty(),
            "they are under way"
        );
        names.take(
            list(&[("192.0.2.1", &["db.example"]), ("192.0.2.2", &[])]),
            now,
        );
        assert_eq!(wanted(&mut names, AGAIN), ["192.0.2.2"]);
        assert_eq!(wanted(&mut names, KEPT).len(), 2);
        let many: Vec<String> = (0..=MOST)
            .map(|host| format!("a=10.0.{}.{}", host / 250, host % 250))
            .collect();
        assert_eq!(
            names.wanted(many.iter().map(String::as_str), now).len(),
            MOST
        );
    }

    #[test]
    fn names_take_only_the_room_that_keys_leave() {
        let (mut names, now) = (LiveNames::default(), Instant::now());
        assert_eq!(names.beside(FLOW, 80), FLOW);
        names.take(
            list(&[
                ("192.0.2.1", &["db.example"]),
                ("192.0.2.2", &["a-long-name.example"]),
            ]),
            now,
        );
        let wide = "ingress flow_packets source=192.0.2.1 db.example destination=192.0.2.2 a-long-name.example port=53";
        assert_eq!(names.beside(FLOW, 200), wide);
        let narrow = names.beside(FLOW, 62);
        let key = &narrow[narrow.find("source").unwrap()..];
        assert_eq!(
            key,
            "source=192.0.2.1 db.exa… destination=192.0.2.2 a-long… port=53"
        );
        assert!(key.chars().count() <= 62);
        assert_eq!(names.beside(FLOW, 50), FLOW, "there is no room");
    }
}
