//! Tunnels of each kind that this kernel has. The kernel hands over their frames uncut, or joins
//! them before TC. The counts equal the traffic that the kernel's own TCP has sent, or the window
//! says that they are approximate.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::wire::{Connection, Traffic, pair, settled, switch_off};
use twinprobe_tests::{Daemon, Namespace, Topology, probes};

/// The interface below the tunnels, in both namespaces.
const BELOW: &str = "u0";
/// Few enough bytes for an emulated machine, and many for a packet.
const SENT: usize = 256 << 10;
const ATTEMPTS: usize = 10;

/// A kind of tunnel with IPv4 inside.
struct Kind {
    /// The words after `ip link add NAME`. OWN and FAR are the addresses of the ends.
    link: &'static str,
    /// The protocol of the packets outside, as `packet-counter` names it.
    protocol: &'static str,
    /// The bytes around each packet inside, from the Ethernet header on.
    around: u64,
    /// True if frames are inside.
    has_frames: bool,
}

const fn frames(link: &'static str, protocol: &'static str, around: u64) -> Kind {
    Kind {
        link,
        protocol,
        around: around + 14,
        has_frames: true,
    }
}

const fn packets(link: &'static str, protocol: &'static str, around: u64) -> Kind {
    Kind {
        link,
        protocol,
        around,
        has_frames: false,
    }
}

/// Ethernet with IPv4, and with IPv6.
const V4: u64 = 14 + 20;
const V6: u64 = 14 + 40;

const KINDS: [Kind; 12] = [
    frames(
        "vxlan id 77 local OWN4 remote FAR4 dstport 4789",
        "UDP",
        V4 + 16,
    ),
    frames(
        "vxlan id 77 local OWN6 remote FAR6 dstport 4789",
        "UDP",
        V6 + 16,
    ),
    frames("geneve id 77 remote FAR4", "UDP", V4 + 16),
    frames("geneve id 77 remote FAR6", "UDP", V6 + 16),
    frames("gretap local OWN4 remote FAR4", "GRE", V4 + 4),
    frames(
        "ip6gretap local OWN6 remote FAR6 encaplimit none",
        "GRE",
        V6 + 4,
    ),
    packets("gre local OWN4 remote FAR4", "GRE", V4 + 4),
    packets("gre local OWN4 remote FAR4 key 5", "GRE", V4 + 8),
    packets(
        "ip6gre local OWN6 remote FAR6 encaplimit none",
        "GRE",
        V6 + 4,
    ),
    packets("ipip local OWN4 remote FAR4", "IPIP", V4),
    packets(
        "ip6tnl mode ipip6 local OWN6 remote FAR6 encaplimit none",
        "IPIP",
        V6,
    ),
    // With an option after the IPv6 header that says how many tunnels may follow.
    packets("ip6tnl mode ipip6 local OWN6 remote FAR6", "IPIP", V6 + 8),
];

fn ip(namespace: &Namespace, arguments: &str) -> Result<()> {
    namespace.run("ip", &arguments.split(' ').collect::<Vec<_>>())
}

/// Prepares one end of the pair below; the other end has the other number.
fn below(namespace: &Namespace, number: u8) -> Result<()> {
    let far = 3 - number;
    let knob = format!("/proc/sys/net/ipv6/conf/{BELOW}/disable_ipv6");
    namespace.enter(|| std::fs::write(knob, "0"))??;
    ip(
        namespace,
        &format!("link set {BELOW} address 02:00:00:00:78:0{number} up"),
    )?;
    ip(
        namespace,
        &format!("address add 10.78.0.{number}/24 dev {BELOW}"),
    )?;
    ip(
        namespace,
        &format!("address add fd78::{number}/64 dev {BELOW} nodad"),
    )?;
    for address in [format!("10.78.0.{far}"), format!("fd78::{far}")] {
        let neighbour = format!("{address} lladdr 02:00:00:00:78:0{far} dev {BELOW} nud permanent");
        ip(namespace, &format!("neigh replace {neighbour}"))?;
    }
    Ok(())
}

/// Makes one end of a tunnel.
fn end(namespace: &Namespace, number: u8, kind: &Kind) -> Result<()> {
    let far = 3 - number;
    let mut link = kind.link.to_owned();
    for (name, number) in [("OWN", number), ("FAR", far)] {
        link = link.replace(&format!("{name}4"), &format!("10.78.0.{number}"));
        link = link.replace(&format!("{name}6"), &format!("fd78::{number}"));
    }
    ip(namespace, &format!("link add t0 type {link}"))?;
    ip(namespace, "link set t0 mtu 1400")?;
    if kind.has_frames {
        ip(
            namespace,
            &format!("link set t0 address 02:00:00:00:79:0{number}"),
        )?;
    }
    ip(namespace, "link set t0 up")?;
    ip(
        namespace,
        &format!("address add 10.79.0.{number}/24 dev t0"),
    )?;
    if kind.has_frames {
        let neighbour = format!("10.79.0.{far} lladdr 02:00:00:00:79:0{far} dev t0 nud permanent");
        ip(namespace, &format!("neigh replace {neighbour}"))?;
    }
    Ok(())
}

struct Scene {
    topology: Topology,
    daemon: Daemon,
    /// The packets at the hook, where several frames may be one packet.
    arrived: Counter,
}

