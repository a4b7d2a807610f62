//! The Services of the cluster by their addresses, which give names to addresses in windows. The
//! agent keeps no other facts about Services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::Resource as _;
use twinprobe_api::ServiceEntry;

use crate::node::follow::{Followed, Seen};

/// The most Services that a daemon accepts.
const MOST: usize = 4_096;
/// The most addresses of a Service: one IPv4 address and one IPv6 address.
const ADDRESSES: usize = 2;

type ServiceName = (String, String);

/// The Services that the agent knows.
#[derive(Debug, Default)]
pub struct ServiceTable {
    known: BTreeMap<ServiceName, Vec<IpAddr>>,
    /// True once a warning about too many Services was logged.
    is_told: bool,
}

impl ServiceTable {
    /// The Services that have an address of their own.
    pub fn followed() -> Followed {
        let fields = Some("spec.clusterIP!=None".to_owned());
        Followed {
            path: Service::url_path(&(), None),
            fields,
            is_metadata: false,
        }
    }

    /// Takes a change. Services beyond the limit have no name.
    pub fn take(&mut self, change: Seen<Service>) {
        match change {
            Seen::All(all) => {
                self.known.clear();
                all.into_iter().for_each(|service| self.put(service));
            }
            Seen::One(service) => self.put(service),
            Seen::Gone(service) => {
                if let Some((name, _)) = described(service) {
                    self.known.remove(&name);
                }
            }
        }
    }

    fn put(&mut self, service: Service) {
        let Some((name, addresses)) = described(service) else {
            return;
        };
        if addresses.is_empty() {
            self.known.remove(&name);
        } else if self.known.len() < MOST || self.known.contains_key(&name) {
            self.known.insert(name, addresses);
        } else if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!("the cluster has more than {MOST} Services; the others have no names");
        }
    }

    /// Returns the Services for the daemon.
    pub fn entries(&self) -> Vec<ServiceEntry> {
        let entry = |((namespace, name), addresses): (&ServiceName, &Vec<IpAddr>)| ServiceEntry {
            namespace: namespace.clone(),
            name: name.clone(),
            addresses: addresses.clone(),
        };
        self.known.iter().map(entry).collect()
    }
}

/// Returns the name and the addresses of a Service.
fn described(service: Service) -> Option<(ServiceName, Vec<IpAddr>)> {
    let name = (service.metadata.namespace?, service.metadata.name?);
    let spec = service.spec.unwrap_or_default();
    let addresses = spec
        .cluster_ips
        .or(spec.cluster_ip.map(|address| vec![address]))
        .unwrap_or_default();
    // A Service without an address has the text `None` as its address. A Service of type
    // ExternalName has no address field.
    Some((
        name,
        addresses
            .iter()
            .filter_map(|address| address.parse().ok())
            .take(ADDRESSES)
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: &Value) -> Service {
        let object = json!({ "metadata": { "namespace": "shop", "name": name }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn names(table: &ServiceTable) -> Vec<String> {
        table
            .entries()
            .into_iter()
            .map(|entry| entry.name)
            .collect()
    }

    #[test]
    fn services_with_addresses_are_told() {
        let mut table = ServiceTable::default();
        let both = json!({ "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"] });
        table.take(Seen::All(vec![
            service("web", &both),
            service("old", &json!({ "clusterIP": "10.96.0.8" })),
            service(
                "headless",
                &json!({ "clusterIP": "None", "clusterIPs": ["None"] }),
            ),
            service(
                "external",
                &json!({ "type": "ExternalName", "externalName": "db.example" }),
            ),
        ]));
        assert_eq!(names(&table), ["old", "web"]);
        let addresses: Vec<IpAddr> = ["10.96.0.7", "fd00::7"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(table.entries()[1].addresses, addresses);
        table.take(Seen::Gone(service("old", &json!({}))));
        table.take(Seen::One(service(
            "db",
            &json!({ "clusterIP": "10.96.0.9" }),
        )));
        table.take(Seen::One(service("web", &json!({ "clusterIP": "None" }))));
        assert_eq!(names(&table), ["db"]);
    }

    #[test]
    fn the_table_has_a_limit() {
        let mut table = ServiceTable::default();
        let one =
            |number: usize| service(&format!("s{number}"), &json!({ "clusterIP": "10.96.0.7" }));
        table.take(Seen::All((0..=MOST).map(one).collect()));
        assert_eq!((table.known.len(), table.is_told), (MOST, true));
        table.take(Seen::Gone(one(0)));
        table.take(Seen::One(one(MOST)));
        assert_eq!(table.known.len(), MOST);
    }
}
