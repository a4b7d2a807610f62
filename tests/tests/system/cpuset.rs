//! A cpuset with the first CPU only.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// A cpuset, which is removed on drop, once no process is in it any more.
pub struct Cpuset {
    root: PathBuf,
    group: PathBuf,
    temporary: TempDir,
}

impl Cpuset {
    /// Makes a cpuset. Returns `None` if there is a single CPU, or no hierarchy of cgroup v1 that
    /// has cpusets.
    pub fn new() -> Result<Option<Self>> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let hierarchy = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| {
                fields.get(2) == Some(&"cgroup")
                    && fields
                        .get(3)
                        .is_some_and(|options| options.split(',').any(|option| option == "cpuset"))
            });
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let (Some(fields), true) = (hierarchy, online.trim() != "0") else {
            return Ok(None);
        };
        let root = PathBuf::from(fields[1]);
        let group = root.join(format!("twinprobe-test-{}", process::id()));
        fs::create_dir(&group).with_context(|| group.display().to_string())?;
        let cpuset = Self {
            root,
            group,
            temporary: tempfile::tempdir()?,
        };
        fs::write(cpuset.group.join("cpuset.cpus"), "0")?;
        fs::write(cpuset.group.join("cpuset.mems"), "0")?;
        Ok(Some(cpuset))
    }

    /// Writes a script that enters the cpuset and becomes the daemon. Returns its path.
    pub fn wrapper(&self) -> Result<PathBuf> {
        let path = self.temporary.path().join("wrapper");
        let (procs, daemon) = (self.group.join("cgroup.procs"), twinprobe_tests::binary()?);
        let script = format!(
            "#!/bin/sh\necho $$ >'{}' && exec '{}' \"$@\"\n",
            procs.display(),
            daemon.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    pub fn take(&self, pid: u32) -> Result<()> {
        move_to(&self.group, pid)
    }

    pub fn give_back(&self, pid: u32) -> Result<()> {
        move_to(&self.root, pid)
    }
}

fn move_to(group: &Path, pid: u32) -> Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
        .with_context(|| group.display().to_string())
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.group.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            let _ = fs::write(self.root.join("cgroup.procs"), pid);
        }
        if let Err(error) = fs::remove_dir(&self.group) {
            eprintln!("remove {}: {error}", self.group.display());
        }
    }
}
