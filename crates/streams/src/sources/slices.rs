//! Lists of endpoints, as the API server of Kubernetes gives them: the addresses of daemons, and
//! their nodes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use twinprobe_client::Server;

use super::daemon::DaemonAddress;

/// A list of endpoints, as far as daemons need it.
#[derive(Debug, Deserialize)]
pub struct EndpointList {
    #[serde(default)]
    metadata: EndpointListMetadata,
    items: Vec<EndpointSlice>,
}

#[derive(Debug, Default, Deserialize)]
struct EndpointListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointSlice {
    address_type: String,
    /// The API server writes `null` for an empty list.
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: EndpointConditions,
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct EndpointConditions {
    ready: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct EndpointPort {
    name: Option<String>,
    port: Option<u16>,
}

/// The names that lead from endpoints to daemons.
#[derive(Clone, Debug)]
pub struct EndpointNames {
    /// The name of the Service's port for the API.
    pub port: String,
    /// False if the daemons listen without TLS.
    pub tls: bool,
    /// The name in the daemons' certificates.
    pub server_name: String,
}

impl EndpointNames {
    /// The name of the port in the chart of twinprobe.
    pub const PORT: &str = "api";

    /// The name of a Service in certificates.
    #[must_use]
    pub fn server(service: &str, namespace: &str) -> String {
        format!("{service}.{namespace}.svc")
    }

    /// Checks the name in certificates.
    ///
    /// # Errors
    ///
    /// Returns the reason why no host can have this name.
    pub fn check(&self) -> Result<(), String> {
        let Self { server_name, .. } = self;
        let is_address = server_name.parse::<IpAddr>().is_ok();
        match self.url(1).parse::<Server>() {
            Ok(_) if !is_address => Ok(()),
            _ => Err(format!("{server_name:?} is not the name of a host")),
        }
    }

    fn url(&self, port: u16) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}:{port}", self.server_name)
    }
}

impl EndpointList {
    /// The token with which the API server continues the list; none at the end of the list.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|next| !next.is_empty())
    }
}

/// The daemons of several lists, and whether each is ready.
#[derive(Debug, Default)]
pub struct FoundEndpoints(BTreeMap<String, (bool, DaemonAddress)>);

impl FoundEndpoints {
    /// Adds the endpoints of a list. If a node has several endpoints, the ready one counts, else
    /// the first. A node has several in clusters with two kinds of addresses, and while pods are
    /// exchanged.
    pub fn add(&mut self, list: &EndpointList, names: &EndpointNames) {
        for slice in list
            .items
            .iter()
            .filter(|slice| slice.address_type != "FQDN")
        {
            let port = slice
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(&names.port));
            let Some(port) = port.and_then(|port| port.port) else {
                continue;
            };
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(address) = endpoint
                    .addresses
                    .first()
                    .and_then(|text| text.parse::<IpAddr>().ok())
                else {
                    continue;
                };
                let name = endpoint
                    .node_name
                    .clone()
                    .unwrap_or_else(|| address.to_string());
                let is_ready = endpoint.conditions.ready.unwrap_or(true);
                // A failure is not possible here: bad names have been refused, and the address is
                // valid.
                let Ok(server) = names.url(port).parse() else {
                    continue;
                };
                let daemon = DaemonAddress {
                    server,
                    at: Some(SocketAddr::new(address, port)),
                };
                match self.0.get(&name) {
                    Some((was_ready, _)) if *was_ready || !is_ready => {}
                    _ => {
                        self.0.insert(name, (is_ready, daemon));
                    }
                }
            }
        }
    }

    /// Returns the daemons by the names of their nodes.
    #[must_use]
    pub fn daemons(self) -> BTreeMap<String, DaemonAddress> {
        self.0
            .into_iter()
            .map(|(name, (_, address))| (name, address))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_has_one_daemon() {
        let names = EndpointNames {
            port: "api".into(),
            tls: false,
            server_name: "twinprobe.n.svc".into(),
        };
        let ready = |ready: bool| json!({ "ready": ready });
        let list = json!({ "items": [
            { "addressType": "IPv4", "ports": [{ "name": "metrics", "port": 9471 }, { "name": "api", "port": 9470 }],
              "endpoints": [
                { "addresses": ["192.0.2.1"], "nodeName": "a", "conditions": ready(false) },
                { "addresses": ["192.0.2.2"], "nodeName": "a", "conditions": ready(true) },
                { "addresses": ["192.0.2.3"], "nodeName": "a", "conditions": ready(false) },
                { "addresses": ["192.0.2.4"], "nodeName": "b", "conditions": {} },
                { "addresses": ["192.0.2.5"] },
              ] },
            { "addressType": "IPv6", "ports": [{ "name": "api", "port": 9470 }],
              "endpoints": [{ "addresses": ["2001:db8::4"], "nodeName": "b" }] },
            { "addressType": "IPv4", "ports": null, "endpoints": null },
        ] });
        let list: EndpointList = serde_json::from_value(list).unwrap();
        let mut found = FoundEndpoints::default();
        found.add(&list, &names);
        let found = found.daemons();
        let shown: Vec<String> = found
            .iter()
            .map(|(name, of)| format!("{name} {}", of.at.unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                "192.0.2.5 192.0.2.5:9470",
                "a 192.0.2.2:9470",
                "b 192.0.2.4:9470"
            ]
        );
        assert_eq!(found["a"].server.to_string(), "http://twinprobe.n.svc:9470");
    }
}
