//! Packets that stand for several frames, in tunnels that this kernel need not know: a tap device
//! hands them over as a virtual machine does, and a packet socket sends them. All headers of all
//! frames count, or the document says that they do not.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology, probes};

const TAP: &str = "tap7";
/// `TUNSETIFF` of `linux/if_tun.h`, and its flags: Ethernet, nothing in front, a `struct
/// virtio_net_hdr` in front.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const FLAGS: libc::c_short = 0x0002 | 0x1000 | 0x4000;

const FRAMES: u64 = 5;
const SIZE: u16 = 1000;

/// The headers in front of an IPv4 packet of TCP, without lengths: the name, the EtherType, and the
/// bytes that follow it.
fn cases() -> Vec<(&'static str, u16, Vec<Header>)> {
    use Header::{Ethernet, V4, V6};
    let raw = |bytes: &[u8]| Header::Raw(bytes.to_vec());
    let udp = |port: u16| Header::Udp(port);
    let geneve = [2, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 1, 0, 0, 0, 0];
    let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
    let options = [4, 0, 4, 1, 4, 1, 0, 0];
    vec![
        ("nothing", 0x800, vec![]),
        ("a VLAN tag", 0x8100, vec![raw(&[0, 100, 8, 0])]),
        ("GRE", 0x800, vec![V4(47), raw(&[0, 0, 8, 0])]),
        (
            "GRE with a key and a checksum",
            0x800,
            vec![V4(47), raw(&[0xa0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 7])],
        ),
        (
            "GRE with Ethernet",
            0x800,
            vec![V4(47), raw(&[0, 0, 0x65, 0x58]), Ethernet],
        ),
        ("GRE over IPv6", 0x86dd, vec![V6(47), raw(&[0, 0, 8, 0])]),
        (
            "IP in IPv6 with options",
            0x86dd,
            vec![V6(60), raw(&options)],
        ),
        ("IP in IP", 0x800, vec![V4(4)]),
        (
            "VXLAN over IPv6",
            0x86dd,
            vec![V6(17), udp(4789), raw(&vxlan), Ethernet],
        ),
        (
            "VXLAN-GPE",
            0x800,
            vec![V4(17), udp(4790), raw(&[12, 0, 0, 1, 0, 0, 7, 0])],
        ),
        (
            "Geneve with options",
            0x800,
            vec![V4(17), udp(6081), raw(&geneve), Ethernet],
        ),
        (
            "Geneve over IPv6",
            0x86dd,
            vec![V6(17), udp(6081), raw(&geneve), Ethernet],
        ),
        (
            "VXLAN in GRE",
            0x800,
            vec![
                V4(47),
                raw(&[0, 0, 8, 0]),
                V4(17),
                udp(4789),
                raw(&vxlan),
                Ethernet,
            ],
        ),
        ("FOU", 0x800, vec![V4(17), udp(5556)]),
        ("GUE", 0x800, vec![V4(17), udp(5555), raw(&[0, 4, 0, 0])]),
        (
            "GUE with options",
            0x86dd,
            vec![V6(17), udp(5555), raw(&[1, 4, 0, 0, 0, 0, 0, 0])],
        ),
        (
            "GRE in GUE",
            0x800,
            vec![V4(17), udp(5555), raw(&[0, 47, 0, 0, 0, 0, 8, 0])],
        ),
        ("MPLS", 0x8847, vec![raw(&[0, 6, 0x40, 64, 0, 6, 0x51, 64])]),
        (
            "MPLS in GRE",
            0x800,
            vec![V4(47), raw(&[0, 0, 0x88, 0x47, 0, 6, 0x51, 64])],
        ),
    ]
}

/// Returns packets with headers that can't all be known.
fn unknown() -> Vec<(&'static str, u16, Vec<Header>)> {
    use Header::V4;
    let raw = |bytes: &[u8]| Header::Raw(bytes.to_vec());
    vec![
        ("ESP", 0x800, vec![V4(50), raw(&[0, 0, 0, 1, 0, 0, 0, 1])]),
        (
            "GRE of a later version",
            0x800,
            vec![V4(47), raw(&[0, 7, 8, 0])],
        ),
        (
            "something in GRE",
            0x800,
            vec![V4(47), raw(&[0, 0, 0x12, 0x34, 1, 2, 3, 4])],
        ),
    ]
}

#[derive(Clone, Debug)]
enum Header {
    Raw(Vec<u8>),
    Ethernet,
    V4(u8),
    V6(u8),
    Udp(u16),
}

impl Header {
    /// Returns the bytes of the header of a packet with `behind` bytes after the header.
    fn bytes(&self, behind: usize) -> Vec<u8> {
        let length = |with: usize| (with as u16).to_be_bytes();
        match self {
            Self::Raw(bytes) => bytes.clone(),
            Self::Ethernet => vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0],
            Self::V4(protocol) => {
                let mut header = vec![0x45, 0];
                header.extend(length(20 + behind));
                header.extend([
                    0, 1, 0x40, 0, 64, *protocol, 0, 0, 10, 78, 0, 1, 10, 78, 0, 2,
                ]);
                header
            }
            Self::V6(protocol) => {
                let mut header = vec![0x60, 0, 0, 0];
                header.extend(length(behind));
                header.extend([*protocol, 64]);
                header.extend([[0xfd, 0x78, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1]].concat());
                header.extend([[0xfd, 0x78, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 2]].concat());
                header
            }
            Self::Udp(port) => {
                let mut header = vec![0x1e, 0x61];
                header.extend(port.to_be_bytes());
                header.extend(length(8 + behind));
                header.extend([0, 0]);
                header
            }
        }
    }
}

