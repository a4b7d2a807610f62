//! Direct access to the daemon's maps: tests fill them, and benchmarks read them with bare system
//! calls for comparison.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use aya_obj::generated::bpf_cmd;

use crate::programs::bpf;

const HASH: u32 = 1;

/// A HASH of a running daemon.
#[derive(Debug)]
pub struct HashTable {
    fd: OwnedFd,
    pub id: u32,
    pub key_size: usize,
    pub value_size: usize,
    pub max_entries: usize,
}

impl HashTable {
    /// Opens the only HASH of `max_entries` that the process `pid` holds. The search goes through
    /// the descriptors of the process and not the kernel's list of maps: opening a PROG_ARRAY by
    /// its id can leave it in the kernel for good.
    pub fn of_process(pid: u32, max_entries: u32) -> Result<Self> {
        let mut found = HashMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
            // The descriptor may have been closed meanwhile.
            let Ok(text) = fs::read_to_string(entry?.path()) else {
                continue;
            };
            let field = |name: &str| {
                text.lines().find_map(|line| {
                    line.strip_prefix(name)?
                        .strip_prefix(":\t")?
                        .parse::<u32>()
                        .ok()
                })
            };
            if field("map_type") == Some(HASH) && field("max_entries") == Some(max_entries) {
                let id = field("map_id").context("a map has an id")?;
                let size = |name: &str| {
                    field(name)
                        .context("a map has sizes")
                        .map(|size| size as usize)
                };
                found.insert(id, [size("key_size")?, size("value_size")?]);
            }
        }
        ensure!(
            found.len() == 1,
            "{} HASH maps of {max_entries} entries",
            found.len()
        );
        let (id, [key_size, value_size]) = found.into_iter().next().context("there is one")?;
        // The fields are `id`, `next_id` and `open_flags`.
        let fd = bpf(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &mut [id, 0, 0])
            .with_context(|| format!("open map {id}"))?;
        // SAFETY: the kernel has just given us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            id,
            key_size,
            value_size,
            max_entries: max_entries as usize,
        })
    }

    /// Writes entries whose keys and values lie one after the other.
    pub fn update(&self, keys: &[u8], values: &[u8]) -> Result<()> {
        let count = keys.len() / self.key_size;
        ensure!(
            values.len() == count * self.value_size,
            "a value for each key"
        );
        let mut attr = BatchAttr {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: count as u32,
            map_fd: self.fd.as_raw_fd() as u32,
            ..BatchAttr::default()
        };
        bpf(bpf_cmd::BPF_MAP_UPDATE_BATCH, &mut attr).context("update a batch")?;
        Ok(())
    }
}

/// Buffers for `BPF_MAP_LOOKUP_BATCH` over a whole map without any other work. The memory is used
/// again.
#[derive(Debug)]
pub struct BareLookups {
    keys: Vec<u8>,
    values: Vec<u8>,
    room: usize,
}

impl BareLookups {
    /// Makes buffers for system calls of up to `room` entries.
    pub fn new(map: &HashTable, room: usize) -> Self {
        Self {
            keys: vec![0; room * map.key_size],
            values: vec![0; room * map.value_size],
            room,
        }
    }

    /// Reads the whole map. Returns the number of entries.
    pub fn read(&mut self, map: &HashTable) -> Result<usize> {
        let (mut cursor, mut next, mut started, mut entries) = (0_u64, 0_u64, false, 0);
        loop {
            let mut attr = BatchAttr {
                in_batch: if started {
                    (&raw const cursor) as u64
                } else {
                    0
                },
                out_batch: (&raw mut next) as u64,
                keys: self.keys.as_mut_ptr() as u64,
                values: self.values.as_mut_ptr() as u64,
                count: self.room as u32,
                map_fd: map.fd.as_raw_fd() as u32,
                ..BatchAttr::default()
            };
            let result = bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr);
            let last = matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ENOENT));
            if !last {
                result.context("look up a batch")?;
            }
            entries += attr.count as usize;
            if last {
                return Ok(entries);
            }
            (cursor, started) = (next, true);
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}
