//! QUEUE and STACK: reading is popping, so every read is also a reset.

use twinprobe_ebpf_common::RawTable;

use super::MetricMap;
use crate::kernel::sys::{self, KernelError};

/// At most `max_entries` values: a live queue may be filled as fast as it is emptied.
pub(super) fn read(map: &MetricMap, out: &mut RawTable) -> Result<(), KernelError> {
    let mut value = vec![0; map.value_stride()];
    for _ in 0..map.max_entries {
        let popped = sys::map_lookup_and_delete(map.fd(), &[], &mut value);
        if !popped.map_err(|error| map.error("pop", error))? {
            break;
        }
        out.values.extend_from_slice(&value);
    }
    Ok(())
}
