//! The update of a map of maps. Since Linux 4.20 it returns only when no program can still use the
//! map that was replaced (`maybe_wait_bpf_programs` in `kernel/bpf/syscall.c`, which is
//! `synchronize_rcu`). It takes milliseconds and needs nothing but `bpf(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS;

use crate::sys::map::{self, MapCreate};

/// A map of one map, which no program uses.
#[derive(Debug)]
pub struct MapInMap {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl MapInMap {
    pub fn prepare() -> io::Result<Self> {
        let array = MapCreate::array("tp_quiesce", 4, 1);
        let inner = map::map_create(&array)?;
        let map_type = BPF_MAP_TYPE_ARRAY_OF_MAPS as u32;
        let outer = map::map_create(&MapCreate {
            map_type,
            inner: Some(inner.as_fd()),
            ..array
        })?;
        Ok(Self { outer, inner })
    }

    pub fn wait(&self) -> io::Result<()> {
        map::map_update(
            self.outer.as_fd(),
            &[0; 4],
            &self.inner.as_raw_fd().to_ne_bytes(),
        )
    }
}
