//! Flows as collectors and documents show them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use twinprobe_tests::named;
use twinprobe_tests::servers::tool;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/streams/ipfix/reading.py"
);
/// The interpreter for Debian's packages.
const PYTHON: &str = "/usr/bin/python3";

/// A process that is killed on drop.
pub struct Running(pub Child);

impl Running {
    pub fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The facts about a flow that every reader can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct SeenFlow {
    pub source: String,
    pub destination: String,
    pub ports: (u64, u64),
    pub protocol: u64,
    pub packets: u64,
    /// The number of octets of the IP packets.
    pub octets: u64,
    pub tos: u64,
    pub flags: u64,
    /// The times of the first and the last packet, to the millisecond.
    pub first: String,
    pub last: String,
}

/// Returns the flows of documents.
pub fn of_documents(documents: &[Value]) -> Result<Vec<SeenFlow>> {
    let mut found = Vec::new();
    for document in documents {
        for (table, family) in [("flows", "IPV4"), ("flows_ipv6", "IPV6")] {
            for entry in document["ingress"][table]["entries"]
                .as_array()
                .context("entries")?
            {
                let (key, value) = (&entry["key"], &entry["value"]);
                let number = |part: &Value, name: &str| {
                    named::number(&part[name]).with_context(|| format!("{name} in {entry}"))
                };
                let text = |part: &Value, name: &str| {
                    part[name]
                        .as_str()
                        .map(str::to_owned)
                        .with_context(|| format!("{name} in {entry}"))
                };
                found.push(SeenFlow {
                    source: text(key, &format!("{family}_SRC_ADDR"))?,
                    destination: text(key, &format!("{family}_DST_ADDR"))?,
                    ports: (number(key, "L4_SRC_PORT")?, number(key, "L4_DST_PORT")?),
                    protocol: number(key, "PROTOCOL")?,
                    packets: number(value, "IN_PKTS")?,
                    octets: number(value, "IN_OCTETS")?,
                    tos: number(value, "SRC_TOS")?,
                    flags: number(value, "TCP_FLAGS")?,
                    first: millisecond(&text(value, "FIRST_SWITCHED")?),
                    last: millisecond(&text(value, "LAST_SWITCHED")?),
                });
            }
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "documents without a flow");
    Ok(found)
}

/// `2026-11-26T21:00:00.123456789Z` as `2026-11-26 21:00:00.123`.
pub fn millisecond(time: &str) -> String {
    let time = time.trim_end_matches('Z').replace('T', " ");
    let (seconds, fraction) = time.split_once('.').unwrap_or((&time, ""));
    format!("{seconds}.{:0<3}", fraction.get(..3).unwrap_or(fraction))
}

/// Returns the records of these files, as python3-ipfix reads them.
pub fn by_python(files: &[PathBuf]) -> Result<Vec<Value>> {
    let output = Command::new(PYTHON)
        .arg(SCRIPT)
        .arg("read")
        .args(files)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let read: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(read["types"].as_u64() > Some(10), "{}", read["types"]);
    Ok(read["records"].as_array().context("records")?.clone())
}

/// Returns the flows that goflow2 finds in a file.
pub fn by_goflow2(file: &Path) -> Result<Vec<SeenFlow>> {
    let output = Command::new(tool("bin/goflow2")?).arg(file).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut found: Vec<SeenFlow> = serde_json::from_slice(&output.stdout)?;
    found.sort();
    Ok(found)
}

/// Starts a collector on this port. It keeps its messages in `directory`.
pub fn collector(port: u16, directory: &Path, tls: &[PathBuf]) -> Result<Running> {
    fs::create_dir_all(directory)?;
    let mut command = Command::new(PYTHON);
    command
        .arg(SCRIPT)
        .args(["collect", &port.to_string()])
        .arg(directory)
        .args(tls);
    Ok(Running(command.stdin(Stdio::null()).spawn()?))
}

/// The files of a collector, in the order of their connections.
pub fn collected(directory: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<BTreeSet<_>>>()?;
    Ok(files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "ipfix"))
        .collect())
}

/// Returns the flows among records of python3-ipfix.
pub fn flows_of(records: &[Value]) -> Result<Vec<SeenFlow>> {
    let mut found = Vec::new();
    for record in records
        .iter()
        .filter(|record| record.get("packetDeltaCount").is_some())
    {
        let number = |name: &str| {
            record[name]
                .as_u64()
                .with_context(|| format!("{name} in {record}"))
        };
        let text = |names: [&str; 2]| {
            let found = names.iter().find_map(|name| record[name].as_str());
            found
                .map(str::to_owned)
                .with_context(|| format!("{names:?} in {record}"))
        };
        found.push(SeenFlow {
            source: text(["sourceIPv4Address", "sourceIPv6Address"])?,
            destination: text(["destinationIPv4Address", "destinationIPv6Address"])?,
            ports: (
                number("sourceTransportPort")?,
                number("destinationTransportPort")?,
            ),
            protocol: number("protocolIdentifier")?,
            packets: number("packetDeltaCount")?,
            octets: number("octetDeltaCount")?,
            tos: number("ipClassOfService")?,
            flags: number("tcpControlBits")?,
            first: millisecond(&text(["flowStartMilliseconds"; 2])?),
            last: millisecond(&text(["flowEndMilliseconds"; 2])?),
        });
    }
    found.sort();
    Ok(found)
}

/// Returns the flows that nfdump finds in what nfcapd has written.
pub fn by_nfdump(directory: &Path) -> Result<Vec<SeenFlow>> {
    const FORMAT: &str = "fmt:%sa,%da,%sp,%dp,%pr,%pkt,%byt,%tos,%flg,%ts,%te";
    let mut command = Command::new("nfdump");
    command
        .env("TZ", "UTC")
        .args(["-6", "-N", "-q", "-o", FORMAT, "-R"])
        .arg(directory);
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut found = Vec::new();
    for line in String::from_utf8(output.stdout)?
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        let parts: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |at: usize| parts[at].parse::<u64>().with_context(|| line.to_owned());
        ensure!(parts.len() == 11, "{line}");
        // ICMP's type and code are there as TYPE.CODE.
        let port = match parts[3].split_once('.') {
            Some((kind, code)) => kind.parse::<u64>()? * 256 + code.parse::<u64>()?,
            None => number(3)?,
        };
        found.push(SeenFlow {
            source: parts[0].to_owned(),
            destination: parts[1].to_owned(),
            ports: (number(2)?, port),
            protocol: number(4)?,
            packets: number(5)?,
            octets: number(6)?,
            tos: number(7)?,
            flags: flags(parts[8]),
            first: parts[9].to_owned(),
            last: parts[10].to_owned(),
        });
    }
    found.sort();
    Ok(found)
}

/// nfdump writes flags as `...AP.SF`: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, or as a number.
fn flags(text: &str) -> u64 {
    if let Some(number) = text.strip_prefix("0x") {
        return u64::from_str_radix(number, 16).unwrap_or(u64::MAX);
    }
    text.bytes()
        .rev()
        .enumerate()
        .map(|(bit, letter)| u64::from(letter != b'.') << bit)
        .sum()
}
