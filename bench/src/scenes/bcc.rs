//! Programs of others that are measured beside ours, if they are here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result};
use twinprobe_tests::Namespace;

/// BCC in a process that stays: the start of Python and of BCC is not measured.
#[derive(Debug)]
pub struct Bcc {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Bcc {
    /// Starts one that deploys, in a namespace. `None` if BCC is not here or can't compile for this kernel.
    pub fn start(namespace: &Namespace, interface: &str) -> Result<Option<Self>> {
        let mut bcc = namespace.enter(|| Self::run("deploy_by_bcc.py", &[]))??;
        let ready = bcc.line()?.as_deref() == Some("ready");
        // The first deployment shows whether the kernel's headers are here.
        let works = ready && bcc.deploy(1, 1, interface).is_ok();
        Ok(works.then_some(bcc))
    }

    /// Starts one that reads a table of numbers, which is filled from outside. `None` as for [`Self::start`].
    pub fn with_table(entries: u32) -> Result<Option<Self>> {
        let mut bcc = Self::run("read_by_bcc.py", &[&entries.to_string()])?;
        Ok((bcc.line()?.as_deref() == Some("ready")).then_some(bcc))
    }

    fn run(script: &str, arguments: &[&str]) -> Result<Self> {
        // Debian's Python, which has Debian's packages.
        let mut child = Command::new("/usr/bin/python3")
            .arg(format!("{}/peers/{script}", env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start python3")?;
        let orders = child.stdin.take().context("an input")?;
        let answers = BufReader::new(child.stdout.take().context("an output")?);
        Ok(Self { child, orders, answers })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Deploys a probe with this number of maps, in one or two copies. Returns the milliseconds.
    pub fn deploy(&mut self, maps: usize, copies: usize, interface: &str) -> Result<f64> {
        let answer = self.ask(&format!("{maps} {copies} {interface}"))?;
        answer.parse().with_context(|| format!("BCC says {answer:?}"))
    }

    /// Makes JSON of the table. Returns the milliseconds and the number of entries.
    pub fn read(&mut self) -> Result<(f64, u32)> {
        let answer = self.ask("")?;
        let numbers =
            answer.split_once(' ').and_then(|(ms, entries)| Some((ms.parse().ok()?, entries.parse().ok()?)));
        numbers.with_context(|| format!("BCC says {answer:?}"))
    }

    fn ask(&mut self, order: &str) -> Result<String> {
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
