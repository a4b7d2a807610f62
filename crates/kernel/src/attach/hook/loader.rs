//! `xdp-loader` of the project xdp-tools: it loads and unloads programs by the protocol of libxdp.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::attach::hook::xdp_request::NATIVE;

/// The time limit for one run. Tests use a shorter time.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 10 });
/// The number of last lines of a failed run that an error shows, and their length in characters. A
/// refusal of the kernel takes eight lines.
const LINES: usize = 8;
const LENGTH: usize = 700;

static KNOWN: OnceLock<XdpLoader> = OnceLock::new();

/// The loader that the operator has named, and the object that the loader loads for the daemon.
#[derive(Debug)]
pub struct XdpLoader {
    pub path: PathBuf,
    /// An object with a program that calls the program in slot 0 of the pinned map
    /// [`tp_libxdp`](crate::attach::hook::libxdp::ARRAY).
    pub object: Vec<u8>,
}

impl XdpLoader {
    /// Makes this process use the loader. A second call has no effect.
    pub fn introduce(self) {
        let _ = KNOWN.set(self);
    }

    pub fn known() -> Option<&'static Self> {
        KNOWN.get()
    }

    /// Loads the object at an interface of the caller's namespace. The object uses the map that is
    /// pinned in `pins`.
    pub fn load(&self, interface: &str, mode: &str, pins: &Path) -> io::Result<()> {
        let mut object = File::from(memfd_create("twinprobe", MemfdFlags::CLOEXEC)?);
        object.write_all(&self.object)?;
        object.rewind()?;
        let mode = if mode == NATIVE { "native" } else { "skb" };
        // A name may begin with a dash.
        let (name, file) = (OsStr::new(interface), OsStr::new("/proc/self/fd/0"));
        let options = ["load", "-vv", "-m", mode, "-p"].map(OsStr::new);
        self.run(
            &[
                &options[..],
                &[pins.as_os_str(), OsStr::new("--"), name, file],
            ]
            .concat(),
            object.into(),
        )
    }

    /// Unloads the program with this id from an interface of the caller's namespace.
    pub fn unload(&self, interface: &str, id: u32) -> io::Result<()> {
        let id = id.to_string();
        let arguments = ["unload", "-vv", "-i", &id, "--", interface].map(OsStr::new);
        self.run(&arguments, Stdio::null())
    }

    fn run(&self, arguments: &[&OsStr], input: Stdio) -> io::Result<()> {
        let mut command = Command::new(&self.path);
        command
            .args(arguments)
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let failed = |what: String| io::Error::other(format!("{} {what}", self.path.display()));
        let child = command
            .spawn()
            .map_err(|error| failed(format!("can't be started: {error}")))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, ended) = mpsc::channel();
        thread::Builder::new()
            .name("xdp-loader".to_owned())
            .spawn(move || {
                let _ = sender.send(child.wait_with_output());
            })?;
        match ended.recv_timeout(PATIENCE) {
            Ok(output) => judge(&output?).map_err(failed),
            Err(_) => {
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                Err(failed(format!(
                    "did not end within {} s and was killed",
                    PATIENCE.as_secs()
                )))
            }
        }
    }
}

fn judge(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    let last: Vec<char> = last.chars().filter(|char| !char.is_control()).collect();
    let last: String = last[last.len().saturating_sub(LENGTH)..].iter().collect();
    Err(format!(
        "failed ({}): {}",
        output.status,
        if last.is_empty() {
            "it says nothing"
        } else {
            &last
        }
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn unload(script: &str) -> io::Result<()> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("loader");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        XdpLoader {
            path,
            object: Vec::new(),
        }
        .unload("-a", 7)
    }

    #[test]
    fn a_failed_run_is_explained_by_its_last_lines() {
        unload("test \"$*\" = 'unload -vv -i 7 -- -a'").unwrap();
        let said = |script| unload(script).unwrap_err().to_string();
        let error = said("for line in 1 2 3 4 5 6 '' 7 8 9; do echo \"  $line\" >&2; done; exit 3");
        assert!(
            error.ends_with("/loader failed (exit status: 3): 2; 3; 4; 5; 6; 7; 8; 9"),
            "{error}"
        );
        assert!(said("printf 'a\\033[1m' >&2; exit 1").ends_with(": a[1m"));
        assert!(said("exit 1").ends_with("it says nothing"));
        let missing = XdpLoader {
            path: "/nowhere/xdp-loader".into(),
            object: Vec::new(),
        };
        assert!(
            missing
                .unload("eth0", 1)
                .unwrap_err()
                .to_string()
                .contains("can't be started")
        );
    }

    #[test]
    fn a_run_that_hangs_is_killed_with_its_children() {
        let error = unload("sleep 1000 & sleep 1000").unwrap_err().to_string();
        assert!(
            error.ends_with("did not end within 5 s and was killed"),
            "{error}"
        );
    }
}