impl Scene {
    /// If `cut` is true, frames are cut before they cross the pair, and the kernel joins them after
    /// the pair if it can. Else they cross it uncut.
    fn new(cut: bool) -> Result<Self> {
        let topology = Topology::new()?;
        let (near, far) = (topology.monitor(), topology.generator());
        pair(near, BELOW, far, BELOW)?;
        for (namespace, number) in [(near, 1), (far, 2)] {
            if cut {
                switch_off(namespace, BELOW)?;
                for feature in ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"] {
                    namespace.run("ethtool", &["-K", BELOW, feature, "off"])?;
                }
                // Only newer kernels join frames that cross a pair without XDP.
                namespace.run("ethtool", &["-K", BELOW, "gro", "on"])?;
            }
            below(namespace, number)?;
        }
        let daemon = Daemon::start(near)?;
        let mut config = probes::configuration("packet-counter", BELOW)?;
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
        let arrived = Counter::attach(near, BELOW, Place::TcIngress)?;
        Ok(Self {
            topology,
            daemon,
            arrived,
        })
    }

    /// Takes the counts of this protocol since the last call, and the reasons of possible errors.
    fn take(&self, protocol: &str) -> ([Traffic; 2], Value) {
        let document = self.daemon.json("/v1/probes/packet-counter/metrics");
        let of = |direction: &str| {
            let entries =
                document[direction][format!("{direction}_protocols")]["entries"].as_array();
            let entry = entries
                .into_iter()
                .flatten()
                .find(|entry| entry["key"] == protocol);
            let number = |field: &str| {
                entry
                    .and_then(|entry| entry["value"][field].as_u64())
                    .unwrap_or_default()
            };
            Traffic {
                frames: number("packets"),
                bytes: number("bytes"),
            }
        };
        (
            ["ingress", "egress"].map(of),
            document["approximate"].clone(),
        )
    }

    /// Sends through the tunnel in both directions. Returns the packets that the daemon's side has
    /// received and sent.
    fn transfer(&self, open: &mut Vec<Connection>) -> Result<[Traffic; 2]> {
        let (near, far) = (self.topology.monitor(), self.topology.generator());
        let there = Connection::transfer(far, near, "10.79.0.1:0", SENT)?;
        let back = Connection::transfer(near, far, "10.79.0.2:0", SENT)?;
        let sent = settled(&there).and_then(|there| Ok((there, settled(&back)?)));
        open.extend([there, back]);
        let ((client, server), (near_client, far_server)) = sent?;
        Ok([client + far_server, server + near_client])
    }

    /// Sends until TCP has sent nothing twice, and compares. Returns the number of packets at the
    /// hook, and the number of their frames.
    fn try_kind(&self, kind: &Kind) -> Result<(u64, u64)> {
        let mut open = Vec::new();
        for attempt in 0.. {
            self.take(kind.protocol);
            let before = self.arrived.packets()?;
            let sent = match self.transfer(&mut open) {
                Ok(sent) => sent,
                Err(error) if attempt < ATTEMPTS => {
                    eprintln!("{error:#}; all is sent once more");
                    continue;
                }
                Err(error) => bail!(error),
            };
            let (counted, approximate) = self.take(kind.protocol);
            let wanted = sent.map(|sent| Traffic {
                bytes: sent.bytes - 14 * sent.frames,
                ..sent
            });
            let wanted = wanted.map(|inside| Traffic {
                bytes: inside.bytes + kind.around * inside.frames,
                ..inside
            });
            ensure!(
                counted == wanted || approximate.is_string(),
                "{counted:?} were counted, and {wanted:?} received and sent; approximate: {approximate}"
            );
            let packets = self.arrived.packets()? - before;
            let verdict = if counted == wanted {
                "exact"
            } else {
                "approximate"
            };
            eprintln!(
                "{}: {packets} packets for {} frames, {verdict}",
                kind.link, wanted[0].frames
            );
            return Ok((packets, wanted[0].frames));
        }
        bail!("nothing was sent")
    }
}

/// Returns the kinds of traffic with several frames in one packet at the hook.
fn each_kind(cut: bool) -> Result<Vec<&'static str>> {
    let scene = Scene::new(cut)?;
    let (near, far) = (scene.topology.monitor(), scene.topology.generator());
    // tests/kernels/run.sh says so of the guests.
    let all = std::env::var_os("TWINPROBE_ALL_LINKS").is_some();
    // 5.10 counts some bytes more for some tunnels over IPv6: docs/kernels.md.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let is_old = release.starts_with("5.");
    let mut merged = Vec::new();
    for kind in KINDS
        .iter()
        .filter(|kind| !(is_old && kind.link.contains("OWN6")))
    {
        let made = end(near, 1, kind).and_then(|()| end(far, 2, kind));
        if let Err(error) = made {
            ensure!(!all, "{}: {error:#}", kind.link);
            eprintln!(
                "this kernel has no {}, which is not tried here: {error:#}",
                kind.link
            );
            let _ = ip(near, "link del t0");
            continue;
        }
        let (packets, frames) = scene.try_kind(kind).with_context(|| kind.link)?;
        if packets < frames {
            merged.push(kind.link);
        }
        ip(near, "link del t0")?;
        ip(far, "link del t0")?;
    }
    Ok(merged)
}

#[test]
fn frames_in_tunnels_that_are_handed_over_uncut_count_as_on_the_wire() -> Result<()> {
    let merged = each_kind(false)?;
    ensure!(merged.contains(&KINDS[0].link), "{merged:?}");
    Ok(())
}

#[test]
fn frames_in_tunnels_that_are_put_together_count_as_on_the_wire() -> Result<()> {
    each_kind(true).map(drop)
}
