//! Programs of other projects that are measured beside the daemon, if they are installed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::Namespace;

/// BCC in a process that continues to run, so that the start of Python and BCC is not measured.
#[derive(Debug)]
pub struct Bcc {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Bcc {
    /// Starts the program that deploys. `None` if BCC is not here or can't compile for this kernel.
    pub fn deployer(namespace: &Namespace, interface: &str) -> Result<Option<Self>> {
        // The first deployment shows whether the kernel's headers are here.
        Self::start(namespace, "deploy_by_bcc.py", &format!("1 1 {interface}"))
    }

    /// Starts the program that reads maps. `None` as for [`Bcc::deployer`].
    pub fn reader(namespace: &Namespace) -> Result<Option<Self>> {
        Self::start(namespace, "read_by_bcc.py", "make HASH 1")
    }

    /// Starts the program that makes JSON of a table of numbers, whose table the caller fills.
    /// `None` as for [`Bcc::deployer`].
    pub fn exporter(namespace: &Namespace, entries: u32) -> Result<Option<Self>> {
        Self::start(namespace, "export_by_bcc.py", &format!("make {entries}"))
    }

    /// Starts a program in a namespace. `None` if the program can't obey the first order.
    fn start(namespace: &Namespace, script: &str, first: &str) -> Result<Option<Self>> {
        let script = format!("{}/peers/{script}", env!("CARGO_MANIFEST_DIR"));
        let mut child = namespace.enter(|| {
            // Debian's Python, which has Debian's packages.
            Command::new("/usr/bin/python3")
                .arg(script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .context("start python3")
        })??;
        let orders = child.stdin.take().context("an input")?;
        let answers = BufReader::new(child.stdout.take().context("an output")?);
        let mut bcc = Self {
            child,
            orders,
            answers,
        };
        let ready = bcc.line()?.as_deref() == Some("ready");
        let works = ready && writeln!(bcc.orders, "{first}").is_ok() && bcc.line()?.is_some();
        Ok(works.then_some(bcc))
    }

    /// Deploys a probe with this number of maps, in one or two copies. Returns the milliseconds.
    pub fn deploy(&mut self, maps: usize, copies: usize, interface: &str) -> Result<f64> {
        self.time(&format!("{maps} {copies} {interface}"))
    }

    /// Makes the map that later reads use.
    pub fn make(&mut self, kind: &str, entries: u32) -> Result<()> {
        let answer = self.order(&format!("make {kind} {entries}"))?;
        ensure!(answer == "ok", "BCC says {answer:?}");
        Ok(())
    }

    /// Fills the map and reads it, or reads and empties it. Returns the microseconds of the latter.
    pub fn read(&mut self, erase: bool) -> Result<f64> {
        self.time(if erase { "erase" } else { "read" })
    }

    /// Makes JSON of the table. Returns the milliseconds and the number of entries.
    pub fn json(&mut self) -> Result<(f64, u32)> {
        let answer = self.order("json")?;
        let numbers = answer
            .split_once(' ')
            .and_then(|(ms, entries)| Some((ms.parse().ok()?, entries.parse().ok()?)));
        numbers.with_context(|| format!("BCC says {answer:?}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn time(&mut self, order: &str) -> Result<f64> {
        let answer = self.order(order)?;
        answer
            .parse()
            .with_context(|| format!("BCC says {answer:?}"))
    }

    fn order(&mut self, order: &str) -> Result<String> {
        writeln!(self.orders, "{order}").context("BCC has ended")?;
        self.line()?.context("BCC has ended")
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        Ok((self.answers.read_line(&mut line)? > 0).then(|| line.trim_end().to_owned()))
    }
}

impl Drop for Bcc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
