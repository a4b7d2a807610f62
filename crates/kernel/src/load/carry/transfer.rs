//! The transfer of content to maps that a new deployment defines in another way. The daemon copies
//! the present content before the new programs see their first packet. The old programs' counts
//! since the copy follow when the old programs have seen their last packet.

mod continuity;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout, convert, convert_onto};

use crate::capabilities::Capabilities;
use crate::load::carry::changes::{add_changes, is_full};
use crate::load::maps::{ProbeMaps, Twins};
use crate::plan::inherit::Inherited;
use crate::plan::probe_plan::MapPlan;
use crate::read::map::MetricMap;
use crate::read::table::MapTable;
use crate::sys::call::KernelError;
use crate::sys::map;

/// The rows that remain in an old private map, which belong to the open window.
#[derive(Debug)]
pub struct Remains {
    pub direction: &'static str,
    /// The interface whose packets the rows count; `None` if they count the packets of all
    /// interfaces.
    pub interface: Option<String>,
    /// The name of the map, as metrics have it.
    pub map: String,
    pub layout: TableLayout,
    pub rows: RawTable,
}

/// The maps of one direction that a replacement does not share with the replaced deployment.
#[derive(Debug, Default)]
pub struct Transfers {
    transfers: Vec<Transfer>,
    losses: Vec<Loss>,
}

/// Content that a replacement could not take over: the direction, and the message about the
/// content.
pub type Loss = (&'static str, String);

/// A function that adds the counts of an old map that are kept outside of the map to the rows of
/// the map. Its arguments are the direction, the name and the layout of the map, and its rows.
pub type MoreKnown<'a> = dyn Fn(&'static str, &str, &TableLayout, RawTable) -> RawTable + 'a;

#[derive(Debug)]
struct Transfer {
    direction: &'static str,
    interface: Option<String>,
    name: String,
    old: MetricMap,
    from: TableLayout,
    to: TableLayout,
    /// A value of the new map, before anything is added to it.
    blank: Vec<u8>,
    target: Target,
    /// The largest number of entries of the new map, and the keys of the entries that did not fit.
    max_entries: u32,
    left: HashSet<Box<[u8]>>,
    /// The keys of the entries that the configuration gives the new map: these stay as they are.
    filled: HashSet<Box<[u8]>>,
}

#[derive(Debug)]
enum Target {
    /// A map that counts packets, and the values that were copied there already, by key.
    Live(OwnedFd, HashMap<Box<[u8]>, Box<[u8]>>),
    /// A private map: the rows are added to the open window's reading.
    Window,
}

impl Transfers {
    /// Copies the present content for the maps of a new direction, while the programs of the `old`
    /// directions still run with the twin `active`. A map that fails is logged and becomes a loss.
    pub fn begin(
        old: &[&ProbeMaps],
        active: usize,
        new: &ProbeMaps,
        capabilities: &Capabilities,
        more_known: &MoreKnown<'_>,
    ) -> Self {
        let mut begun = Self::default();
        let (plan, direction) = (Arc::clone(&new.plan), new.plan.direction());
        let origins = new.inherited.iter().zip(&new.origins);
        // Maps that both directions use are those of the first one.
        let own = new
            .each()
            .zip(origins)
            .filter(|((map, _), _)| !(new.is_second && map.common));
        for (new, (inherited, origins)) in own {
            let name = &new.0.name;
            let mut begin = |origin: usize, is_added: bool| {
                let Some(before) = old[origin].by_name(name) else {
                    return;
                };
                let of = old[origin].plan.direction();
                let transfer = Transfer::begin(
                    direction,
                    (of, before, active),
                    new,
                    is_added,
                    capabilities,
                    more_known,
                );
                match transfer {
                    Ok(Some(mut transfer)) => {
                        transfer.interface = old[origin].plan.interface().map(str::to_owned);
                        begun.leave(direction, name, transfer.left.len(), transfer.max_entries);
                        begun.transfers.push(transfer);
                    }
                    Ok(None) if is_added && continuity::is_flat(new.0) => {
                        let message =
                            format!("map {name}: the counts of {of} do not fit and were left out");
                        begun.losses.push((direction, message));
                    }
                    Ok(None) => {}
                    Err(error) => begun.give_up(direction, name, &error),
                }
            };
            if let Some((first, others)) = origins.split_first() {
                if *inherited == Inherited::Convert {
                    begin(*first, false);
                }
                for other in others.iter().filter(|_| *inherited != Inherited::New) {
                    begin(*other, true);
                }
            }
            let gaps = continuity::gaps(old, &plan, new.0, origins);
            begun
                .losses
                .extend(gaps.into_iter().map(|message| (direction, message)));
        }
        begun
    }

