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
    /// Starts it in a namespace. `None` if BCC is not here or can't compile for this kernel.
    pub fn start(namespace: &Namespace, interface: &str) -> Result<Option<Self>> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/deploy_by_bcc.py");
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
        let mut bcc = Self { child, orders, answers };
        let ready = bcc.line()?.as_deref() == Some("ready");
        // The first deployment shows whether the kernel's headers are here.
        let works = ready && bcc.deploy(1, 1, interface).is_ok();
        Ok(works.then_some(bcc))
    }

    /// Deploys a probe with this number of maps, in one or two copies. Returns the milliseconds.
    pub fn deploy(&mut self, maps: usize, copies: usize, interface: &str) -> Result<f64> {
        writeln!(self.orders, "{maps} {copies} {interface}").context("BCC has ended")?;
        let answer = self.line()?.context("BCC has ended")?;
        answer.parse().with_context(|| format!("BCC says {answer:?}"))
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
