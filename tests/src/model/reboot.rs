//! A simulated reboot: the kernel has nothing of the daemon any more, the disk has everything.

use std::fs;

use anyhow::{Context, Result};

use crate::{Directories, Namespace, Store};

/// Removes everything that an ended daemon has left in the kernel, in its own namespace and in another one.
pub fn forget(directories: &Directories, monitor: &Namespace, space: Option<&Namespace>) -> Result<()> {
    if directories.bpffs().exists() {
        fs::remove_dir_all(directories.bpffs()).context("remove the pins")?;
    }
    let places = [(Some(monitor), "mon0"), (Some(monitor), "mon1"), (space, "in0")];
    for (namespace, interface) in places.into_iter().filter_map(|(namespace, name)| Some((namespace?, name)))
    {
        for direction in ["ingress", "egress"] {
            for priority in ["1", "65000"] {
                // The command fails where no filter is used.
                let _ =
                    namespace.run("tc", &["filter", "del", "dev", interface, direction, "prio", priority]);
            }
        }
    }
    Ok(())
}

/// Returns the number of the last window of a probe on disk, 0 if there is none.
pub fn newest(directories: &Directories, probe: &str) -> Result<u64> {
    Store::open(directories)?.newest(probe)
}
