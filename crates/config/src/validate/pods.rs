//! The rules of the table of a node's pods.

use std::collections::BTreeSet;

use twinprobe_api::{PodTable, ServiceEntry};
use twinprobe_ebpf_common::finding::Rejection;

use crate::validate::findings::{ENTRIES_LIMIT, Findings};
use crate::validate::names::quote;

/// The longest names of Kubernetes, and the longest identity of a pod, in bytes.
const NAME: usize = 253;
const UID: usize = 64;
/// The most labels of a pod or of a namespace.
const LABELS: usize = 256;

/// The most Services of a cluster, and the most addresses of each: one address of each version of
/// IP.
const SERVICES: usize = 4_096;
const ADDRESSES: usize = 2;

/// Checks a table of pods, and reports all mistakes at once.
pub fn check_pods(table: &PodTable) -> Result<(), Rejection> {
    let mut findings = Findings::default();
    let pods = table.pods.len();
    if pods > ENTRIES_LIMIT {
        findings.add(
            "pods",
            format!("{pods} pods are too many; the limit is {ENTRIES_LIMIT}"),
        );
        return findings.refuse();
    }
    check_services(&table.services, &mut findings);
    let mut uids = BTreeSet::new();
    for (at, pod) in table.pods.iter().enumerate() {
        let field = |name: &str| format!("pods[{at}].{name}");
        let uid = &pod.uid;
        let is_uid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=UID).contains(&uid.len()) || !uid.bytes().all(is_uid) {
            let quoted = quote(uid);
            findings.add(
                field("uid"),
                format!("{quoted} can't be a uid; 1 to {UID} letters, digits and '-' are allowed"),
            );
        } else if !uids.insert(uid) {
            findings.add(field("uid"), format!("{} is listed twice", quote(uid)));
        }
        let kind = pod
            .workload
            .iter()
            .flat_map(|of| [("workload.kind", &of.kind), ("workload.name", &of.name)]);
        for (name, value) in [("namespace", &pod.namespace), ("name", &pod.name)]
            .into_iter()
            .chain(kind)
        {
            check_name(value, field(name), &mut findings);
        }
        for (name, labels) in [
            ("labels", &pod.labels),
            ("namespace_labels", &pod.namespace_labels),
        ] {
            if labels.len() > LABELS {
                let message = format!(
                    "{} labels are too many; the limit is {LABELS}",
                    labels.len()
                );
                findings.add(field(name), message);
            }
        }
    }
    findings.refuse()
}

fn check_services(services: &[ServiceEntry], findings: &mut Findings) {
    if services.len() > SERVICES {
        let number = services.len();
        findings.add(
            "services",
            format!("{number} services are too many; the limit is {SERVICES}"),
        );
        return;
    }
    for (at, service) in services.iter().enumerate() {
        let field = |name: &str| format!("services[{at}].{name}");
        check_name(&service.namespace, field("namespace"), findings);
        check_name(&service.name, field("name"), findings);
        let number = service.addresses.len();
        if number > ADDRESSES {
            let message = format!("{number} addresses are too many; the limit is {ADDRESSES}");
            findings.add(field("addresses"), message);
        }
    }
}

fn check_name(name: &str, field: String, findings: &mut Findings) {
    if !(1..=NAME).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        let quoted = quote(name);
        let message = format!(
            "{quoted} can't be a name; 1 to {NAME} bytes of ASCII without white space are allowed"
        );
        findings.add(field, message);
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_api::{PodEntry, Workload};

    use super::*;

    fn pod(uid: &str) -> PodEntry {
        let (uid, namespace, name) = (uid.to_owned(), "blue".to_owned(), "web-1".to_owned());
        PodEntry {
            uid,
            namespace,
            name,
            ..PodEntry::default()
        }
    }

    fn service(name: &str, addresses: usize) -> ServiceEntry {
        let addresses = vec!["10.96.0.7".parse().unwrap(); addresses];
        ServiceEntry {
            namespace: "blue".to_owned(),
            name: name.to_owned(),
            addresses,
        }
    }

    fn said(pods: Vec<PodEntry>) -> Vec<(String, String)> {
        refused(&PodTable {
            pods,
            services: Vec::new(),
        })
    }

    fn refused(table: &PodTable) -> Vec<(String, String)> {
        let refused = check_pods(table).unwrap_err().findings;
        refused
            .into_iter()
            .map(|finding| (finding.field.unwrap(), finding.message))
            .collect()
    }

    #[test]
    fn every_mistake_of_a_table_is_named() {
        check_pods(&PodTable {
            pods: vec![pod("a-1"), pod("0123")],
            services: vec![service("web", 2)],
        })
        .unwrap();
        let workload = Some(Workload {
            kind: "Deployment".to_owned(),
            name: "a b".to_owned(),
        });
        let found = said(vec![
            pod("a"),
            pod("a"),
            pod("../x"),
            PodEntry {
                workload,
                name: String::new(),
                ..pod("b")
            },
        ]);
        let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "pods[1].uid",
                "pods[2].uid",
                "pods[3].name",
                "pods[3].workload.name"
            ],
            "{found:?}"
        );
        assert!(found[0].1.contains("twice"));
        let table = |services| PodTable {
            pods: Vec::new(),
            services,
        };
        let found = refused(&table(vec![service("a b", 1), service("web", 3)]));
        let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            ["services[0].name", "services[1].addresses"],
            "{found:?}"
        );
        assert_eq!(
            refused(&table(vec![service("web", 1); SERVICES + 1]))[0].0,
            "services"
        );
        let many = (0..1025).map(|number| pod(&number.to_string())).collect();
        assert_eq!(said(many)[0].0, "pods");
    }
}