/// Returns the packet after its `struct virtio_net_hdr`, and the bytes of all headers.
fn packet(ether_type: u16, headers: &[Header]) -> (Vec<u8>, u64) {
    let data = usize::from(SIZE) * FRAMES as usize;
    let mut packet = [
        4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 1, 0, 0, 0, 0,
    ]
    .to_vec();
    packet.resize(20 + data, 7);
    for header in [&Header::V4(6)].into_iter().chain(headers.iter().rev()) {
        packet = [header.bytes(packet.len()), packet].concat();
    }
    let ethernet = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    packet = [ethernet, ether_type.to_be_bytes().to_vec(), packet].concat();
    let around = packet.len() - data;
    // The fields say that a checksum is missing, that this is TCP over IPv4, the size of headers
    // and segments, and where the checksum is.
    let mut whole = vec![1, 1];
    whole.extend(
        [around as u16, SIZE, around as u16 - 20, 16]
            .map(u16::to_ne_bytes)
            .concat(),
    );
    whole.extend(packet);
    (whole, around as u64)
}

/// Makes the device in this thread's namespace. The device receives the packets that are written to
/// it.
fn tap() -> Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .context("/dev/net/tun")?;
    // SAFETY: a structure of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(TAP.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = FLAGS;
    // SAFETY: a live structure of the kind that is asked for.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    ensure!(made == 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    Ok(file)
}

struct Scene {
    daemon: Daemon,
    tap: File,
    socket: PacketSocket,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let near = topology.monitor();
        let tap = near.enter(tap)??;
        near.run("ip", &["link", "set", TAP, "up"])?;
        let daemon = Daemon::start(near)?;
        let mut config = probes::configuration("packet-counter", TAP)?;
        let ingress = config["ingress"].as_object_mut().context("an ingress")?;
        ingress.insert("hook".to_owned(), "tc".into());
        ingress.remove("mode");
        let status = daemon
            .put("/v1/probes/packet-counter", &config)
            .expect(201)
            .json();
        ensure!(
            status["interfaces"][0]["approximate"].is_null(),
            "{}",
            status["interfaces"]
        );
        let socket = near.enter(|| PacketSocket::uncut(TAP))??;
        Ok(Self {
            daemon,
            tap,
            socket,
            _topology: topology,
        })
    }

    /// Sends and receives a packet, and returns the window that has counted the packet.
    fn cross(&self, name: &str, packet: &[u8]) -> Result<Value> {
        let (mut tap, mut seen) = (&self.tap, Vec::new());
        tap.write_all(packet)
            .with_context(|| format!("{name} is received"))?;
        self.socket
            .send(packet)
            .with_context(|| format!("{name} is sent"))?;
        // A packet is at the hooks when the calls return, except for packets that the kernel
        // delays.
        wait_for("both directions have the packet", PATIENCE, || {
            seen.push(self.daemon.json("/v1/probes/packet-counter/metrics"));
            let both = ["ingress", "egress"]
                .iter()
                .all(|direction| sum(&seen, direction).0 > 0);
            ensure!(both, "{name}: {seen:?}");
            Ok(())
        })?;
        Ok(json!({
            "ingress": sum(&seen, "ingress"),
            "egress": sum(&seen, "egress"),
            "approximate": seen.iter().filter_map(|document| document["approximate"].as_str()).collect::<Vec<_>>(),
        }))
    }
}

/// The frames and bytes of several windows.
fn sum(windows: &[Value], direction: &str) -> (u64, u64) {
    let entries = windows.iter().flat_map(|window| {
        window[direction][format!("{direction}_protocols")]["entries"]
            .as_array()
            .into_iter()
            .flatten()
    });
    let of = |value: &Value, field: &str| value[field].as_u64().unwrap_or_default();
    entries.fold((0, 0), |(frames, bytes), entry| {
        (
            frames + of(&entry["value"], "packets"),
            bytes + of(&entry["value"], "bytes"),
        )
    })
}

#[test]
fn each_tunnel_that_is_known_is_counted_with_all_its_headers() -> Result<()> {
    let scene = Scene::new()?;
    for (name, ether_type, headers) in cases() {
        let (packet, around) = packet(ether_type, &headers);
        let found = scene.cross(name, &packet)?;
        let bytes = FRAMES * (around + u64::from(SIZE));
        let wanted =
            json!({ "ingress": [FRAMES, bytes], "egress": [FRAMES, bytes], "approximate": [] });
        ensure!(found == wanted, "{name}: {found}, and {wanted} were sent");
    }
    Ok(())
}

#[test]
fn a_tunnel_that_is_not_known_makes_its_window_approximate_and_no_other() -> Result<()> {
    let scene = Scene::new()?;
    for (name, ether_type, headers) in unknown() {
        let found = scene.cross(name, &packet(ether_type, &headers).0)?;
        let said = found["approximate"].to_string();
        for direction in ["ingress", "egress"] {
            ensure!(
                said.contains(&format!(
                    "{direction}: packets came that stand for several frames"
                )),
                "{name}: {found}"
            );
        }
        let page = scene.daemon.get("/metrics").expect(200).text().to_owned();
        ensure!(
            page.contains("twinprobe_approximate_info{probe=\"packet-counter\""),
            "{page}"
        );
        let (packet, _) = packet(0x800, &[]);
        let found = scene.cross("nothing", &packet)?;
        ensure!(found["approximate"] == json!([]), "behind {name}: {found}");
    }
    Ok(())
}
