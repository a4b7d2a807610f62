//! The work of an interface on packets that a probe can't see: its type, and its active offloads.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::net::netns::Netns;
use crate::net::rtnl::socket::{LINK_INFO, NetlinkSocket, Request, attributes, text, u32_at};

/// Types of links with an Ethernet header (`linux/if_arp.h`).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// Commands and constants of `linux/ethtool.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
/// The most features that a kernel may have; Linux 6.18 has 64.
const MOST_FEATURES: usize = 1024;

/// The attributes of `IFLA_XDP` with the program of generic XDP, and of `IFLA_LINKINFO` with the
/// kind of a device.
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_INFO_KIND: u16 = 1;

/// The offloads that change the packets for a probe. The names are the kernel's names, not the
/// shorter names of `ethtool -K`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// True if VLAN tags are taken out of received frames, by the card or by the interface that
    /// hands over the packet.
    pub takes_tags: bool,
    /// True if VLAN tags are put into sent frames, by the card or by the interface that takes over
    /// the packet.
    pub puts_tags: bool,
    /// True if the host sends TCP and UDP packets that are not yet divided into frames.
    pub segments: bool,
    pub gro: bool,
    pub lro: bool,
}

impl Features {
    fn of(is_on: impl Fn(&str) -> bool) -> Self {
        let any = |names: &[&str]| names.iter().any(|name| is_on(name));
        Self {
            takes_tags: any(&["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"]),
            puts_tags: any(&["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"]),
            segments: any(&[
                "tx-tcp-segmentation",
                "tx-tcp6-segmentation",
                "tx-udp-segmentation",
            ]),
            gro: any(&[
                "rx-gro",
                "rx-gro-hw",
                "rx-gro-list",
                "rx-udp-gro-forwarding",
            ]),
            lro: is_on("rx-lro"),
        }
    }
}

/// The present state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    pub name: String,
    /// The type of the link (`ARPHRD_...`).
    pub link_type: u16,
    /// The kind of a device that is not a network card: `veth`, `wireguard`, ...
    pub kind: Option<String>,
    /// True if generic XDP runs on the interface.
    pub generic_xdp: bool,
    /// The offloads; `None` if the kernel does not tell.
    pub features: Option<Features>,
    /// The other end of a veth pair, if it is in the same namespace: its name and its offloads.
    pub peer: Option<(String, Features)>,
    /// The index of the other end, if it is in the same namespace.
    pub peer_index: Option<u32>,
}

impl Offloads {
    pub const fn has_ethernet(&self) -> bool {
        matches!(self.link_type, ARPHRD_ETHER | ARPHRD_LOOPBACK)
    }

    pub const fn is_loopback(&self) -> bool {
        self.link_type == ARPHRD_LOOPBACK
    }

    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    /// Returns the name of the link's type, for messages.
    pub fn link_type_name(&self) -> String {
        let known = match self.link_type {
            0xfffe => "none",
            512 => "ppp",
            768 => "ipip",
            769 => "tunnel6",
            776 => "sit",
            778 => "gre",
            823 => "gre6",
            other => return format!("{other}"),
        };
        known.to_owned()
    }
}

/// Returns the interfaces with these indices that exist in the namespace.
pub fn offloads(netns: &Netns, indices: &[u32]) -> io::Result<BTreeMap<u32, Offloads>> {
    netns.run(|| here(indices))?
}

fn here(indices: &[u32]) -> io::Result<BTreeMap<u32, Offloads>> {
    let mut asked = OffloadSockets {
        links: NetlinkSocket::here()?,
        features: rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?,
    };
    let mut found = BTreeMap::new();
    for index in indices {
        if let Some(offloads) = asked.offloads(*index)? {
            found.insert(*index, offloads);
        }
    }
    Ok(found)
}

struct OffloadSockets {
    links: NetlinkSocket,
    features: OwnedFd,
}

impl OffloadSockets {
    fn offloads(&mut self, index: u32) -> io::Result<Option<Offloads>> {
        let Some((mut offloads, peer)) = self.link(index)? else {
            return Ok(None);
        };
        offloads.features = self.features(&offloads.name);
        let peer = peer.filter(|_| offloads.is_veth());
        offloads.peer_index = peer;
        if let Some((peer, _)) = peer.and_then(|peer| self.link(peer).ok().flatten()) {
            offloads.peer = self
                .features(&peer.name)
                .map(|features| (peer.name, features));
        }
        Ok(Some(offloads))
    }

    /// Returns the link without its features, and the index of the link below it, if that link is
    /// in this namespace.
    fn link(&mut self, index: u32) -> io::Result<Option<(Offloads, Option<u32>)>> {
        let mut body = [0; LINK_INFO];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        match self
            .links
            .ask(&Request::new(libc::RTM_GETLINK, 0, &body), link)
        {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            links => Ok(links?.pop()),
        }
    }

    /// Returns the features of the interface; `None` if the kernel does not tell them.
    fn features(&self, name: &str) -> Option<Features> {
        let names = names(&self.features, name)?;
        let words = names.len().div_ceil(32);
        let mut request = vec![0_u32; 2 + 4 * words];
        (request[0], request[1]) = (ETHTOOL_GFEATURES, words as u32);
        ethtool(&self.features, name, &mut request).ok()?;
        // Each 32 features have four words: available, requested, active, never changed.
        let is_on = |wanted: &str| {
            let place = names.iter().position(|known| known == wanted);
            place.is_some_and(|place| request[2 + place / 32 * 4 + 2] >> (place % 32) & 1 == 1)
        };
        Some(Features::of(is_on))
    }
}

