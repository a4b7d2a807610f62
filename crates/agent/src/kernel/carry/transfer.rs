//! The content of maps that a new deployment defines in another way. What does not change is there before the
//! new programs see their first packet; what the old ones have counted since is added when they have seen their
//! last.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::convert::{convert, convert_onto, counters};
use twinprobe_ebpf_common::{MapFamily, RawTable, Shape, TableLayout};

use super::adder::Adder;
use crate::config::AfterRead;
use crate::kernel::capabilities::Capabilities;
use crate::kernel::map::{MetricMap, Table, Taken};
use crate::kernel::quiesce;
use crate::kernel::sys::{self, KernelError};
use crate::kernel::twin_maps::{Origin, ProbeMap, ProbeMaps, TwinFds};

/// What is left in the old maps of a snapshot: it belongs to the window that is open.
#[derive(Debug)]
pub struct Remains {
    pub direction: &'static str,
    /// As metrics name it.
    pub map: String,
    pub layout: TableLayout,
    pub rows: RawTable,
}

/// The maps that one direction's replacement does not share with what it replaces.
#[derive(Debug, Default)]
pub struct Transfers(Vec<Transfer>);

#[derive(Debug)]
struct Transfer {
    direction: &'static str,
    name: String,
    old: MetricMap,
    from: TableLayout,
    to: TableLayout,
    /// A new value before anything is brought.
    blank: Vec<u8>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A map that packets are counted in, and what has been put there already, by key.
    Live(OwnedFd, HashMap<Box<[u8]>, Box<[u8]>>),
    /// Each twin has its own: what is added goes with the next reading.
    Window,
}

impl Transfers {
    /// Brings what is there now; the old programs still run, with the twin `active`.
    pub fn begin(
        direction: &'static str,
        old: &ProbeMaps,
        active: usize,
        new: &ProbeMaps,
        capabilities: &Capabilities,
    ) -> Self {
        let mut transfers = Vec::new();
        for (name, new) in new.by_name().iter().filter(|(_, new)| new.origin == Origin::Successor) {
            let Some(old) = old.by_name().get(name) else { continue };
            match Transfer::begin(direction, name, old, active, new, capabilities) {
                Ok(transfer) => transfers.extend(transfer),
                Err(error) => give_up(name, &error),
            }
        }
        Self(transfers)
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Brings the rest, once no CPU runs the old programs any more.
    pub fn finish(self) -> Vec<Remains> {
        let mut remains = Vec::new();
        for transfer in self.0 {
            let name = transfer.name.clone();
            match transfer.finish() {
                Ok(rest) => remains.extend(rest),
                Err(error) => give_up(&name, &error),
            }
        }
        remains
    }
}

fn give_up(map: &str, error: &KernelError) {
    let error = crate::kernel::with_causes(error);
    tracing::error!(map, error, "the content of a map could not be taken over");
}

impl Transfer {
    fn begin(
        direction: &'static str,
        name: &str,
        old: &ProbeMap,
        active: usize,
        new: &ProbeMap,
        capabilities: &Capabilities,
    ) -> Result<Option<Self>, KernelError> {
        let failed = |source| KernelError::new("taking over", format!("map {name}"), source);
        let cpus = capabilities.kernel.possible_cpus;
        let (Some(mut from), Some(to)) = (old.shape.table(&old.spec, cpus), new.shape.table(&new.spec, cpus))
        else {
            return Ok(None);
        };
        if new.spec.frozen || convert(&RawTable::default(), &from, &to).is_none() {
            return Ok(None);
        }
        forget_new_initials(&mut from, old, new);
        let fd = old.fds.of_twin(active).try_clone_to_owned().map_err(failed)?;
        let access = [capabilities.access(from.kind); 2];
        let layout = Arc::new(from.clone());
        let old = MetricMap::Table(Table::new(fd, name, layout, old.spec.max_entries, access));
        let target = match &new.fds {
            TwinFds::Private(_) => Target::Window,
            TwinFds::Shared(fd) => Target::Live(fd.try_clone().map_err(failed)?, HashMap::new()),
        };
        let blank = match (&new.spec.initial[..], &target) {
            // What goes with a reading is added to what is in the map.
            ([], _) | (_, Target::Window) => vec![0; to.value.size],
            (initial, Target::Live(..)) => initial.to_vec(),
        };
        let mut transfer = Self { direction, name: name.to_owned(), old, from, to, blank, target };
        // What is popped is gone from where packets still come to.
        if transfer.to.kind.family() != MapFamily::Fifo && matches!(transfer.target, Target::Live(..)) {
            let rows = transfer.rows(AfterRead::Keep)?;
            transfer.put(&rows).map_err(failed)?;
        }
        Ok(Some(transfer))
    }

