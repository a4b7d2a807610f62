//! A simulated reboot: the kernel has lost everything of the daemon, the disk has everything, and
//! the boot id is new.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{DaemonOptions, Directories, Namespace};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Removes everything that an ended daemon has left in the kernel, in its own namespace and in
/// another one.
pub fn forget(
    directories: &Directories,
    monitor: &Namespace,
    space: Option<&Namespace>,
) -> Result<()> {
    if directories.bpffs().exists() {
        fs::remove_dir_all(directories.bpffs()).context("remove the pins")?;
    }
    let places = [
        (Some(monitor), "mon0"),
        (Some(monitor), "mon1"),
        (space, "in0"),
    ];
    for (namespace, interface) in places
        .into_iter()
        .filter_map(|(namespace, name)| Some((namespace?, name)))
    {
        for direction in ["ingress", "egress"] {
            for priority in ["1", "65000"] {
                // The command fails where no filter is used.
                let _ = namespace.run(
                    "tc",
                    &[
                        "filter", "del", "dev", interface, direction, "prio", priority,
                    ],
                );
            }
        }
    }
    Ok(())
}

/// Returns options with which a daemon runs during the boot of this number. The first boot, 0, is
/// the machine's own.
///
/// The daemon is in a mount namespace of its own, in which the file with the boot id is another
/// one.
pub fn booted(
    options: &DaemonOptions,
    directories: &Directories,
    boot: u32,
) -> Result<DaemonOptions> {
    if boot == 0 {
        return Ok(options.clone());
    }
    let binary = options.binary.clone().map_or_else(crate::binary, Ok)?;
    let own = directories.temporary();
    let others = own.parent().context("a directory for temporary files")?;
    let (id, script) = (
        own.join(format!("boot-{boot}")),
        own.join(format!("booted-{boot}")),
    );
    fs::write(&id, format!("00000000-0000-4000-8000-{boot:012}\n"))?;
    // A namespace has copies of all mounts. Copies of other tests' mounts are removed: they would
    // keep these mounts in use.
    let inside = format!(
        "mount --bind '{id}' {BOOT_ID} && \
         while read -r _ at _; do case $at in '{own}'/*) ;; '{others}'/*) umount --lazy \"$at\" ;; esac; done \
         </proc/self/mounts && exec '{binary}' \"$@\"",
        id = id.display(),
        own = own.display(),
        others = others.display(),
        binary = binary.display(),
    );
    let inner = own.join(format!("inside-{boot}"));
    write_script(&inner, &inside)?;
    let outer = format!(
        "exec unshare --mount --propagation slave '{}' \"$@\"",
        inner.display()
    );
    write_script(&script, &outer)?;
    crate::directories::mount_bpffs()?;
    Ok(DaemonOptions {
        binary: Some(script),
        ..options.clone()
    })
}

fn write_script(path: &Path, body: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{body}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
