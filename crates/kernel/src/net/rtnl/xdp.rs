//! The XDP programs that are attached to an interface, by any owner.

use std::io;

use crate::net::rtnl::socket::{LINK_INFO, NetlinkSocket, Request, attributes, text, u32_at};

/// Attributes of `linux/if_link.h`: the id of the program in each mode.
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

/// The present state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    pub index: u32,
    pub name: String,
    pub mtu: u32,
    /// The modes and ids of the XDP programs.
    pub programs: Vec<(&'static str, u32)>,
    /// The index of the interface below (the device that a VLAN is on) and above (the bridge or
    /// bond that a port is in).
    lower: Option<u32>,
    master: Option<u32>,
}

impl Device {
    /// Tells whether this interface is directly on top of `below`.
    pub fn is_upper_of(&self, below: &Self) -> bool {
        // Each end of a veth pair reports the other end as the lower one.
        let is_peer = below.lower == Some(self.index);
        self.lower == Some(below.index) && !is_peer || below.master == Some(self.index)
    }
}

impl NetlinkSocket {
    pub fn devices(&mut self) -> io::Result<Vec<Device>> {
        self.ask(
            &Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_INFO]),
            device,
        )
    }

    /// Returns the interface with this index; `None` if it does not exist.
    pub fn device(&mut self, index: u32) -> io::Result<Option<Device>> {
        let mut body = [0; LINK_INFO];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        self.one_device(&Request::new(libc::RTM_GETLINK, 0, &body))
    }

    fn one_device(&mut self, request: &Request) -> io::Result<Option<Device>> {
        match self.ask(request, device) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            devices => Ok(devices?.pop()),
        }
    }
}

fn device(payload: &[u8]) -> Option<Device> {
    let mut device = Device {
        index: u32_at(payload, 4)?,
        ..Device::default()
    };
    let mut elsewhere = false;
    for (kind, value) in attributes(payload.get(LINK_INFO..)?) {
        match kind {
            libc::IFLA_IFNAME => device.name = text(value),
            libc::IFLA_MTU => device.mtu = u32_at(value, 0).unwrap_or_default(),
            libc::IFLA_LINK => device.lower = u32_at(value, 0),
            libc::IFLA_MASTER => device.master = u32_at(value, 0),
            libc::IFLA_XDP => {
                device
                    .programs
                    .extend(attributes(value).filter_map(|(kind, value)| {
                        let mode = match kind {
                            IFLA_XDP_DRV_PROG_ID => "native",
                            IFLA_XDP_SKB_PROG_ID => "generic",
                            IFLA_XDP_HW_PROG_ID => "offload",
                            _ => return None,
                        };
                        Some((mode, u32_at(value, 0)?))
                    }));
            }
            // The interface below is in another namespace, so its index means nothing in this one.
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            _ => {}
        }
    }
    device.lower = device.lower.filter(|_| !elsewhere);
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netns::Netns;
    use crate::net::netns::testing::Named;

    impl NetlinkSocket {
        /// Returns the interface of this name; `None` if it does not exist.
        pub fn device_by_name(&mut self, name: &str) -> io::Result<Option<Device>> {
            let name = [name.as_bytes(), b"\0"].concat();
            let request = Request::new(libc::RTM_GETLINK, 0, &[0; LINK_INFO]);
            self.one_device(&request.attribute(libc::IFLA_IFNAME, &name))
        }
    }

    #[test]
    fn devices_are_found_by_name_and_index() {
        let named = Named::new();
        named.ip("link add tpa type veth peer name tpb");
        named.ip("link add tpm type bridge");
        named.ip("link set dev tpa master tpm");
        let mut socket = NetlinkSocket::open(&Netns::open(&named.path()).unwrap()).unwrap();
        let mut find = |name| socket.device_by_name(name).unwrap();
        let (tpa, tpb, tpm) = (find("tpa"), find("tpb"), find("tpm"));
        assert_eq!(find("tpx"), None);
        let tpa = tpa.unwrap();
        assert_eq!(
            (tpa.name.as_str(), tpa.mtu, tpa.programs.len()),
            ("tpa", 1500, 0)
        );
        assert!(tpm.unwrap().is_upper_of(&tpa));
        let vlan = Device {
            index: 99,
            lower: Some(tpa.index),
            ..Device::default()
        };
        assert!(vlan.is_upper_of(&tpa));
        assert!(!tpa.is_upper_of(&tpb.unwrap()));
        assert_eq!(socket.device(tpa.index).unwrap(), Some(tpa));
        assert_eq!(socket.device(i32::MAX as u32).unwrap(), None);
        assert_eq!(socket.devices().unwrap().len(), 4);
    }
}
