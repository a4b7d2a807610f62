//! The Services of the cluster by their addresses, as a local agent has reported them: a table in memory, for names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use twinprobe_api::ServiceEntry;

/// The names of Services.
#[derive(Debug, Default)]
pub struct ServiceNames {
    by_address: BTreeMap<IpAddr, String>,
    /// The number of Services. Each may have several addresses.
    pub number: usize,
}

impl ServiceNames {
    pub fn new(services: &[ServiceEntry]) -> Self {
        let names = services.iter().flat_map(|service| {
            let name = format!("{}/{} (Service)", service.namespace, service.name);
            service.addresses.iter().map(move |address| (address.to_canonical(), name.clone()))
        });
        Self { by_address: names.collect(), number: services.len() }
    }

    /// Returns the Service that has this address.
    pub fn of(&self, address: IpAddr) -> Option<&str> {
        self.by_address.get(&address).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_a_service_has_its_name() {
        let addresses: Vec<IpAddr> = ["10.96.0.7", "fd00::7"].map(|text| text.parse().unwrap()).into();
        let web = ServiceEntry { namespace: "shop".into(), name: "web".into(), addresses: addresses.clone() };
        let names = ServiceNames::new(&[web]);
        assert!(addresses.iter().all(|address| names.of(*address) == Some("shop/web (Service)")));
        assert_eq!((names.number, names.of("10.96.0.8".parse().unwrap())), (1, None));
    }
}
