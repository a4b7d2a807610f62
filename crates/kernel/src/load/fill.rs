//! The entries of a configuration's `fill`, in new maps.

use std::os::fd::BorrowedFd;

use twinprobe_ebpf_common::MapKind;

use crate::plan::probe_plan::MapPlan;
use crate::sys::call::KernelError;
use crate::sys::{cpus, map};

/// Writes the entries that a map begins with.
pub fn fill(map: &MapPlan, fd: BorrowedFd<'_>) -> Result<(), KernelError> {
    if map.fill.is_empty() {
        return Ok(());
    }
    let failed = |source| KernelError::new("filling", format!("map {}", map.name), source);
    let is_percpu = MapKind::from_bpf_type(map.spec.map_type).is_some_and(MapKind::is_percpu);
    let copies = if is_percpu {
        cpus::possible_cpus().map_err(failed)?
    } else {
        1
    };
    let mut value = Vec::new();
    for entry in &map.fill {
        value.clear();
        for _ in 0..copies {
            value.extend_from_slice(&entry.value);
            // The kernel takes each CPU's value at a multiple of eight bytes.
            value.resize(value.len().next_multiple_of(8), 0);
        }
        map::map_update(fd, &entry.key, &value).map_err(failed)?;
    }
    Ok(())
}
