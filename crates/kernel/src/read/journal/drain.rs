//! The transfer of a map's content into its journal, for each kind of map.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{MapFamily, RawTable};

use crate::read::access::Strategy;
use crate::read::journal::journal::Journal;
use crate::read::journal::segment::SegmentWord;
use crate::read::map::MetricMap;
use crate::read::nested;
use crate::read::table::{MapTable, ReadResult, Sink, collect};
use crate::read::variable::Variable;
use crate::read::walk::keys::SeenKeys;
use crate::sys::call::KernelError;
use crate::sys::map;
use twinprobe_faults::crash;

impl MetricMap {
    /// Moves the content into the journal in `directory`, which survives a crash of this process.
    /// After an error or a crash, the next call continues the work; once the map has been walked to
    /// its end, a call moves nothing.
    pub fn drain_into(&self, directory: &Path) -> Result<(), KernelError> {
        if let Self::Table(table) = self
            && table.layout.kind.family() == MapFamily::Nested
        {
            let mut drain = |id, inner| {
                Self::Table(inner)
                    .drain_into(&of_inner(directory, id))
                    .map(|()| RawTable::default())
            };
            return nested::each(table, &mut |_| ControlFlow::Continue(()), &mut drain).map(drop);
        }
        let mut journal = self.journal(directory)?;
        if journal.word(SegmentWord::Complete) == 0 {
            match self {
                Self::Variable(variable) => swap(variable, &mut journal)?,
                Self::Table(table) if table.layout.kind.family() == MapFamily::Fifo => {
                    pop_all(table, &mut journal)?;
                }
                Self::Table(table) if table.strategy() == Strategy::LookupAndDeleteBatch => {
                    take_batches(table, &mut journal)?;
                }
                Self::Table(table) => copy_and_reset(table, &mut journal)?,
            }
            journal.set(SegmentWord::Complete, 1);
        }
        Ok(())
    }

    /// Passes on the rows of the journal in `directory`, in the same way as [`Self::read_chunks`].
    pub fn read_drained(&self, directory: &Path, sink: &mut Sink<'_>) -> ReadResult {
        match self {
            Self::Table(table) if table.layout.kind.family() == MapFamily::Nested => {
                let mut seen = std::collections::BTreeSet::new();
                // An inner map in two slots is shown in the first one.
                nested::each(table, sink, &mut |id, inner| match seen.insert(id) {
                    true => collect(|sink| {
                        Self::Table(inner).read_drained(&of_inner(directory, id), sink)
                    }),
                    false => Ok(RawTable::default()),
                })
            }
            _ => Ok(self.journal(directory)?.read(sink)),
        }
    }

    /// Removes the journal in `directory`.
    pub fn forget_drained(directory: &Path) -> io::Result<()> {
        Journal::discard(directory)
    }

    fn journal(&self, directory: &Path) -> Result<Journal, KernelError> {
        Journal::open(directory, self.layout()).map_err(|error| {
            KernelError::new("opening the journal", self.layout().kind.name(), error)
        })
    }
}

fn of_inner(directory: &Path, id: u32) -> PathBuf {
    directory.join(format!("inner_{id}"))
}

fn unprepared(map: &MapTable) -> impl Fn(io::Error) -> KernelError {
    |error| map.error("preparation of the journal", error)
}

/// Pops all values, but at most as many as the map has room for: packets may push values as fast as
/// they are popped.
pub fn pop_all(map: &MapTable, journal: &mut Journal) -> Result<(), KernelError> {
    while journal.len() < map.max_entries && journal.pop(map)? {}
    Ok(())
}

fn take_batches(map: &MapTable, journal: &mut Journal) -> Result<(), KernelError> {
    // A map without entries gets no journal, because a journal costs several maps in the kernel.
    let mut key = vec![0; map.key_size()];
    let any = map::map_next_key(map.fd(), None, &mut key)
        .map_err(|error| map.error("key walk", error))?;
    if journal.segments.is_empty() && !any {
        return Ok(());
    }
    journal.reset_started(map)?;
    let mut room = map.batch_len();
    loop {
        journal.settle_batch().map_err(unprepared(map))?;
        let (before, cursor) = (journal.len(), journal.word(SegmentWord::Cursor));
        let outcome = journal
            .batch(room)
            .map_err(unprepared(map))?
            .take(map.fd(), before, cursor);
        crash::point("moved");
        journal.settle_batch().map_err(unprepared(map))?;
        let Err(error) = outcome else { continue };
        match error.raw_os_error() {
            Some(libc::ENOENT) => return Ok(()),
            // The next bucket has more entries than `room`. No bucket has more entries than the
            // map, so `room` is doubled only a few times.
            Some(libc::ENOSPC) if room <= map.max_entries => room *= 2,
            Some(libc::EINTR) => {}
            _ => return Err(map.error("batch lookup", error)),
        }
    }
}

