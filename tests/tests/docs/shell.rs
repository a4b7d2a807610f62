//! A shell in an isolated environment: its own network, mounts, processes and host name, and empty
//! default folders of the daemon. So the commands of a page run unchanged and leave nothing.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use twinprobe_tests::binary;
use twinprobe_tests::servers::tool;

use crate::page::Step;

/// The mark after the output of each command, followed by the number of the next command.
const MARK: char = '\u{1}';

/// The time that all commands of a page may take.
const LIMIT: &str = "600";

/// The preparation of the machine, before the page's first command.
const MACHINE: &str = "
mount --make-rprivate /
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mount -t sysfs none /sys
mount -t bpf none /sys/fs/bpf
hostname probe-1
ip link set lo up
";

/// Runs the steps of a page in order, in one shell, in a new folder beside the repository. Returns
/// the output of each command. If a page takes too long, the outputs of its last commands are
/// missing.
pub fn run(steps: &[Step]) -> Result<Vec<Vec<String>>> {
    let folder = tempfile::tempdir()?;
    let (bin, work) = (folder.path().join("bin"), folder.path().join("work"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&work)?;
    symlink(fs::canonicalize(binary()?)?, bin.join("twinprobe"))?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    for part in ["probes", "docs", "deploy", "api", "examples"] {
        symlink(repository.join(part), work.join(part))?;
    }
    // The virtual environment that the page about ClickHouse tells readers to make.
    symlink(tool("chdb")?, work.join("chdb"))?;
    let (script, output) = (folder.path().join("script"), folder.path().join("output"));
    fs::write(
        &script,
        format!("set -e\n{MACHINE}\nset +e\n{}", script_of(steps)),
    )?;
    let printed = File::create(&output)?;
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("timeout")
        .args([
            "--kill-after=2",
            LIMIT,
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
        ])
        .args([
            "--mount-proc",
            "--kill-child",
            "bash",
            "--noprofile",
            "--norc",
        ])
        .arg(&script)
        .current_dir(&work)
        .env_clear()
        .env("PATH", format!("{}:{path}:/usr/sbin:/sbin", bin.display()))
        .envs([
            ("HOME", "/root"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
        ])
        .stdin(Stdio::null())
        .stdout(printed.try_clone()?)
        .stderr(printed)
        .status()
        .context("start unshare")?;
    Ok(outputs(&String::from_utf8_lossy(&fs::read(&output)?)))
}

fn script_of(steps: &[Step]) -> String {
    const END: &str = "the end of this file";
    let mut script = "printf '\\001'\n".to_owned();
    for step in steps {
        match step {
            Step::Save { name, text } => {
                writeln!(script, "cat > '{name}' <<'{END}'\n{text}{END}")
                    .expect("a string takes all");
            }
            // A page may ask for the status of its last command.
            Step::Run(command) => {
                writeln!(
                    script,
                    "{}\nset -- $?; printf '\\001'; (exit $1)",
                    command.text
                )
                .expect("a string takes all");
            }
        }
    }
    script
}

fn outputs(printed: &str) -> Vec<Vec<String>> {
    let mut pieces: Vec<&str> = printed.split(MARK).collect();
    // The first piece precedes the first command. The last piece belongs to a command that has not
    // ended.
    pieces.truncate(pieces.len().saturating_sub(1).max(1));
    pieces[1..]
        .iter()
        .map(|piece| piece.lines().map(str::to_owned).collect())
        .collect()
}
