//! Flow exporters of other projects, and bare counters in user space: their cost per packet.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use twinprobe_tests::measure::{Resident, processor_seconds};
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::traffic::{Load, Spread};
use twinprobe_tests::wait::wait_for;

use crate::frame::site::{LOADED, Site};
use crate::scenes::sender::Sender;

/// Packets per second at which no exporter loses any.
const RATE: u64 = 100_000;
/// The time for an exporter to start, and to handle the packets that have arrived.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time without use of a processor after which an exporter has handled everything. Some
/// exporters work only when timers expire.
const IDLE: Duration = Duration::from_millis(400);

/// A program by others that sees each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exporter {
    Softflowd,
    Pmacctd,
    Nfpcapd,
    Nprobe,
    /// A packet socket that only counts packets: an upper limit for exporters.
    PacketSocket,
    /// An AF_XDP socket that only counts packets. It alone gets the packets.
    XdpSocket,
}

/// The cost of an exporter.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds of processor time per packet, of all threads and processes of the exporter.
    pub ns: f64,
    pub resident_kib: u64,
    pub packets: u64,
    /// The exporter's own number of seen packets.
    pub seen: u64,
}

/// An exporter at work. A drop kills the process.
struct Running {
    child: Child,
    /// The time without use of a processor that shows the end of the work.
    idle: Duration,
    directory: TempDir,
}

impl Exporter {
    pub const ALL: [Self; 6] = [
        Self::Softflowd,
        Self::Pmacctd,
        Self::Nfpcapd,
        Self::Nprobe,
        Self::PacketSocket,
        Self::XdpSocket,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Softflowd => "softflowd",
            Self::Pmacctd => "pmacctd",
            Self::Nfpcapd => "nfpcapd",
            Self::Nprobe => "nProbe",
            Self::PacketSocket => "AF_PACKET counter",
            Self::XdpSocket => "AF_XDP counter (copies)",
        }
    }

    /// Tells whether it makes flows; a counter does not.
    pub const fn exports(self) -> bool {
        !matches!(self, Self::PacketSocket | Self::XdpSocket)
    }

    /// Measures the exporter with this many packets. `None` if the exporter is not installed.
    pub fn measure(self, site: &Site, packets: u64) -> Result<Option<Cost>> {
        let directory = tempfile::tempdir()?;
        let Some(mut running) = self.start(site, directory)? else {
            return Ok(None);
        };
        let mut generator = site.traffic(Spread::default())?;
        // The first packets make the exporter take its memory.
        generator.send(1_000)?;
        running.settle()?;
        let before = running.seconds()?;
        let load = Load {
            count: Some(packets),
            rate: Some(RATE),
            ..Load::default()
        };
        let sent = generator.spawn(load).join()?;
        ensure!(sent == packets, "{sent} packets");
        running.settle()?;
        let ns = 1e9 * (running.seconds()? - before) / packets as f64;
        let resident_kib = running
            .processes()?
            .into_iter()
            .filter_map(|pid| Resident::of(pid).ok())
            .map(|memory| memory.total_kib)
            .sum();
        let seen = running.end(self, site)?;
        Ok(Some(Cost {
            ns,
            resident_kib,
            packets: packets + 1_000,
            seen,
        }))
    }

    /// Sends this many packets as fast as possible, from the exporter's own CPU, until the exporter
    /// is idle again. Returns the million packets per processor second, counting the time of the
    /// exporter and of the kernel's sending and receiving. `None` if the exporter is not installed.
    pub fn flood(self, site: &Site, packets: u64) -> Result<Option<f64>> {
        let directory = tempfile::tempdir()?;
        let Some(mut running) = self.start(site, directory)? else {
            return Ok(None);
        };
        let mut sender = Sender::new(site, Spread::default())?;
        running.settle()?;
        let (before, begun) = (sender.sent, running.seconds()?);
        let sending = sender.send(packets)?;
        running.settle()?;
        let seconds = sending + running.seconds()? - begun;
        let seen = running.end(self, site)?.saturating_sub(before);
        ensure!(
            seen > 0,
            "{} has seen nothing of {packets} packets",
            self.name()
        );
        Ok(Some(seen as f64 / seconds / 1e6))
    }

    fn start(self, site: &Site, directory: TempDir) -> Result<Option<Running>> {
        let path = |name: &str| directory.path().join(name).display().to_string();
        let interface = site.interface();
        let command: Vec<String> = match self {
            // Flows are dropped: the port has no listener.
            Self::Softflowd => format!(
                "softflowd -d -i {interface} -m 65536 -v 9 -n 127.0.0.1:9995 -c {} -p {}",
                path("control"),
                path("pid")
            ),
            Self::Pmacctd => format!(
                "pmacctd -i {interface} -P print -c src_host,dst_host,src_port,dst_port,proto -r 3600 -O csv -o {}",
                path("flows.csv")
            ),
            Self::Nfpcapd => {
                fs::create_dir(directory.path().join("flows"))?;
                format!("nfpcapd -i {interface} -w {} -t 3600", path("flows"))
            }
            Self::Nprobe => format!("nprobe -i {interface} -n none -b 1"),
            Self::PacketSocket | Self::XdpSocket => {
                let program = path("count_packets");
                compile("count_packets.c", &program)?;
                let way = if self == Self::XdpSocket { "xdp" } else { "packet" };
                format!("{program} {way} {interface}")
            }
        }
        .split(' ')
        .map(str::to_owned)
        .collect();
        let said = File::create(directory.path().join("said"))?;
        let started = site.topology.monitor().enter(|| {
            // The process ends with the thread that starts it.
            pin_to_cpu(LOADED)?;
            Command::new(&command[0])
                .args(&command[1..])
                .env("PATH", search_path())
                .current_dir(directory.path())
                .stdin(Stdio::null())
                .stdout(said.try_clone()?)
                .stderr(said)
                .spawn()
        })?;
        let child = match started {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            started => started.with_context(|| format!("start {}", self.name()))?,
        };
        // A counter has no timers, and nothing to do later.
        let idle = if self.exports() { IDLE } else { IDLE / 4 };
        let running = Running {
            child,
            idle,
            directory,
        };
        // A packet socket shows that the exporter listens.
        wait_for("a packet socket", PATIENCE, || {
            if !self.exports() {
                let said = running.said()?;
                ensure!(said.contains("ready"), "{said}");
                return Ok(());
            }
            let sockets = site
                .topology
                .monitor()
                .output("cat", &["/proc/thread-self/net/packet"])?;
            ensure!(sockets.lines().count() > 1, "{}", running.said()?);
            Ok(())
        })?;
        Ok(Some(running))
    }
}