    pub fn extend(&mut self, other: Self) {
        self.transfers.extend(other.transfers);
        self.losses.extend(other.losses);
    }

    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Returns the content that could not be taken over so far.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Returns the rows that [`Self::finish`] would return now, while the old programs still count.
    /// Leaves out maps that can only be popped; these keep their values.
    pub fn preview(&self) -> Result<Vec<Remains>, KernelError> {
        self.transfers
            .iter()
            .filter_map(|transfer| transfer.preview().transpose())
            .collect()
    }

    /// Takes over the rest. Call this once no CPU runs the old programs any more. Returns the rows
    /// that belong to the open window, and the losses.
    pub fn finish(self) -> (Vec<Remains>, Vec<Loss>) {
        let mut remains = Vec::new();
        let mut finished = Self::default();
        for transfer in &self.transfers {
            let (direction, name) = (transfer.direction, &transfer.name);
            match transfer.finish() {
                Ok((rest, left)) => {
                    remains.extend(rest);
                    finished.leave(direction, name, left, transfer.max_entries);
                }
                Err(error) => finished.give_up(direction, name, &error),
            }
        }
        (remains, finished.losses)
    }

    fn leave(&mut self, direction: &'static str, map: &str, left: usize, max_entries: u32) {
        if left > 0 {
            let message = format!(
                "map {map}: {left} counted entries do not fit into its {max_entries} entries and were left \
                 out"
            );
            tracing::warn!(
                direction,
                message,
                "a replacement does not take over all entries"
            );
            self.losses.push((direction, message));
        }
    }

    fn give_up(&mut self, direction: &'static str, map: &str, error: &KernelError) {
        let error = with_causes(error);
        tracing::error!(
            direction,
            map,
            error,
            "the content of a map could not be taken over"
        );
        self.losses.push((
            direction,
            format!("map {map}: the counts could not be taken over: {error}"),
        ));
    }
}

