//! All names that the daemon knows, for requests of clients.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use twinprobe_api::{
    AddressNames, AskedPort, FoundName, NameList, NameOrigin, PodStatus, PortNames,
};

use crate::engine::pods::services::ServiceNames;
use crate::names::dns::ReverseDns;
use crate::names::options::NameOptions;
use crate::names::places::PlaceFile;
use crate::names::question::NameQuestion;
use crate::names::tables::{ServiceKey, SystemTable};

/// The longest time for which a request waits for all answers of DNS.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pods and Services that a local agent has reported.
#[derive(Debug, Default)]
pub struct ClusterNames {
    pub pods: Vec<PodStatus>,
    pub services: Arc<ServiceNames>,
}

/// The sources of names that the operator has configured.
#[derive(Debug, Default)]
pub struct NameBook {
    kinds: Vec<NameOrigin>,
    hosts: Option<SystemTable<IpAddr>>,
    services: Option<SystemTable<ServiceKey>>,
    dns: Option<Arc<ReverseDns>>,
    places: Vec<PlaceFile>,
}

impl NameBook {
    /// Opens the sources. An error names the option and the mistake.
    pub fn open(options: NameOptions) -> Result<Self, String> {
        let NameOptions {
            names: mut kinds,
            names_dns,
            names_mmdb,
        } = options;
        kinds.sort_by_key(|kind| NameOrigin::CHOICES.iter().position(|choice| choice == kind));
        kinds.dedup();
        let has = |kind| kinds.contains(&kind);
        let dns: Vec<SocketAddr> = names_dns;
        let mut book = Self {
            hosts: has(NameOrigin::Hosts).then(|| SystemTable::hosts("/etc/hosts")),
            services: has(NameOrigin::Services).then(|| SystemTable::services("/etc/services")),
            dns: has(NameOrigin::Dns).then(|| ReverseDns::new(dns)),
            places: names_mmdb
                .iter()
                .map(|path| PlaceFile::open(path))
                .collect::<Result<_, _>>()?,
            kinds: Vec::new(),
        };
        if !book.places.is_empty() {
            kinds.push(NameOrigin::Mmdb);
        }
        book.kinds = kinds;
        Ok(book)
    }

    /// Tells whether the answer to a request needs the pods.
    pub fn wants_pods(&self, question: &NameQuestion) -> bool {
        self.kinds.contains(&NameOrigin::Pods) && !question.addresses.is_empty()
    }

    /// Answers a request. `cluster` has the pods and Services if the request needs them.
    pub async fn answer(&self, question: NameQuestion, cluster: &ClusterNames) -> NameList {
        let until = Instant::now() + PATIENCE;
        // All queries are sent before the first answer is awaited.
        let begun = question.addresses.into_iter().map(|address| {
            let dns = self
                .dns
                .clone()
                .map(|dns| tokio::spawn(async move { dns.names(address, PATIENCE).await }));
            (address, dns)
        });
        let begun: Vec<_> = begun.collect();
        let mut addresses = Vec::with_capacity(begun.len());
        for (address, dns) in begun {
            let mut names = self.near_names(address, cluster);
            let mut pending = false;
            if let Some(task) = dns {
                let found = timeout_at(until, task)
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .flatten();
                pending = found.is_none();
                let found = found.iter().flat_map(|names| names.iter().cloned());
                names.extend(found.map(|name| FoundName {
                    name,
                    from: NameOrigin::Dns,
                }));
            }
            let places = self.places.iter().flat_map(|file| file.names(address));
            names.extend(places.map(|name| FoundName {
                name,
                from: NameOrigin::Mmdb,
            }));
            addresses.push(AddressNames {
                address,
                names,
                pending,
            });
        }
        let ports = question.ports.iter().map(|port| self.port(port)).collect();
        NameList {
            kinds: self.kinds.clone(),
            addresses,
            ports,
        }
    }

    /// Returns the names of an address that this machine knows without a query to a server.
    fn near_names(&self, address: IpAddr, cluster: &ClusterNames) -> Vec<FoundName> {
        let own = |pod: &&PodStatus| pod.addresses.contains(&address);
        let of_pods = cluster.pods.iter().filter(own).map(|pod| {
            let workload = pod
                .workload
                .as_ref()
                .map(|owner| format!(" ({} {})", owner.kind, owner.name));
            format!(
                "{}/{}{}",
                pod.namespace,
                pod.name,
                workload.unwrap_or_default()
            )
        });
        let of_services = cluster.services.of(address);
        let of_cluster = of_pods.chain(of_services).map(|name| FoundName {
            name,
            from: NameOrigin::Pods,
        });
        let of_hosts = self.hosts.iter().flat_map(|hosts| hosts.names(address));
        of_cluster
            .chain(of_hosts.map(|name| FoundName {
                name,
                from: NameOrigin::Hosts,
            }))
            .collect()
    }

    fn port(&self, port: &AskedPort) -> PortNames {
        let names = self
            .services
            .iter()
            .flat_map(|services| services.names(port));
        let names = names
            .map(|name| FoundName {
                name,
                from: NameOrigin::Services,
            })
            .collect();
        PortNames {
            port: port.to_string(),
            names,
        }
    }
}
