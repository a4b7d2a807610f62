//! Links without an Ethernet header, of each kind that this kernel has. A probe that reads such a
//! header is refused; a probe that does not read one counts.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, Namespace, Topology, probes};

/// The kinds, and the names of their types in messages.
const KINDS: [(&str, &str); 6] = [
    ("tun", "none"),
    ("wireguard", "none"),
    ("ipip", "ipip"),
    ("gre", "gre"),
    ("sit", "sit"),
    ("ppp", "ppp"),
];
/// `PPPIOCNEWUNIT` of `linux/ppp-ioctl.h`.
const NEW_UNIT: libc::Ioctl = 0xc004_743e_u32 as libc::Ioctl;
static MARK: u32 = 7;
const PACKETS: u64 = 10;
const DATA: usize = 100;

/// A PPP interface without a peer. It exists as long as the file is open.
fn ppp(name: &str) -> Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .open("/dev/ppp")
        .context("/dev/ppp")?;
    let mut unit: libc::c_int = -1;
    // SAFETY: the pointer leads to a number.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), NEW_UNIT, &raw mut unit) };
    ensure!(
        made == 0,
        "PPPIOCNEWUNIT: {}",
        std::io::Error::last_os_error()
    );
    let renamed = Command::new("ip")
        .args(["link", "set", &format!("ppp{unit}"), "name", name])
        .status()?;
    ensure!(renamed.success(), "ip: {renamed}");
    Ok(file)
}

/// Makes an interface; it may disappear when the returned value is dropped.
fn make(namespace: &Namespace, kind: &str, name: &str) -> Result<Option<File>> {
    let ends = ["local", "10.9.9.1", "remote", "10.9.9.2"];
    match kind {
        "ppp" => return Ok(Some(namespace.enter(|| ppp(name))??)),
        "tun" => namespace.run("ip", &["tuntap", "add", name, "mode", "tun"])?,
        "wireguard" => namespace.run("ip", &["link", "add", name, "type", kind])?,
        _ => namespace.run(
            "ip",
            &[&["link", "add", name, "type", kind][..], &ends].concat(),
        )?,
    }
    Ok(None)
}

fn mark(socket: &UdpSocket) -> Result<()> {
    let (value, size) = (&raw const MARK, size_of::<u32>() as libc::socklen_t);
    // SAFETY: the option is a number, which the pointer leads to.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            value.cast(),
            size,
        )
    };
    ensure!(set == 0, "SO_MARK: {}", std::io::Error::last_os_error());
    Ok(())
}

#[test]
fn links_without_an_ethernet_header_are_refused_or_counted() -> Result<()> {
    let topology = Topology::new()?;
    let namespace = topology.monitor();
    let daemon = Daemon::start(namespace)?;
    // tests/kernels/run.sh says so of the guests.
    let all = std::env::var_os("TWINPROBE_ALL_LINKS").is_some();
    for (number, (kind, link_type)) in KINDS.into_iter().enumerate() {
        let name = format!("l-{kind}");
        let held = match make(namespace, kind, &name) {
            Err(error) if !all => {
                eprintln!("this kernel has no {kind}, which is not tried here: {error:#}");
                continue;
            }
            made => made.with_context(|| kind.to_owned())?,
        };
        let refused = daemon.put(
            "/v1/probes/packet-counter",
            &probes::configuration("packet-counter", &name)?,
        );
        let message = refused.expect(422).json()["errors"][0]["message"].to_string();
        let wanted = format!("{name} has no Ethernet header (type {link_type})");
        ensure!(message.contains(&wanted), "{message}");

        let status = daemon.put(
            "/v1/probes/conntrack-marks",
            &probes::configuration("conntrack-marks", &name)?,
        );
        let status = status.expect(201).json();
        ensure!(
            status["interfaces"][0]["approximate"].is_null(),
            "{}",
            status["interfaces"]
        );
        let (own, peer) = (format!("10.99.{number}.1"), format!("10.99.{number}.2"));
        namespace.run("ip", &["address", "add", &own, "peer", &peer, "dev", &name])?;
        namespace.run("ip", &["link", "set", &name, "up"])?;
        let socket = namespace.enter(|| UdpSocket::bind((own.as_str(), 0)))??;
        mark(&socket)?;
        for _ in 0..PACKETS {
            // The packet has no receiver, so the interface may return an error after the hook.
            let _ = socket.send_to(&[7; DATA], (peer.as_str(), 9));
        }
        let document = daemon.json("/v1/probes/conntrack-marks/metrics");
        let entries = document["egress"]["mark"]["entries"]
            .as_array()
            .context("entries")?;
        // Old kernels do not keep decl tags, so documents have no renderings.
        let is_ours = |key: &Value| *key == "0x00000007" || *key == MARK;
        let found = entries.iter().find(|entry| is_ours(&entry["key"]["mark"]));
        let value = &found.with_context(|| format!("{kind}: {document}"))?["value"];
        let bytes = PACKETS * (20 + 8 + DATA as u64);
        ensure!(
            *value == json!({ "packets_total": PACKETS, "bytes_total": bytes }),
            "{kind}: {value}, and {PACKETS} packets with {bytes} bytes were sent"
        );
        daemon.delete("/v1/probes/conntrack-marks").expect(204);
        drop(held);
    }
    Ok(())
}