fn link(payload: &[u8]) -> Option<(Offloads, Option<u32>)> {
    let link_type = u16::from_ne_bytes(payload.get(2..4)?.try_into().ok()?);
    let mut offloads = Offloads {
        link_type,
        ..Offloads::default()
    };
    let (mut below, mut elsewhere) = (None, false);
    for (kind, value) in attributes(payload.get(LINK_INFO..)?) {
        match kind {
            libc::IFLA_IFNAME => offloads.name = text(value),
            libc::IFLA_LINK => below = u32_at(value, 0),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_LINKINFO => {
                let kind = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                offloads.kind = kind.map(|(_, value)| text(value));
            }
            libc::IFLA_XDP => {
                offloads.generic_xdp =
                    attributes(value).any(|(kind, _)| kind == IFLA_XDP_SKB_PROG_ID);
            }
            _ => {}
        }
    }
    Some((offloads, below.filter(|_| !elsewhere)))
}

/// Returns the names of the kernel's features, in the order of their bits. The names are the same
/// for all interfaces.
fn names(socket: &OwnedFd, interface: &str) -> Option<&'static [String]> {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(names) = NAMES.get() {
        return Some(names);
    }
    let mut request = vec![ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
    ethtool(socket, interface, &mut request).ok()?;
    let count = request[4] as usize;
    if count == 0 || count > MOST_FEATURES {
        return None;
    }
    let mut request = vec![0_u32; 3 + count * ETH_GSTRING_LEN / 4];
    (request[0], request[1], request[2]) = (ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32);
    ethtool(socket, interface, &mut request).ok()?;
    let bytes: Vec<u8> = request[3..]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    Some(NAMES.get_or_init(|| bytes.chunks(ETH_GSTRING_LEN).map(text).collect()))
}

/// Queries an interface of this socket's namespace. `request` begins with the command, and has room
/// for the answer and the size of this room.
fn ethtool(socket: &OwnedFd, interface: &str, request: &mut [u32]) -> io::Result<()> {
    // SAFETY: all fields of the structure may be zero.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = CString::new(interface)?;
    let name = name.as_bytes_with_nul();
    if name.len() > asked.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in asked.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    asked.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // SAFETY: the structure names an interface, and points to a buffer that has room for as much as
    // it says.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut asked) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::net::interface;
    use crate::net::netns::testing::Named;

    fn of(named: &Named, name: &str) -> Offloads {
        let netns = Netns::open(&named.path()).unwrap();
        let index = interface::list(&netns).unwrap().by_name[name];
        offloads(&netns, &[index, 999_999])
            .unwrap()
            .remove(&index)
            .unwrap()
    }

    fn ethtool(named: &Named, arguments: &str) {
        let inside = format!("netns exec {} ethtool -K {arguments}", named.0);
        let output = Command::new("ip").args(inside.split(' ')).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    #[test]
    fn what_is_on_is_what_ethtool_has_set() {
        let named = Named::new();
        named.ip("link add tpa type veth peer name tpb");
        let found = of(&named, "tpa");
        assert!(
            found.is_veth() && found.has_ethernet() && !found.is_loopback() && !found.generic_xdp
        );
        let features = found.features.unwrap();
        assert!(
            features.takes_tags && features.puts_tags && features.segments,
            "{features:?}"
        );
        assert_eq!(
            found.peer.as_ref().map(|(name, _)| name.as_str()),
            Some("tpb")
        );

        ethtool(&named, "tpa rx-vlan-offload off gro on");
        ethtool(&named, "tpa rx-vlan-stag-hw-parse off");
        let features = of(&named, "tpa").features.unwrap();
        assert!(
            !features.takes_tags && features.puts_tags && features.gro,
            "{features:?}"
        );
        ethtool(&named, "tpa gro off tso off");
        ethtool(&named, "tpa tx-udp-segmentation off");
        let features = of(&named, "tpa").features.unwrap();
        assert!(!features.gro && !features.segments, "{features:?}");
        let (_, peer) = of(&named, "tpb").peer.unwrap();
        assert_eq!(peer, features);
    }

    #[test]
    fn types_of_links_are_told_apart() {
        let named = Named::new();
        let lo = of(&named, "lo");
        assert!(lo.is_loopback() && lo.has_ethernet() && lo.kind.is_none());
        // Emulated machines have no such device.
        if !std::path::Path::new("/dev/net/tun").exists() {
            return;
        }
        named.ip("tuntap add tpt mode tun");
        named.ip("tuntap add tpp mode tap");
        let (tun, tap) = (of(&named, "tpt"), of(&named, "tpp"));
        assert_eq!(
            (tun.has_ethernet(), tun.link_type_name().as_str()),
            (false, "none")
        );
        assert!(tap.has_ethernet(), "{tap:?}");
    }

    #[test]
    fn the_other_end_in_another_namespace_is_not_known() {
        let (here, there) = (Named::new(), Named::new());
        here.ip(&format!(
            "link add tpa type veth peer name tpb netns {}",
            there.0
        ));
        assert_eq!(of(&here, "tpa").peer, None);
    }
}
