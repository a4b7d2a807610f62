//! Consumers of other projects, in separate processes.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::measure::processor_seconds;

use super::consumer::{Consumer, Mode, Outcome};
use super::ours::discard;
use super::stand::{LENGTH, Load, Stand, at_rest};
use super::tool::{Shape, Tool};

/// A mount namespace of its own: the kernel's list of tracepoints is not mounted everywhere.
const TRACEFS: &str = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace \"$@\"";

pub fn bcc_is_here() -> bool {
    let mut python = Command::new("/usr/bin/python3");
    python
        .args(["-c", "import bcc"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the command of the consumer by BCC, without its arguments.
pub fn bcc_command() -> Command {
    // Debian's Python, which has Debian's packages.
    let mut python = Command::new("/usr/bin/python3");
    python.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/peers/consume_by_bcc.py"
    ));
    python
}

pub fn bpftrace_works() -> bool {
    let output = bpftrace_command(
        4096,
        "BEGIN { exit(); } tracepoint:net:netif_receive_skb { }",
    )
    .output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs a consumer of a pinned ring.
pub fn by_pin(
    stand: &Stand,
    consumer: Consumer,
    tool: Tool,
    load: Load,
    mode: Mode,
) -> Result<Outcome> {
    let attached = tool.attach(stand.topology.monitor())?;
    let mode = match (consumer, mode) {
        (Consumer::LibbpfJson, _) => "json",
        (_, Mode::Count) => "count",
        (_, Mode::Check) => "check",
    };
    let mut command = match consumer {
        Consumer::Aya => {
            let mut this = Command::new(std::env::current_exe()?);
            this.arg("--aya-consumer");
            this
        }
        Consumer::Bcc => bcc_command(),
        _ => Command::new(&stand.consumer),
    };
    command.arg(attached.pin("events")).arg(mode);
    let mut process = Process::start(command)?;
    let drain = discard(process.child.0.stdout.take().context("stdout")?);
    let sent = stand.send(load)?;
    process.signal("TERM")?;
    let said: Value = serde_json::from_str(&process.line()?)?;
    process.wait()?;
    // The thread ends with the output.
    let _ = drain.join();
    let [events, lost] = attached.produced()?;
    let number = |name: &str| {
        said[name]
            .as_u64()
            .with_context(|| format!("no {name}: {said}"))
    };
    Ok(Outcome {
        sent,
        events,
        lost,
        missed: 0,
        delivered: number("delivered")?,
        gaps: number("gaps")?,
        disordered: number("disordered")?,
        damaged: number("damaged")?,
        cpu: number("cpu")? as f64,
        latency: [number("median")?, number("late")?],
    })
}

fn bpftrace_command(ring: u32, script: &str) -> Command {
    let mut command = Command::new("unshare");
    // The number of pages of each CPU's ring.
    command.env("BPFTRACE_PERF_RB_PAGES", (ring / 4096).to_string());
    command
        .args(["-m", "sh", "-c", TRACEFS, "sh", "-e", script])
        .stderr(Stdio::null());
    command
}

/// Runs bpftrace, which can't be attached at XDP or TC, at the tracepoint before TC. It writes as
/// many bytes for an event, prints them as text, and numbers events itself; a program at TC ends
/// the packets' way as with the others.
pub fn bpftrace(stand: &Stand, tool: Tool, load: Load) -> Result<Outcome> {
    let quiet = Tool {
        shape: Shape::Syscount,
        ..tool
    };
    let _attached = quiet.attach(stand.topology.monitor())?;
    let filter = match tool.interval {
        0 => String::new(),
        _ => "&& nsecs >= @due".into(),
    };
    // Ids, lengths and numbers take 44 bytes.
    let script = format!(
        "tracepoint:net:netif_receive_skb /args->len == {} {filter}/ {{ @due = nsecs + {}; \
         printf(\"event %llu %llu %d %r\\n\", @events, nsecs, cpu, buf(((struct sk_buff *)args->skbaddr)->data, 112)); \
         @events++; }} interval:ms:50 {{ printf(\"tick\\n\"); }}",
        LENGTH - 14,
        tool.interval
    );
    let mut command = bpftrace_command(tool.ring, &script);
    command.stdout(Stdio::piped());
    let mut child = Ended(command.spawn().context("start bpftrace")?);
    let pid = child.0.id();
    let mut lines = BufReader::new(child.0.stdout.take().context("stdout")?).split(b'\n');
    // Probes are attached in the order of the script.
    for line in lines.by_ref() {
        if line? == b"tick" {
            break;
        }
    }
    let reader = std::thread::spawn(move || -> Result<Outcome> {
        let (mut outcome, mut next) = (Outcome::default(), 0);
        for line in lines {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            let mut words = text.split_whitespace();
            match words.next() {
                Some("event") => {
                    let serial: u64 = words.next().context("a number")?.parse()?;
                    outcome.delivered += 1;
                    outcome.disordered += u64::from(serial < next);
                    outcome.gaps += serial.saturating_sub(next);
                    next = serial + 1;
                }
                Some("@events:") => outcome.events = words.next().context("a count")?.parse()?,
                _ => {}
            }
        }
        Ok(outcome)
    });
    let before = processor_seconds(pid)?;
    let sent = stand.send(load)?;
    let cpu = 1e9 * (at_rest(pid)? - before);
    signal(pid, "INT")?;
    let mut outcome = reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    // Events missing in the output were lost: bpftrace reports them on its standard error, for each
    // reading of a ring.
    outcome.lost = outcome.events.saturating_sub(outcome.delivered);
    Ok(Outcome {
        sent,
        cpu,
        ..outcome
    })
}

/// A child that reports its steps on its standard error.
#[derive(Debug)]
pub struct Process {
    child: Ended,
    messages: Lines<BufReader<ChildStderr>>,
}

impl Process {
    /// Starts the child and waits until it is ready.
    pub fn start(mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("start {:?}", command.get_program()))?;
        let messages = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let mut process = Self {
            child: Ended(child),
            messages,
        };
        let first = process.line()?;
        ensure!(first == "ready", "{:?}: {first}", command.get_program());
        Ok(process)
    }

    /// Returns the next line that it says.
    pub fn line(&mut self) -> Result<String> {
        self.messages
            .next()
            .transpose()?
            .context("a consumer has ended")
    }

    /// Asks for something, and returns the answer.
    pub fn ask(&mut self) -> Result<Value> {
        writeln!(self.child.0.stdin.as_mut().context("stdin")?)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    pub fn signal(&self, name: &str) -> Result<()> {
        signal(self.child.0.id(), name)
    }

    pub fn wait(&mut self) -> Result<()> {
        let status = self.child.0.wait()?;
        ensure!(status.success(), "a consumer failed: {status}");
        Ok(())
    }
}

/// A child that ends with this value.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(pid: u32, name: &str) -> Result<()> {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()?;
    ensure!(status.success(), "kill: {status}");
    Ok(())
}
