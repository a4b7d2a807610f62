//! File systems in memory that tests fill up or make read-only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::run;
use crate::room::Room;
use crate::wait::wait_for;

/// The time to wait for a daemon to close the files that it writes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted tmpfs, unmounted on drop even while it is used.
#[derive(Debug)]
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Makes the directory and mounts a tmpfs of `bytes` there.
    pub fn mount(at: &Path, bytes: u64) -> Result<Self> {
        fs::create_dir_all(at)?;
        run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={bytes}"),
                "twinprobe-test",
                path(at)?,
            ],
        )?;
        Ok(Self(at.to_owned()))
    }

    /// Fills the file system to the last byte.
    pub fn fill(&self) -> Result<()> {
        Room::of(&self.0).fill()
    }

    /// Fills the file system but for this many bytes.
    pub fn fill_but(&self, bytes: u64) -> Result<()> {
        Room::of(&self.0).fill_but(bytes)
    }

    /// Removes the file of [`Tmpfs::fill`].
    pub fn free(&self) -> Result<()> {
        Room::of(&self.0).free()
    }

    /// Makes the file system read-only once no file is open for writing.
    pub fn read_only(&self) -> Result<()> {
        // The kernel refuses while a file is open for writing.
        wait_for("read-only", PATIENCE, || {
            run("mount", &["-o", "remount,ro", path(&self.0)?])
        })
    }

    /// Makes the file system writable again.
    pub fn read_write(&self) -> Result<()> {
        run("mount", &["-o", "remount,rw", path(&self.0)?])
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

/// Unmounts lazily: a file system in use ends with its last user.
pub(crate) fn unmount(at: &Path) {
    if let Err(error) = path(at).and_then(|at| run("umount", &["--lazy", at])) {
        eprintln!("{error:#}");
    }
}

/// Unmounts the file systems that killed test processes left below directories of `stale` names.
pub(crate) fn unmount_stale(stale: impl Fn(&str) -> bool) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for at in mounts
        .lines()
        .filter_map(|line| Some(Path::new(line.split(' ').nth(1)?)))
    {
        if at.iter().any(|part| part.to_str().is_some_and(&stale)) {
            unmount(at);
        }
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path is text")
}
