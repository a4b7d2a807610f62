//! The addresses in keys, for the names of their owners.

use std::net::{IpAddr, Ipv6Addr};

use twinprobe_ebpf_common::Layout;
use twinprobe_ebpf_common::field::plan::{FieldPlan, Plan};
use twinprobe_ebpf_common::window::owner::{AddressOwner, OwnersAt, WHOLE_KEY};

/// The places of addresses in a key: the key itself, or members of it.
#[derive(Debug, Default)]
pub struct KeyAddresses(Vec<AddressPlace>);

#[derive(Debug)]
struct AddressPlace {
    /// The name of the member.
    name: String,
    offset: usize,
    is_ipv4: bool,
}

impl KeyAddresses {
    pub fn new(key: &Layout) -> Self {
        let place = |name: &str, offset, plan: &Plan<String>| {
            let is_ipv4 = match plan {
                Plan::Ipv4 => true,
                Plan::Ip => false,
                _ => return None,
            };
            Some(AddressPlace {
                name: name.to_owned(),
                offset,
                is_ipv4,
            })
        };
        Self(match Plan::new(key, str::to_owned) {
            Plan::Struct(fields) => {
                let member =
                    |FieldPlan {
                         label,
                         offset,
                         plan,
                         ..
                     }: &FieldPlan<String>| { place(label, *offset, plan) };
                fields.iter().filter_map(member).collect()
            }
            plan => place(WHOLE_KEY, 0, &plan).into_iter().collect(),
        })
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the members of a key whose addresses have owners, and the owners.
    pub fn owners<'a>(
        &'a self,
        key: &[u8],
        owners: &'a OwnersAt,
    ) -> impl Iterator<Item = (&'a str, &'a AddressOwner)> {
        self.0
            .iter()
            .filter_map(|place| Some((&*place.name, owners.of(place.address(key)?)?)))
    }
}

impl AddressPlace {
    fn address(&self, key: &[u8]) -> Option<IpAddr> {
        let bytes = key.get(self.offset..)?;
        if self.is_ipv4 {
            return bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes));
        }
        bytes
            .first_chunk::<16>()
            .map(|bytes| Ipv6Addr::from(*bytes).to_canonical())
    }
}
