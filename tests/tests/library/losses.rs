//! The probe `retransmissions` beside the kernel's own TCP, over a veth that loses packets: a round
//! trip is far shorter there than the milliseconds after which a late segment is usually taken for
//! a retransmission.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::sample::window;
use twinprobe_tests::{Daemon, Topology, timed};

use crate::expected::configuration;

/// One segment in this number is lost; [`SENT`] is the number of sent bytes.
const LOST: u32 = 53;
const SENT: usize = 8 << 20;

/// Drops one in [`LOST`] long packets and counts the dropped ones.
fn loses() -> String {
    format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
         struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, __u32); \
         __type(value, __u64); }} lost SEC(\".maps\");\n\
         SEC(\"xdp\") int lose(struct xdp_md *ctx)\n{{\n\
         \t__u32 dropped = 0, long_ones = 1;\n\
         \t__u64 *count = bpf_map_lookup_elem(&lost, &long_ones), *drops = bpf_map_lookup_elem(&lost, &dropped);\n\
         \tif (!count || !drops || ctx->data_end - ctx->data < 1000)\n\t\treturn XDP_PASS;\n\
         \t*count += 1;\n\tif (*count % {LOST})\n\t\treturn XDP_PASS;\n\
         \t*drops += 1;\n\treturn XDP_DROP;\n}}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"
    )
}

/// Sends data by TCP from one namespace to an address of the other one.
fn transfer(from: &Namespace, to: &Namespace) -> Result<()> {
    let listener = to.enter(|| TcpListener::bind("10.77.0.2:0"))??;
    let address = listener.local_addr()?;
    let receiver = thread::spawn(move || -> Result<usize> {
        let mut received = Vec::new();
        listener.accept()?.0.read_to_end(&mut received)?;
        Ok(received.len())
    });
    let mut stream = from.enter(|| TcpStream::connect(address))??;
    stream.write_all(&vec![7; SENT])?;
    drop(stream);
    let received = receiver.join().expect("the receiver does not panic")?;
    ensure!(received == SENT, "{received} of {SENT} bytes");
    Ok(())
}

/// Returns how many segments the TCP of a namespace has sent again.
fn sent_again(namespace: &Namespace) -> Result<u64> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (
        lines.next().context("names")?,
        lines.next().context("values")?,
    );
    let found = names
        .split(' ')
        .zip(values.split(' '))
        .find(|(name, _)| *name == "RetransSegs");
    Ok(found.context("RetransSegs")?.1.parse()?)
}

/// The counts after a transfer over a path that loses segments.
struct Counted {
    /// Segments that the path has dropped, and those that the sender has sent again.
    dropped: u64,
    sent_again: u64,
    /// The probe's numbers.
    segments: Value,
}

impl Counted {
    fn field(&self, name: &str) -> Result<u64> {
        self.segments[name]
            .as_u64()
            .with_context(|| format!("{name} in {}", self.segments))
    }
}

fn lose() -> Result<Counted> {
    let topology = Topology::new()?;
    let (near, far) = (topology.monitor(), topology.generator());
    for (namespace, interface, address) in [
        (far, "gen0", "10.77.0.1/24"),
        (near, "mon0", "10.77.0.2/24"),
    ] {
        namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
        namespace.run("ip", &["address", "add", address, "dev", interface])?;
        // Without offloads, each segment is one packet.
        namespace.run(
            "ethtool",
            &["-K", interface, "tso", "off", "gso", "off", "gro", "off"],
        )?;
    }
    // The number of segments in transit is smaller than the number of segments between two losses.
    // With a slow receiver, more gaps would be open than the probe remembers.
    near.run(
        "sysctl",
        &["-q", "-w", "net.ipv4.tcp_rmem=4096 65536 65536"],
    )?;
    let daemon = Daemon::start(near)?;
    let lost =
        json!({ "verdict": "enforce", "source": loses(), "metrics": [window("lost", "lost")] });
    daemon
        .put(
            "/v1/probes/lost",
            &json!({ "interface": "mon0", "ingress": lost }),
        )
        .expect(201);
    daemon
        .put(
            "/v1/probes/retransmissions",
            &configuration("retransmissions", "tc")?,
        )
        .expect(201);
    transfer(far, near)?;
    let document = daemon.get("/v1/probes/lost/metrics").expect(200).json();
    let dropped = document["ingress"]["lost"]["entries"][0]["value"]
        .as_u64()
        .context("drops")?;
    let document = daemon
        .get("/v1/probes/retransmissions/metrics")
        .expect(200)
        .json();
    let segments = document["ingress"]["tcp"]["entries"][0]["value"].clone();
    Ok(Counted {
        dropped,
        sent_again: sent_again(far)?,
        segments,
    })
}

#[test]
fn what_a_short_way_loses_was_sent_again() -> Result<()> {
    let counted = lose()?;
    let Counted {
        dropped,
        sent_again,
        segments,
    } = &counted;
    let late = counted.field("retransmitted_segments_total")?
        + counted.field("out_of_order_segments_total")?;
    // A dropped segment is sent again and may be dropped again. The second drop is not visible
    // here.
    ensure!(*dropped > 50, "{dropped} dropped");
    ensure!(
        (sent_again - dropped.min(sent_again)..=*sent_again).contains(&late),
        "{sent_again}: {segments}"
    );
    Ok(())
}

/// If the sender's clock has not advanced, the time of a segment on the way decides.
#[timed("a busy machine makes the time of a round trip longer")]
fn an_idle_receiver_takes_few_segments_for_overtaken_ones() -> Result<()> {
    let counted = lose()?;
    let Counted {
        dropped,
        sent_again,
        segments,
    } = &counted;
    // The sender also repeats segments that had arrived, if the receiver was slow to answer.
    let lost = counted.field("lost_before_segments_total")?;
    ensure!(lost * 10 >= counted.field("gaps_total")? * 9, "{segments}");
    let (again, overtaken) = (
        counted.field("retransmitted_segments_total")?,
        counted.field("out_of_order_segments_total")?,
    );
    ensure!(
        overtaken * 20 <= again,
        "{dropped} were dropped, {sent_again} sent again: {segments}"
    );
    Ok(())
}
