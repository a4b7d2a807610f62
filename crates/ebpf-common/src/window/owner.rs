//! The owners of addresses, which documents show beside keys: pods and Services.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNames {
    pub namespace: String,
    pub pod: String,
    /// The workload that owns the pod: its kind, `/` and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

impl PodNames {
    /// Returns the names of the fields with their values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let workload = self
            .workload
            .as_deref()
            .map(|workload| ("workload", workload));
        [("namespace", &*self.namespace), ("pod", &self.pod)]
            .into_iter()
            .chain(workload)
    }
}

/// The pod or Service that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressOwner {
    Pod(PodNames),
    /// A Service of the cluster, by its namespace and name.
    Service {
        namespace: String,
        service: String,
    },
}

/// The names of the fields that an owner may have.
pub const OWNER_FIELDS: [&str; 4] = ["namespace", "pod", "workload", "service"];

impl AddressOwner {
    /// Returns the fields with their values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let (pod, service) = match self {
            Self::Pod(pod) => (Some(pod.fields()), None),
            Self::Service { namespace, service } => (
                None,
                Some([("namespace", &**namespace), ("service", service)]),
            ),
        };
        pod.into_iter()
            .flatten()
            .chain(service.into_iter().flatten())
    }
}

/// The name under which a key that is itself an address has its owner.
pub const WHOLE_KEY: &str = "key";

/// The owners of each address, each with the time since which it has owned the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressOwners(pub HashMap<IpAddr, Vec<OwnedSince>>);

/// An owner of an address, until the next owner has the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedSince {
    /// The beginning of the ownership, in nanoseconds since the Unix epoch.
    pub since: i128,
    pub owner: Arc<AddressOwner>,
}

/// The owners of addresses at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnersAt {
    pub owners: Arc<AddressOwners>,
    /// Nanoseconds since the Unix epoch.
    pub time: i128,
}

impl OwnersAt {
    /// Returns the owner of an address at that time.
    pub fn of(&self, address: IpAddr) -> Option<&AddressOwner> {
        let owned = self
            .owners
            .0
            .get(&address)?
            .iter()
            .rfind(|owned| owned.since <= self.time)?;
        Some(&owned.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_last_owner_before_the_time() {
        let address: IpAddr = "10.1.0.7".parse().unwrap();
        let owner = |name: &str| {
            let pod = PodNames {
                namespace: "shop".into(),
                pod: name.into(),
                workload: None,
            };
            Arc::new(AddressOwner::Pod(pod))
        };
        let both = [(10, "a"), (20, "b")].map(|(since, name)| OwnedSince {
            since,
            owner: owner(name),
        });
        let owners = Arc::new(AddressOwners([(address, both.into())].into()));
        let at = |time| {
            let at = OwnersAt {
                owners: Arc::clone(&owners),
                time,
            };
            at.of(address)
                .map(|owner| owner.fields().nth(1).unwrap().1.to_owned())
        };
        assert_eq!(
            [9, 10, 19, 20].map(at),
            [None, Some("a".into()), Some("a".into()), Some("b".into())]
        );
    }
}
