//! The machine of the measurements: its description, and its load from other programs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The share of the processors that other programs may use on a quiet machine.
const QUIET: f64 = 0.05;
/// The share of time that a hypervisor may take from a quiet machine.
const STOLEN: f64 = 0.005;

/// The processor time of all CPUs since the start, in ticks.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    idle: u64,
    stolen: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Self::parse(&stat).context("/proc/stat has no line of all CPUs")
    }

    fn parse(stat: &str) -> Option<Self> {
        let fields = stat
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace();
        // user, nice, system, idle, iowait, irq, softirq, steal; the time of guests is part of
        // user.
        let fields: Vec<u64> = fields
            .take(8)
            .filter_map(|field| field.parse().ok())
            .collect();
        let all = fields.iter().sum();
        Some(Self {
            idle: fields.get(3)? + fields.get(4)?,
            stolen: *fields.get(7)?,
            all,
        })
    }

    /// Returns the shares of time since `before` that were not idle, and that the hypervisor took.
    fn since(self, before: Self) -> [f64; 2] {
        let all = (self.all - before.all).max(1) as f64;
        [
            1.0 - (self.idle - before.idle) as f64 / all,
            (self.stolen - before.stolen) as f64 / all,
        ]
    }
}

/// A look at the machine before an experiment.
#[derive(Debug)]
pub struct Watch {
    /// The share of the processors that other programs used before the experiment.
    busy: f64,
    begun: Ticks,
}

impl Watch {
    /// Observes the idle machine for this long.
    pub fn begin(look: Duration) -> Result<Self> {
        let before = Ticks::now()?;
        thread::sleep(look);
        let begun = Ticks::now()?;
        Ok(Self {
            busy: begun.since(before)[0],
            begun,
        })
    }

    /// Returns a sentence on whether the machine was quiet.
    pub fn end(self) -> Result<String> {
        let [_, stolen] = Ticks::now()?.since(self.begun);
        Ok(describe(self.busy, stolen))
    }
}

fn describe(busy: f64, stolen: f64) -> String {
    let figures = format!(
        "others used {:.1} % of the processors before it, the hypervisor took {:.2} % of the time",
        100.0 * busy,
        100.0 * stolen
    );
    if busy <= QUIET && stolen <= STOLEN {
        format!("The machine was quiet: {figures}.")
    } else {
        format!("**The machine was not quiet**: {figures}.")
    }
}

/// Returns the time of the run and the kind of machine: enough to compare runs, but nothing that
/// identifies the machine.
pub fn describe_machine() -> Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release = release.trim().split('-').next().unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processor", |(_, model)| model.trim());
    let virtual_machine = if cpuinfo.contains(" hypervisor") {
        ", virtual machine"
    } else {
        ""
    };
    let cpus = thread::available_parallelism()?;
    let date = first_line(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let clang = first_line(Command::new("clang").arg("--version"))?;
    let clang = clang
        .split_once("version ")
        .and_then(|(_, rest)| rest.split([' ', '-']).next());
    let clang = clang.unwrap_or("of unknown version");
    Ok(format!(
        "{date}, Linux {release}, {cpus} CPUs ({model}{virtual_machine}), clang {clang}."
    ))
}

/// Returns the measured commit, marked if files differ from it; `unknown` outside of a repository.
pub fn commit() -> String {
    commit_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")))
}

/// Returns the commit of a repository. Changes below docs/ do not count: a run writes there itself,
/// and no measured code is there.
fn commit_of(repository: &Path) -> String {
    let git = |arguments: &[&str]| {
        first_line(
            Command::new("git")
                .arg("-C")
                .arg(repository)
                .args(arguments),
        )
    };
    let commit = git(&["describe", "--always", "--exclude=*"]).unwrap_or_default();
    if commit.is_empty() {
        return "unknown".to_owned();
    }
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        ":(top,exclude)docs",
    ]);
    let is_clean = changes.is_ok_and(|changes| changes.is_empty());
    if is_clean { commit } else { commit + "-dirty" }
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {:?}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_time_come_from_the_line_of_all_cpus() {
        let before =
            Ticks::parse("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n").unwrap();
        let after = Ticks::parse("cpu  20 0 20 120 20 0 10 10 5 0\n").unwrap();
        let [busy, stolen] = after.since(before);
        assert!(
            (busy - 0.4).abs() < 1e-9 && (stolen - 0.1).abs() < 1e-9,
            "{busy} {stolen}"
        );
    }

    #[test]
    fn a_commit_is_marked_by_changes_outside_of_docs_only() -> Result<()> {
        let repository = tempfile::tempdir()?;
        let here = repository.path();
        assert_eq!(commit_of(here), "unknown");
        let git = |arguments: &[&str]| -> Result<()> {
            let identity = [
                "-c",
                "user.name=test",
                "-c",
                "user.email=test@localhost",
                "-c",
                "commit.gpgsign=false",
            ];
            let status = Command::new("git")
                .arg("-C")
                .arg(here)
                .args(identity)
                .args(arguments)
                .status()?;
            anyhow::ensure!(status.success(), "git {arguments:?}: {status}");
            Ok(())
        };
        fs::create_dir_all(here.join("docs/figures"))?;
        fs::create_dir(here.join("src"))?;
        let (page, source) = (here.join("docs/benchmarks.md"), here.join("src/main.rs"));
        fs::write(&page, "1")?;
        fs::write(&source, "1")?;
        git(&["init", "-q"])?;
        git(&["add", "."])?;
        git(&["commit", "-q", "-m", "One"])?;
        let clean = commit_of(here);
        assert!(
            clean.len() >= 7 && clean.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{clean}"
        );
        // A run writes the page and its figures.
        fs::write(&page, "2")?;
        fs::write(here.join("docs/figures/new.svg"), "2")?;
        git(&["add", "docs/figures"])?;
        assert_eq!(commit_of(here), clean);
        fs::write(&source, "2")?;
        assert_eq!(commit_of(here), format!("{clean}-dirty"));
        Ok(())
    }

    #[test]
    fn noise_is_said() {
        assert!(describe(0.01, 0.0).starts_with("The machine was quiet"));
        assert!(
            describe(0.30, 0.0).starts_with("**The machine was not quiet**: others used 30.0 %")
        );
        assert!(describe(0.0, 0.02).contains("not quiet**"));
    }
}
