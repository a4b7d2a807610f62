//! The dispatcher of libxdp, if xdp-tools is here.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use twinprobe_tests::Namespace;

use super::exporters::search_path;

/// The most programs that the dispatcher calls.
pub const MOST: usize = 10;

/// Programs that libxdp has attached at an interface. They are detached on drop.
#[derive(Debug)]
pub struct Chain<'a> {
    namespace: &'a Namespace,
    interface: &'a str,
    _files: TempDir,
}

impl<'a> Chain<'a> {
    /// Attaches this many copies of the XDP program in `object`. The inner error is the reason why
    /// this is not possible.
    pub fn attach(
        namespace: &'a Namespace,
        interface: &'a str,
        object: &[u8],
        programs: usize,
    ) -> Result<Result<Self, &'static str>> {
        let files = tempfile::tempdir()?;
        let mut arguments = vec!["load".to_owned(), interface.to_owned()];
        for number in 0..programs {
            let file = files.path().join(format!("{number}.o"));
            fs::write(&file, object)?;
            arguments.push(file.display().to_string());
        }
        arguments.extend(["-m", "native"].map(str::to_owned));
        let Some(output) = loader(namespace, &arguments)? else {
            return Ok(Err("not here"));
        };
        let chain = Self {
            namespace,
            interface,
            _files: files,
        };
        if output.status.success() {
            // Without the dispatcher, libxdp attaches a single program itself.
            let link = namespace.output("ip", &["-j", "-d", "link", "show", "dev", interface])?;
            return Ok(if link.contains("xdp_dispatcher") {
                Ok(chain)
            } else {
                Err("refused by this kernel")
            });
        }
        eprintln!(
            "  xdp-loader: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(Err("refused by this kernel"))
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let _ = loader(
            self.namespace,
            &[
                "unload".to_owned(),
                self.interface.to_owned(),
                "--all".to_owned(),
            ],
        );
    }
}

/// Runs `xdp-loader`. `None` if libxdp is not installed.
fn loader(namespace: &Namespace, arguments: &[String]) -> Result<Option<Output>> {
    let run = || {
        Command::new("xdp-loader")
            .args(arguments)
            .env("PATH", search_path())
            .output()
    };
    match namespace.enter(run)? {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        output => output.map(Some).context("start xdp-loader"),
    }
}

/// Describes the measured values for a claim, in nanoseconds, and the reason why others are
/// missing. A chain that is not for libxdp has an empty reason.
pub fn claim(measured: &[String], reasons: &BTreeSet<&str>) -> String {
    let reasons: Vec<_> = reasons
        .iter()
        .copied()
        .filter(|reason| !reason.is_empty())
        .collect();
    match (measured, &reasons[..]) {
        ([], _) => format!("libxdp: {}", reasons.join(", ")),
        (_, []) => format!("libxdp, programs: {} ns", measured.join("; ")),
        _ => {
            format!(
                "libxdp, programs: {} ns; others: {}",
                measured.join("; "),
                reasons.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_why_something_was_not_measured() {
        let refused = BTreeSet::from(["", "refused by this kernel"]);
        assert_eq!(claim(&[], &refused), "libxdp: refused by this kernel");
        let measured = ["empty, 1: 5.0".to_owned(), "empty, 8: 40.0".to_owned()];
        assert_eq!(
            claim(&measured, &BTreeSet::from([""])),
            "libxdp, programs: empty, 1: 5.0; empty, 8: 40.0 ns"
        );
        assert_eq!(
            claim(&measured[..1], &refused),
            "libxdp, programs: empty, 1: 5.0 ns; others: refused by this kernel"
        );
    }
}