impl Running {
    fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("said"))?)
    }

    /// Returns its processes: itself and its children.
    fn processes(&self) -> Result<Vec<u32>> {
        let pid = self.child.id();
        let mut processes = vec![pid];
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            processes.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        Ok(processes)
    }

    fn seconds(&self) -> Result<f64> {
        self.processes()?.into_iter().map(processor_seconds).sum()
    }

    /// Waits until the exporter has handled everything. Returns the time at which that was so.
    fn settle(&mut self) -> Result<Instant> {
        let limit = Instant::now() + PATIENCE;
        let (mut used, mut since) = (self.seconds()?, Instant::now());
        while since.elapsed() < self.idle && Instant::now() < limit {
            thread::sleep(self.idle / 8);
            let now = self.seconds()?;
            // Timers alone use less than a millisecond.
            if now > used + 0.001 {
                (used, since) = (now, Instant::now());
            }
        }
        Ok(since)
    }

    /// Ends the exporter, and returns its number of packets.
    fn end(mut self, exporter: Exporter, site: &Site) -> Result<u64> {
        let directory = self.directory.path().to_owned();
        if exporter == Exporter::Softflowd {
            let control = directory.join("control").display().to_string();
            let text = site
                .topology
                .monitor()
                .output("softflowctl", &["-c", &control, "statistics"])?;
            return number_behind(&text, "Packets processed: ").context("softflowd's statistics");
        }
        let status = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status()?;
        ensure!(status.success(), "kill: {status}");
        self.child.wait()?;
        let label = match exporter {
            Exporter::Nfpcapd => Some("Total: Processed: "),
            Exporter::Nprobe => Some("Processed packets: "),
            Exporter::PacketSocket | Exporter::XdpSocket => Some("seen "),
            Exporter::Softflowd | Exporter::Pmacctd => None,
        };
        if let Some(label) = label {
            let said = self.said()?;
            return number_behind(&said, label)
                .with_context(|| format!("no \"{label}\" in {said:?}"));
        }
        // A process of pmacctd writes the flows after the end of the first process, and gives no
        // sign at its own end.
        let file = directory.join("flows.csv");
        let mut last = wait_for("pmacctd's flows", PATIENCE, || packets_of(&file))?;
        loop {
            thread::sleep(IDLE);
            let now = packets_of(&file)?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for pid in self.processes().unwrap_or_default() {
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.wait();
    }
}

/// Returns the directories that are searched for programs: Debian keeps some where an ordinary
/// user's PATH does not look.
pub fn search_path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

/// Compiles a program of `peers/` that uses libbpf.
pub fn compile(source: &str, program: &str) -> Result<()> {
    let source = format!("{}/peers/{source}", env!("CARGO_MANIFEST_DIR"));
    let arguments = [
        "-O2", "-Wall", "-o", program, &source, "-lbpf", "-lelf", "-lz",
    ];
    let output = Command::new("cc")
        .args(arguments)
        .output()
        .context("start cc")?;
    ensure!(
        output.status.success(),
        "cc: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn number_behind(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.split_once(label)?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Returns the sum of the second last column, the packets.
fn packets_of(file: &Path) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let rows = text
        .lines()
        .skip(1)
        .filter_map(|line| line.rsplit(',').nth(1)?.parse::<u64>().ok());
    let sum = rows.sum();
    ensure!(sum > 0, "no flows yet");
    Ok(sum)
}