    /// What the old map holds, as the new one has it.
    fn rows(&self, after: AfterRead) -> Result<RawTable, KernelError> {
        let mut rows = RawTable::default();
        self.old.read(after, &mut Taken::default(), &mut rows)?;
        Ok(convert_onto(&self.blank, &rows, &self.from, &self.to).unwrap_or_default())
    }

    /// Into a map that no program uses yet. What does not fit stays behind.
    fn put(&mut self, rows: &RawTable) -> io::Result<()> {
        let Target::Live(map, copied) = &mut self.target else { return Ok(()) };
        for (key, value) in rows.entries(&self.to) {
            match sys::map_update(map.as_fd(), key, value) {
                Ok(()) => {
                    copied.insert(key.into(), value.into());
                }
                Err(error) if error.raw_os_error() == Some(libc::E2BIG) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<Remains>, KernelError> {
        let fifo = self.to.kind.family() == MapFamily::Fifo;
        let rows = self.rows(if fifo { AfterRead::Reset } else { AfterRead::Keep })?;
        let Self { direction, name, to, target, .. } = self;
        let failed = |source| KernelError::new("taking over", format!("map {name}"), source);
        match target {
            Target::Window => return Ok(Some(Remains { direction, map: name, layout: to, rows })),
            Target::Live(map, _) if fifo => {
                for (_, value) in rows.entries(&to) {
                    sys::map_update(map.as_fd(), &[], value).map_err(failed)?;
                }
            }
            Target::Live(map, copied) => add_changes(&map, &to, &copied, &rows).map_err(failed)?,
        }
        Ok(None)
    }
}

/// A variable whose initial value the new source gives anew begins with that.
fn forget_new_initials(from: &mut TableLayout, old: &ProbeMap, new: &ProbeMap) {
    let (Shape::Struct(before), Shape::Struct(now)) = (&mut from.value.shape, &new.shape.value.shape) else {
        return;
    };
    // Only data sections have any.
    if old.spec.initial.is_empty() && new.spec.initial.is_empty() {
        return;
    }
    let initial = |map: &ProbeMap, bit_offset: usize, size: usize| -> Vec<u8> {
        let start = bit_offset / 8;
        map.spec.initial.get(start..start + size).map_or_else(|| vec![0; size], <[u8]>::to_vec)
    };
    before.retain(|old_variable| {
        now.iter().find(|variable| variable.name == old_variable.name).is_some_and(|variable| {
            initial(old, old_variable.bit_offset, old_variable.layout.size)
                == initial(new, variable.bit_offset, variable.layout.size)
        })
    });
}

/// Adds what has changed since it was copied, while programs add, too.
fn add_changes(
    map: &OwnedFd,
    layout: &TableLayout,
    copied: &HashMap<Box<[u8]>, Box<[u8]>>,
    rows: &RawTable,
) -> io::Result<()> {
    let counters = counters(&layout.value);
    let mut changes = Vec::new();
    for (key, value) in rows.entries(layout) {
        let before = copied.get(key);
        if before.is_some_and(|before| **before == *value) {
            continue;
        }
        // Only the new programs can have made the entry in the meantime.
        let is_new = before.is_none() && layout.kind.family() != MapFamily::Array;
        match if is_new { sys::map_insert(map.as_fd(), key, value) } else { Ok(false) } {
            Ok(true) => {}
            Ok(false) => changes.push((key, value, before)),
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => {}
            Err(error) => return Err(error),
        }
    }
    if changes.is_empty() || counters.is_empty() {
        return Ok(());
    }
    let adder = Adder::new(map.as_fd(), layout.key.size, &counters)?;
    let stride = layout.slot_stride();
    for slot in 0..layout.slots {
        let add = || {
            for (key, value, before) in &changes {
                let now = &value[slot * stride..][..stride];
                let before = before.map(|before| &before[slot * stride..][..stride]);
                let numbers: Vec<u64> = counters
                    .iter()
                    .map(|&(offset, size)| {
                        let number = |slot: &[u8]| load(&slot[offset..offset + size]);
                        number(now).wrapping_sub(before.map_or(0, number))
                    })
                    .collect();
                if numbers.iter().any(|number| *number != 0) {
                    adder.add(key, &numbers)?;
                }
            }
            Ok(())
        };
        // Each CPU has a value of its own, which only programs on that CPU reach.
        if layout.kind.is_percpu() { quiesce::run_on(slot, add)? } else { add()? }
    }
    Ok(())
}

fn load(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => u64::from(u32::from_ne_bytes(bytes.try_into().unwrap_or_default())),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    }
}
