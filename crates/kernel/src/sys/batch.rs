//! The batch commands: many entries of a map in one call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use aya_obj::generated::bpf_cmd;

use crate::sys::call::{address, address_mut, bpf};

/// The arguments of a batch command. They contain the addresses of buffers.
#[repr(C)]
#[derive(Debug, Default)]
pub struct BatchAttr {
    pub in_batch: u64,
    pub out_batch: u64,
    pub keys: u64,
    pub values: u64,
    /// The number of entries that there is room for; at the end of the call the kernel replaces it
    /// by the number of entries that it has moved.
    pub count: u32,
    pub map_fd: u32,
    pub elem_flags: u64,
    pub flags: u64,
}

/// The outcome of a batch call. `count` is the number of moved entries, even if `result` is an
/// error.
#[derive(Debug)]
pub struct BatchOutcome {
    pub count: usize,
    pub result: io::Result<()>,
}

impl BatchOutcome {
    /// The error number of the call; 0 if it succeeded.
    pub fn errno(&self) -> i32 {
        self.result
            .as_ref()
            .err()
            .and_then(io::Error::raw_os_error)
            .unwrap_or(0)
    }
}

/// The position of a walk in batches, whose meaning only the kernel knows. It has room for a key,
/// or for the 4 bytes that hashes use.
#[derive(Debug)]
pub struct BatchCursor {
    bytes: Vec<u8>,
    started: bool,
}

impl BatchCursor {
    pub fn new(key_size: usize) -> Self {
        Self {
            bytes: vec![0; key_size.max(8)],
            started: false,
        }
    }
}

/// Reads up to `count` entries by `BPF_MAP_LOOKUP_BATCH`, or takes them by
/// `BPF_MAP_LOOKUP_AND_DELETE_BATCH` with `delete` (Linux 5.6). The last batch ends with `ENOENT`
/// and a count.
pub fn map_lookup_batch(
    map: BorrowedFd<'_>,
    cursor: &mut BatchCursor,
    keys: &mut [u8],
    values: &mut [u8],
    count: usize,
    delete: bool,
) -> BatchOutcome {
    let cmd = if delete {
        bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_BATCH
    } else {
        bpf_cmd::BPF_MAP_LOOKUP_BATCH
    };
    let mut next = cursor.bytes.clone();
    let mut attr = BatchAttr {
        in_batch: if cursor.started {
            address(&cursor.bytes)
        } else {
            0
        },
        out_batch: address_mut(&mut next),
        keys: address_mut(keys),
        values: address_mut(values),
        count: count as u32,
        map_fd: map.as_raw_fd() as u32,
        ..BatchAttr::default()
    };
    let result = bpf(cmd, &mut attr).map(drop);
    let moved = match &result {
        Ok(()) => attr.count as usize,
        // Kernels before 6.14 end with EINTR at an entry that is deleted during the call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
            attr.count as usize
        }
        // ENOSPC moves nothing, and an error that refuses the whole call does not change the count
        // that was passed in.
        Err(_) => 0,
    };
    if result.is_ok() || moved > 0 {
        *cursor = BatchCursor {
            bytes: next,
            started: true,
        };
    }
    BatchOutcome {
        count: moved.min(count),
        result,
    }
}

/// Takes entries by `BPF_MAP_LOOKUP_AND_DELETE_BATCH`. The arguments may be in memory that outlives
/// this process.
pub fn map_take_batch(attr: &mut BatchAttr) -> io::Result<()> {
    bpf(bpf_cmd::BPF_MAP_LOOKUP_AND_DELETE_BATCH, attr).map(drop)
}

pub fn map_update_batch(
    map: BorrowedFd<'_>,
    keys: &[u8],
    values: &[u8],
    count: usize,
) -> BatchOutcome {
    change(
        bpf_cmd::BPF_MAP_UPDATE_BATCH,
        map,
        address(keys),
        address(values),
        count,
    )
}

/// Deletes `count` entries by `BPF_MAP_DELETE_BATCH` (Linux 5.6). Ends with `ENOENT` at a key that
/// does not exist, and counts the keys before it.
pub fn map_delete_batch(map: BorrowedFd<'_>, keys: &[u8], count: usize) -> BatchOutcome {
    change(bpf_cmd::BPF_MAP_DELETE_BATCH, map, address(keys), 0, count)
}

fn change(cmd: bpf_cmd, map: BorrowedFd<'_>, keys: u64, values: u64, count: usize) -> BatchOutcome {
    let map_fd = map.as_raw_fd() as u32;
    let mut attr = BatchAttr {
        keys,
        values,
        count: count as u32,
        map_fd,
        ..BatchAttr::default()
    };
    let result = bpf(cmd, &mut attr).map(drop);
    // A call that failed at an entry counts fewer entries; a call refused as a whole (ENOTSUPP,
    // EPERM) leaves the count as it was passed in.
    let moved = if result.is_err() && attr.count as usize >= count {
        0
    } else {
        attr.count as usize
    };
    BatchOutcome {
        count: moved.min(count),
        result,
    }
}
