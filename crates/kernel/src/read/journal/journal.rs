//! What was popped from a QUEUE or STACK, kept in memory that outlives this process.
//!
//! Only popping shows what lies behind the head of such a map, and a process that is killed before it has stored what it
//! popped would take it along. So the kernel itself copies what it pops into the journal, within the system call, which
//! a killed process still completes. Before each pop the head is looked at. It is written down as *expected*, and its
//! complement into the slot that is to take the value; then the slot counts as *started*. After a crash the slot that was
//! started last has the value if it was popped, and the complement if it was not: no value is lost or doubled, whatever the
//! instant. That needs a map at rest, as the idle twin's is: what is seen at its head is what the pop gives.
//!
//! The memory is that of array maps that are pinned, not that of a file. Pages of a file that are shared become read-only
//! whenever they are written back: the copy would have to fault them in after the pop, which the file system may refuse
//! and a signal ends. Pages of an array map are all there from the mapping on and stay. The journal also lives as long as
//! what it was popped from: neither outlives the machine, and a full disk is in nobody's way.

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::{fs, io};

use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::read::journal::segment::{Segment, Shape};
use crate::read::table::{self, Sink, Table};
use crate::sys::call::KernelError;
use crate::sys::{map, object};

/// Values in the order in which they were popped.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    shape: Shape,
    chunk_bytes: usize,
    segments: Vec<Segment>,
    /// The head of the map.
    head: Vec<u8>,
}

