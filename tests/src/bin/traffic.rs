//! `traffic`: sends packets from the kernel into an interface, counted to the packet.
#![allow(missing_docs, reason = "a command; its documentation is --help")]

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, ValueEnum};
use twinprobe_tests::{
    Namespace,
    traffic::{
        DEFAULT_BATCH, Frame, FrameOptions, Generator, GeneratorOptions, Load, PacedSender,
        Protocol, Spread,
    },
};

/// The number of packets to send if neither a count nor a duration is given.
const DEFAULT_COUNT: u64 = 1_000_000;

/// Sends packets out of an interface by XDP on live frames. On a veth pair they arrive at the other
/// end, which must run native XDP or have GRO on (`ethtool -K IFACE gro on`). Default: the paper's
/// TCP SYNs of 60 bytes from 256 addresses and 97 ports each.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Interface to send out of
    #[arg(long)]
    interface: String,
    /// Namespace of the interface: a name of `ip netns` or a path
    #[arg(long)]
    netns: Option<String>,
    /// Packets to send, exactly; without --count and --duration 1,000,000
    #[arg(long)]
    count: Option<u64>,
    /// Seconds to send for
    #[arg(long)]
    duration: Option<f64>,
    /// Packets per second on average; default as many as possible
    #[arg(long)]
    rate: Option<u64>,
    /// Send by a socket, never more than 64 packets ahead of the other end: no packet is lost, even
    /// if the other end is slow
    #[arg(long, conflicts_with_all = ["duration", "rate", "batch", "cpu"])]
    paced: bool,
    /// Source addresses
    #[arg(long, default_value_t = 256)]
    addresses: u32,
    /// Source ports per address
    #[arg(long, default_value_t = 97)]
    ports: u32,
    /// First source address
    #[arg(long, default_value_t = Spread::default().base_address)]
    base_address: Ipv4Addr,
    /// First source port
    #[arg(long, default_value_t = 1024)]
    base_port: u16,
    /// Frames handed over at once, up to 256
    #[arg(long, default_value_t = DEFAULT_BATCH)]
    batch: u32,
    /// CPU to send from
    #[arg(long)]
    cpu: Option<usize>,
    /// Transport of the frame
    #[arg(long, value_enum, default_value = "tcp")]
    protocol: Transport,
    /// Bytes of the frame, without frame check sequence
    #[arg(long, default_value_t = 60)]
    length: usize,
    /// Destination address
    #[arg(long, default_value_t = FrameOptions::default().destination)]
    destination: Ipv4Addr,
    /// Destination Ethernet address
    #[arg(long, value_parser = parse_mac, default_value = "02:00:00:00:00:02")]
    destination_mac: Mac,
    /// Destination port
    #[arg(long, default_value_t = 80)]
    destination_port: u16,
    /// 802.1Q tag
    #[arg(long)]
    vlan: Option<u16>,
    /// IPv4 type of service
    #[arg(long, default_value_t = 0)]
    tos: u8,
    /// TCP flags; 2 is SYN
    #[arg(long, default_value_t = 2)]
    tcp_flags: u8,
    /// The frame in hexadecimal, from the Ethernet header on, instead of a generated one
    #[arg(long)]
    hex: Option<String>,
    /// File with the raw bytes of the frame, instead of --hex
    #[arg(long, conflicts_with = "hex")]
    file: Option<PathBuf>,
}

#[derive(Clone, Copy)]
struct Mac([u8; 6]);

fn parse_mac(text: &str) -> Result<Mac> {
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<Vec<_>, _>>()?;
    bytes
        .try_into()
        .map(Mac)
        .map_err(|_| anyhow!("an Ethernet address has six bytes"))
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    Tcp,
    Udp,
    Icmp,
}

impl From<Transport> for Protocol {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => Self::Tcp,
            Transport::Udp => Self::Udp,
            Transport::Icmp => Self::Icmp,
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let namespace = arguments
        .netns
        .as_deref()
        .map_or_else(Namespace::current, Namespace::open)?;
    let spread = Spread {
        addresses: arguments.addresses,
        ports: arguments.ports,
        base_address: arguments.base_address,
        base_port: arguments.base_port,
    };
    let (sent, time) = if arguments.paced {
        send_paced(&arguments, &namespace, spread)?
    } else {
        generate(&arguments, &namespace, spread)?
    };
    let seconds = time.as_secs_f64();
    println!(
        "{sent} packets in {seconds:.3} s, {:.3} Mpps",
        sent as f64 / seconds / 1e6
    );
    Ok(())
}

fn send_paced(
    arguments: &Arguments,
    namespace: &Namespace,
    spread: Spread,
) -> Result<(u64, Duration)> {
    let mut sender = PacedSender::new(namespace, &arguments.interface, frame(arguments)?, spread)?;
    let start = Instant::now();
    sender.send(arguments.count.unwrap_or(DEFAULT_COUNT))?;
    Ok((sender.sent(), start.elapsed()))
}

fn generate(
    arguments: &Arguments,
    namespace: &Namespace,
    spread: Spread,
) -> Result<(u64, Duration)> {
    let options = GeneratorOptions {
        frame: frame(arguments)?,
        spread,
        batch: arguments.batch,
        cpu: arguments.cpu,
    };
    let mut load = Load {
        count: arguments.count,
        rate: arguments.rate,
        ..Load::default()
    };
    if let Some(seconds) = arguments.duration {
        load.duration = Some(Duration::try_from_secs_f64(seconds).context("--duration")?);
    } else if load.count.is_none() {
        load.count = Some(DEFAULT_COUNT);
    }
    let generator = Generator::new(namespace, &arguments.interface, options)?;
    let start = Instant::now();
    let sent = generator.spawn(load).join()?;
    Ok((sent, start.elapsed()))
}

fn frame(arguments: &Arguments) -> Result<Frame> {
    if let Some(hex) = &arguments.hex {
        return Frame::from_bytes(decode_hex(hex)?);
    }
    if let Some(file) = &arguments.file {
        return Frame::from_bytes(
            std::fs::read(file).with_context(|| format!("read {}", file.display()))?,
        );
    }
    Frame::build(&FrameOptions {
        protocol: arguments.protocol.into(),
        length: arguments.length,
        vlan: arguments.vlan,
        destination_mac: arguments.destination_mac.0,
        destination: arguments.destination,
        destination_port: arguments.destination_port,
        tos: arguments.tos,
        tcp_flags: arguments.tcp_flags,
        ..FrameOptions::default()
    })
}

fn decode_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<char> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .collect();
    if !digits.len().is_multiple_of(2) {
        bail!("--hex has an odd number of digits");
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).context("--hex"))
        .collect()
}