impl Transfer {
    /// Begins the transfer of a map of the old direction `of` to a map of the new `direction`. The
    /// transfer may add the content to another map.
    fn begin(
        direction: &'static str,
        (of, (old, old_fds), active): (&'static str, (&MapPlan, &Twins<OwnedFd>), usize),
        (new, new_fds): (&MapPlan, &Twins<OwnedFd>),
        is_added: bool,
        capabilities: &Capabilities,
        more_known: &MoreKnown<'_>,
    ) -> Result<Option<Self>, KernelError> {
        let name = &new.name;
        let failed = |source| KernelError::new("taking over", format!("map {name}"), source);
        let cpus = capabilities.kernel.possible_cpus;
        let (Some(mut from), Some(to)) = (
            old.shape.table(&old.spec, cpus),
            new.shape.table(&new.spec, cpus),
        ) else {
            return Ok(None);
        };
        if new.spec.frozen || convert(&RawTable::default(), &from, &to).is_none() {
            return Ok(None);
        }
        continuity::forget_new_initials(&mut from, old, new);
        let fd = old_fds.of_twin(active).try_clone().map_err(failed)?;
        let access = [capabilities.access(from.kind); 2];
        let layout = Arc::new(from.clone());
        let old = MetricMap::Table(MapTable::new(
            fd,
            name,
            layout,
            old.spec.max_entries,
            access,
        ));
        let target = match new_fds {
            Twins::Private(_) => Target::Window,
            Twins::Shared(fd) => Target::Live(fd.try_clone().map_err(failed)?, HashMap::new()),
        };
        let blank = blank(&new.spec.initial, &target, &to);
        let name = name.clone();
        let max_entries = new.spec.max_entries;
        let (left, filled) = (
            HashSet::new(),
            new.fill.iter().map(|entry| entry.key.clone()).collect(),
        );
        let mut transfer = Self {
            direction,
            interface: None,
            name,
            old,
            from,
            to,
            blank,
            target,
            max_entries,
            left,
            filled,
        };
        transfer.copy(of, is_added, more_known)?;
        Ok(Some(transfer))
    }

    /// Copies the present content of the old map, which belongs to the direction `of`, to a new map
    /// that counts packets.
    fn copy(
        &mut self,
        of: &'static str,
        is_added: bool,
        more_known: &MoreKnown<'_>,
    ) -> Result<(), KernelError> {
        // Queues and stacks are not copied now: a popped value would be missing in the old map,
        // which packets still use.
        let is_live = matches!(self.target, Target::Live(..));
        if self.to.kind.family() == MapFamily::Fifo || !is_live {
            return Ok(());
        }
        let rows = self.old.read(AfterRead::Keep)?;
        let counted = self.converted(&rows);
        let all = more_known(of, &self.name, &self.from, rows);
        let all = self.converted(&all);
        self.put(&counted, &all, is_added)
            .map_err(|source| KernelError::new("taking over", format!("map {}", self.name), source))
    }

    fn preview(&self) -> Result<Option<Remains>, KernelError> {
        let is_window = matches!(self.target, Target::Window);
        if !is_window || self.to.kind.family() == MapFamily::Fifo {
            return Ok(None);
        }
        Ok(Some(self.remains(self.rows(AfterRead::Keep)?)))
    }

    fn remains(&self, rows: RawTable) -> Remains {
        let (map, layout) = (self.name.clone(), self.to.clone());
        Remains {
            direction: self.direction,
            interface: self.interface.clone(),
            map,
            layout,
            rows,
        }
    }

    /// Reads the old map and converts its rows to the new layout.
    fn rows(&self, after: AfterRead) -> Result<RawTable, KernelError> {
        Ok(self.converted(&self.old.read(after)?))
    }

    fn converted(&self, rows: &RawTable) -> RawTable {
        let rows = convert_onto(&self.blank, rows, &self.from, &self.to).unwrap_or_default();
        if self.filled.is_empty() {
            return rows;
        }
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (key, value) in rows
            .entries(&self.to)
            .filter(|(key, _)| !self.filled.contains(*key))
        {
            keys.extend_from_slice(key);
            values.extend_from_slice(value);
        }
        RawTable {
            keys,
            values,
            ..RawTable::default()
        }
    }

    /// Writes `all` into a map that no program uses yet: the rows that the old map has `counted`,
    /// and the counts from outside the map. If the content `is_added`, it is added to the content
    /// of the map. Entries that do not fit are left out.
    fn put(&mut self, counted: &RawTable, all: &RawTable, is_added: bool) -> io::Result<()> {
        let Target::Live(map, copied) = &mut self.target else {
            return Ok(());
        };
        if is_added {
            self.left = add_changes(map, &self.to, &HashMap::new(), &HashSet::new(), all)?;
        }
        for (key, value) in all.entries(&self.to).filter(|_| !is_added) {
            match map::map_update(map.as_fd(), key, value) {
                Ok(()) => {}
                Err(error) if is_full(&error) => drop(self.left.insert(key.into())),
                Err(error) => return Err(error),
            }
        }
        let there = counted
            .entries(&self.to)
            .filter(|(key, _)| !self.left.contains(*key));
        copied.extend(there.map(|(key, value)| (key.into(), value.into())));
        Ok(())
    }

    /// Returns the rows of the open window, and the number of entries that did not fit into the new
    /// map and were not known before.
    fn finish(&self) -> Result<(Option<Remains>, usize), KernelError> {
        let fifo = self.to.kind.family() == MapFamily::Fifo;
        let rows = self.rows(if fifo {
            AfterRead::Reset
        } else {
            AfterRead::Keep
        })?;
        let Target::Live(map, copied) = &self.target else {
            return Ok((Some(self.remains(rows)), 0));
        };
        let failed = |source| KernelError::new("taking over", format!("map {}", self.name), source);
        if !fifo {
            let left = add_changes(map, &self.to, copied, &self.left, &rows).map_err(failed)?;
            return Ok((None, left.len()));
        }
        let mut left = 0;
        for (_, value) in rows.entries(&self.to) {
            match map::map_update(map.as_fd(), &[], value) {
                Err(error) if is_full(&error) => left += 1,
                put => put.map_err(failed)?,
            }
        }
        Ok((None, left))
    }
}

/// Returns the first value of a new entry. The rows of a private map begin with zeros, because a
/// reading adds them to the values of the map.
fn blank(initial: &[u8], target: &Target, to: &TableLayout) -> Vec<u8> {
    match (initial, target) {
        ([], _) | (_, Target::Window) => vec![0; to.value.size],
        (initial, Target::Live(..)) => initial.to_vec(),
    }
}

#[cfg(test)]
mod tests;
