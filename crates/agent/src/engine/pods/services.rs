//! The Services of the cluster by their addresses, as a local agent has reported them. Documents
//! and names are looked up in this table, which is in memory.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use twinprobe_api::ServiceEntry;
use twinprobe_ebpf_common::window::owner::AddressOwner;

/// The names of Services.
#[derive(Debug, Default)]
pub struct ServiceNames {
    /// The namespace and the name.
    by_address: BTreeMap<IpAddr, (String, String)>,
    /// The number of Services. Each may have several addresses.
    pub number: usize,
}

impl ServiceNames {
    pub fn new(services: &[ServiceEntry]) -> Self {
        let names = services.iter().flat_map(|service| {
            let name = (service.namespace.clone(), service.name.clone());
            service
                .addresses
                .iter()
                .map(move |address| (address.to_canonical(), name.clone()))
        });
        Self {
            by_address: names.collect(),
            number: services.len(),
        }
    }

    /// Returns the Service that has this address.
    pub fn of(&self, address: IpAddr) -> Option<String> {
        let (namespace, name) = self.by_address.get(&address)?;
        Some(format!("{namespace}/{name} (Service)"))
    }

    /// Returns all Services, for the keys of documents.
    pub fn owners(&self) -> HashMap<IpAddr, AddressOwner> {
        let owner = |(namespace, name): &(String, String)| AddressOwner::Service {
            namespace: namespace.clone(),
            service: name.clone(),
        };
        self.by_address
            .iter()
            .map(|(address, name)| (*address, owner(name)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_a_service_has_its_name() {
        let addresses: Vec<IpAddr> = ["10.96.0.7", "fd00::7"]
            .map(|text| text.parse().unwrap())
            .into();
        let web = ServiceEntry {
            namespace: "shop".into(),
            name: "web".into(),
            addresses: addresses.clone(),
        };
        let names = ServiceNames::new(&[web]);
        assert!(
            addresses
                .iter()
                .all(|address| names.of(*address).as_deref() == Some("shop/web (Service)"))
        );
        assert_eq!(
            (names.number, names.of("10.96.0.8".parse().unwrap())),
            (1, None)
        );
    }
}