/// Moves the map into the journal, chunk by chunk: each chunk is copied into the journal, marked as
/// started, reset in the map, and marked as done.
fn copy_and_reset(map: &MapTable, journal: &mut Journal) -> Result<(), KernelError> {
    journal.reset_started(map)?;
    // After an interrupted walk, entries that are rows already are left out: their counts since
    // then belong to the next window.
    let mut known = (!journal.is_empty()).then(|| SeenKeys::new(map.key_size()));
    if let Some(known) = &mut known {
        let _ = journal.read(&mut |chunk| {
            chunk.entries(&map.layout).for_each(|(key, _)| {
                known.insert(key);
            });
            ControlFlow::Continue(())
        });
    }
    let mut failed = None;
    let mut sink = |chunk: &mut RawTable| {
        let new = known.as_mut().map(|known| {
            let mut new = RawTable::default();
            for (key, value) in chunk
                .entries(&map.layout)
                .filter(|(key, _)| known.insert(key))
            {
                new.keys.extend_from_slice(key);
                new.values.extend_from_slice(value);
            }
            new
        });
        // The previous chunk is reset only now: the walk has passed it, so that the reset does not
        // disturb the walk.
        match journal
            .reset_started(map)
            .and_then(|()| journal.start(map, new.as_ref().unwrap_or(chunk)))
        {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let _ = map.read_chunks(AfterRead::Keep, &mut sink)?;
    failed.map_or(Ok(()), Err)?;
    journal.reset_started(map)
}

/// Moves a variable into the journal word by word. So an addition by a program to an aligned number
/// is either in this window or in the next window.
fn swap(variable: &Variable, journal: &mut Journal) -> Result<(), KernelError> {
    let write = |after, journal: &mut Journal| {
        let mut written = Ok(());
        let _ = variable.read(after, &mut |rows| {
            written = journal.write(0, rows);
            ControlFlow::Continue(())
        });
        written.map_err(|error| KernelError::new("preparation of the journal", "a variable", error))
    };
    if !journal.is_empty() {
        return Ok(());
    }
    if journal.word(SegmentWord::Started) == 0 {
        write(AfterRead::Keep, journal)?;
        journal.set(SegmentWord::Started, 1);
        crash::point("copied");
        write(AfterRead::Reset, journal)?;
    } else {
        let _ = variable.read(AfterRead::Reset, &mut |_| ControlFlow::Continue(()));
    }
    crash::point("emptied");
    journal.set(SegmentWord::Done, 1);
    Ok(())
}

impl Journal {
    /// Writes rows and marks them as started; [`Self::reset_started`] resets their entries.
    pub fn start(&mut self, map: &MapTable, rows: &RawTable) -> Result<(), KernelError> {
        let done = self.len();
        self.write(done, rows).map_err(unprepared(map))?;
        self.set(SegmentWord::Started, done + rows.len(&map.layout));
        crash::point("copied");
        Ok(())
    }

    /// Resets the entries of the rows that are started but not done. A second reset after a crash
    /// does no harm.
    pub fn reset_started(&mut self, map: &MapTable) -> Result<(), KernelError> {
        let (done, started) = (self.len(), self.word(SegmentWord::Started));
        if done == started {
            return Ok(());
        }
        let mut result = Ok(());
        let _ = self.read_range(done, started, &mut |rows| {
            result = map.reset(rows);
            if result.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        result?;
        crash::point("emptied");
        self.set(SegmentWord::Done, started);
        Ok(())
    }

    /// Moves the head of the queue or stack into the journal. Returns false if the map is empty.
    pub fn pop(&mut self, map: &MapTable) -> Result<bool, KernelError> {
        if !map::map_lookup(map.fd(), &[], &mut self.head)
            .map_err(|error| map.error("look-up", error))?
        {
            return Ok(false);
        }
        let place = self.prepare().map_err(unprepared(map))?;
        let done = self.len();
        self.set(SegmentWord::Started, done + 1);
        let popped = map::map_lookup_and_delete(map.fd(), &[], self.slot(place));
        crash::point("popped");
        match popped {
            Ok(true) => self.set(SegmentWord::Done, done + 1),
            Ok(false) | Err(_) => self.set(SegmentWord::Started, done),
        }
        popped.map_err(|error| map.error("pop", error))
    }

    /// Stores the head as the expected value, and its complement in the row that will get the
    /// value. Returns the segment and the slot of this row.
    pub fn prepare(&mut self) -> io::Result<(usize, usize)> {
        let place = self.room(self.len())?;
        self.segments[0].expected().copy_from_slice(&self.head);
        for (slot, byte) in self.segments[place.0]
            .slot(place.1)
            .iter_mut()
            .zip(&self.head)
        {
            *slot = !byte;
        }
        Ok(place)
    }

    pub fn slot(&mut self, (segment, slot): (usize, usize)) -> &mut [u8] {
        self.segments[segment].slot(slot)
    }
}
