//! Interfaces by name and by index, in any network namespace.

use std::collections::BTreeMap;
use std::io;

use crate::net::netns::Netns;
use crate::net::rtnl::socket;

/// The interfaces of one network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The indices of all interfaces, by their proper names.
    pub by_name: BTreeMap<String, u32>,
    /// The proper name for each alternative name (`ip link property`).
    alternatives: BTreeMap<String, String>,
}

impl Interfaces {
    /// Finds the interface by its name or an alternative name. Returns its proper name and index.
    pub fn find(&self, name: &str) -> Option<(&str, u32)> {
        let (name, index) = self
            .by_name
            .get_key_value(name)
            .or_else(|| self.by_name.get_key_value(self.alternatives.get(name)?))?;
        Some((name, *index))
    }

    pub fn insert(
        &mut self,
        name: &str,
        index: u32,
        alternatives: impl IntoIterator<Item = String>,
    ) {
        self.by_name.insert(name.to_owned(), index);
        self.alternatives.extend(
            alternatives
                .into_iter()
                .map(|alternative| (alternative, name.to_owned())),
        );
    }
}

/// Lists every interface of `netns` at one moment.
pub fn list(netns: &Netns) -> io::Result<Interfaces> {
    let mut interfaces = Interfaces::default();
    for link in socket::list(netns)?.into_values() {
        interfaces.insert(&link.name, link.index, link.alternatives);
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netns::testing::Named;

    #[test]
    fn interfaces_of_any_namespace_are_listed() {
        let named = Named::new();
        let netns = Netns::open(&named.path()).unwrap();
        named.ip("link add tpa type veth peer name tpb");
        named.ip("link property add dev tpa altname tp-other");
        let interfaces = list(&netns).unwrap();
        assert!(
            interfaces.by_name.keys().eq(["lo", "tpa", "tpb"]),
            "{interfaces:?}"
        );
        let index = interfaces.by_name["tpa"];
        assert_eq!(interfaces.find("tpa"), Some(("tpa", index)));
        assert_eq!(interfaces.find("tp-other"), Some(("tpa", index)));
        assert_eq!(interfaces.find("tp"), None);

        let own = list(&Netns::own().unwrap()).unwrap();
        assert_eq!(own.by_name.get("lo"), Some(&1));
        assert_eq!(own.find("tpa"), None);
    }

    #[test]
    fn long_lists_are_complete() {
        let named = Named::new();
        for i in 0..50 {
            named.ip(&format!("link add tpa{i} type veth peer name tpb{i}"));
        }
        assert_eq!(
            list(&Netns::open(&named.path()).unwrap())
                .unwrap()
                .by_name
                .len(),
            101
        );
    }
}