impl Journal {
    /// What an earlier process has left in `directory`, which is in bpffs, else a new journal, for which nothing is made
    /// there before the first pop. An error of the kind `InvalidData` says that what was found is not a journal of maps
    /// with this layout. It has been set aside then, and the next call gives a new one.
    pub fn open(directory: &Path, layout: &TableLayout) -> io::Result<Self> {
        let shape = Shape { kind: layout.kind.bpf_type().unwrap_or(0), value: layout.value_stride() };
        let mut journal = Self {
            directory: directory.to_owned(),
            shape,
            chunk_bytes: table::CHUNK_BYTES,
            segments: Vec::new(),
            head: vec![0; shape.value],
        };
        if let Err(reason) = journal.recover()? {
            let aside = set_aside(directory)?;
            let (directory, aside) = (directory.display(), aside.display());
            let text =
                format!("{directory} is not the journal of this map: {reason}; it was moved to {aside}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(journal)
    }

    /// Values in it.
    pub(crate) fn len(&self) -> usize {
        self.segments.first().map_or(0, Segment::done)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values.
    #[cfg(test)]
    pub fn rows(&self) -> RawTable {
        let mut all = RawTable::default();
        let _ = self.read(&mut |chunk| {
            all.append(chunk);
            ControlFlow::Continue(())
        });
        all
    }

    /// Hands on all values in chunks, as reading a map does. They stay in the journal.
    pub fn read(&self, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let mut chunk = RawTable::default();
        let at_once = (self.chunk_bytes / self.shape.value.max(1)).max(1);
        let mut left = self.len();
        for segment in &self.segments {
            let mut from = 0;
            while from < segment.slots() && left > 0 {
                let count = at_once.min(segment.slots() - from).min(left);
                chunk.clear();
                chunk.values.extend_from_slice(segment.values(from, count));
                sink(&chunk)?;
                (from, left) = (from + count, left - count);
            }
        }
        ControlFlow::Continue(())
    }

    /// To be called once what it holds is stored elsewhere, or is in nobody's interest.
    #[cfg(test)]
    pub fn remove(self) -> io::Result<()> {
        Self::discard(&self.directory)
    }

    /// As [`Self::remove`], whatever there is.
    pub fn discard(directory: &Path) -> io::Result<()> {
        let absent = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        // Without its first segment it is no journal any more.
        absent(fs::remove_file(segment_path(directory, 0)))?;
        absent(fs::remove_dir_all(directory))
    }

    /// Moves the head of the map into the journal. `false`: there is none.
    fn pop(&mut self, map: &Table) -> Result<bool, KernelError> {
        if !map::map_lookup(map.fd(), &[], &mut self.head).map_err(|error| map.error("look-up", error))? {
            return Ok(false);
        }
        let place = self.prepare().map_err(|error| map.error("preparation of the journal", error))?;
        self.start();
        match map::map_lookup_and_delete(map.fd(), &[], self.slot(place)) {
            Ok(true) => {
                self.finish();
                Ok(true)
            }
            Ok(false) => {
                self.withdraw();
                Ok(false)
            }
            Err(error) => {
                self.withdraw();
                Err(map.error("pop", error))
            }
        }
    }

    /// Writes down what is expected. Gives the segment and the slot in it that is to take the value.
    fn prepare(&mut self) -> io::Result<(usize, usize)> {
        let number = self.len();
        let place = match self.place(number) {
            Some(place) => place,
            None => self.grow()?,
        };
        self.segments[0].expected().copy_from_slice(&self.head);
        for (slot, byte) in self.segments[place.0].slot(place.1).iter_mut().zip(&self.head) {
            *slot = !byte;
        }
        Ok(place)
    }

    fn start(&self) {
        self.segments[0].set_started(self.len() + 1);
    }

    fn slot(&mut self, (segment, slot): (usize, usize)) -> &mut [u8] {
        self.segments[segment].slot(slot)
    }

    /// The value is there.
    fn finish(&self) {
        self.segments[0].set_done(self.len() + 1);
    }

    /// It is not.
    fn withdraw(&self) {
        self.segments[0].set_started(self.len());
    }

    /// Where the value of this number belongs, if there is room for it.
    fn place(&self, number: usize) -> Option<(usize, usize)> {
        let mut before = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            if number - before < segment.slots() {
                return Some((index, number - before));
            }
            before += segment.slots();
        }
        None
    }

    fn grow(&mut self) -> io::Result<(usize, usize)> {
        let index = self.segments.len();
        if index == 0 {
            // Of a journal whose removal was interrupted.
            Self::discard(&self.directory)?;
            fs::create_dir_all(&self.directory)?;
        }
        let path = segment_path(&self.directory, index);
        self.segments.push(Segment::create(&path, self.shape, index)?);
        Ok((index, 0))
    }

    /// The inner error says what is wrong with what was found.
    fn recover(&mut self) -> io::Result<Result<(), String>> {
        loop {
            let index = self.segments.len();
            match object::obj_get(&segment_path(&self.directory, index)) {
                Ok(map) => match Segment::adopt(&map, self.shape, index)? {
                    Ok(segment) => self.segments.push(segment),
                    Err(reason) => return Ok(Err(reason)),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.settle())
    }

    /// Decides whether the pop that was started last took place.
    fn settle(&mut self) -> Result<(), String> {
        let Some(first) = self.segments.first() else { return Ok(()) };
        let (started, done) = (first.started(), first.done());
        let room: usize = self.segments.iter().map(Segment::slots).sum();
        if started.checked_sub(done).is_none_or(|open| open > 1) || started > room {
            return Err(format!("{done} of {started} values are said to be in {room} slots"));
        }
        if let Some(place) = self.place(done).filter(|_| started > done) {
            let expected = self.segments[0].expected().to_vec();
            let slot = self.slot(place);
            if *slot == expected {
                self.finish();
            } else if slot.iter().zip(&expected).all(|(slot, expected)| *slot == !expected) {
                self.withdraw();
            } else {
                return Err(format!("value {done} is neither what was expected nor absent"));
            }
        }
        Ok(())
    }
}

/// Pops all there is. After an error `journal` has what was popped, and calling again goes on.
pub fn drain(map: &Table, journal: &mut Journal) -> Result<(), KernelError> {
    for _ in 0..map.max_entries {
        if !journal.pop(map)? {
            break;
        }
    }
    Ok(())
}

fn segment_path(directory: &Path, index: usize) -> PathBuf {
    directory.join(index.to_string())
}

/// Keeps one such directory for who wants to look into it.
fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    let mut aside = directory.as_os_str().to_owned();
    // Names in bpffs have no dots.
    aside.push("_damaged");
    let aside = PathBuf::from(aside);
    Journal::discard(&aside)?;
    fs::rename(directory, &aside)?;
    Ok(aside)
}
