//! The update of a map of maps. Since Linux 4.20 it returns only when no program can still use the map that was
//! replaced (`maybe_wait_bpf_programs` in `kernel/bpf/syscall.c`, which is `synchronize_rcu`). It takes milliseconds
//! and needs nothing but `bpf(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::sys::map::{self, MapCreate};

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;

/// A map of one map, which no program uses.
#[derive(Debug)]
pub struct MapInMap {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl MapInMap {
    /// Makes the two maps.
    pub fn prepare() -> io::Result<Self> {
        let array = MapCreate {
            name: "tp_quiesce",
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            ..MapCreate::default()
        };
        let inner = map::map_create(&MapCreate { map_type: BPF_MAP_TYPE_ARRAY, ..array })?;
        let outer = MapCreate { map_type: BPF_MAP_TYPE_ARRAY_OF_MAPS, inner: Some(inner.as_fd()), ..array };
        Ok(Self { outer: map::map_create(&outer)?, inner })
    }

    /// Waits for a grace period.
    pub fn wait(&self) -> io::Result<()> {
        map::map_update(self.outer.as_fd(), &[0; 4], &self.inner.as_raw_fd().to_ne_bytes())
    }
}
