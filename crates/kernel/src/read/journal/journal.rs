//! The rows that were taken out of maps while packets may change the maps. The journal keeps them
//! until they are stored, in memory that outlives this process: a killed process would lose rows in
//! its own memory.
//!
//! | map | method | loss by a kill |
//! |---|---|---|
//! | HASH, LRU_HASH and their PERCPU kinds, if the kernel has `BPF_MAP_LOOKUP_AND_DELETE_BATCH` | one call writes keys, values, count and cursor into the journal ([`batch`]) | nothing |
//! | QUEUE, STACK | one call pops a value into the journal | nothing |
//! | others, chunk by chunk | copied into the journal, marked as *started*, reset, marked as *done*; after a kill reset again | the counts between the copy and the second reset, in the entries of one chunk |
//! | maps of maps | each inner map in a journal of its own | as the inner map |
//!
//! The kernel copies the entries into the journal within the system call, which a killed process
//! still completes. Each pop is prepared: the head of the map is looked up and stored as
//! *expected*, its complement is stored in the row that will get the value, and the row is marked
//! as *started*. After a crash, the row that was started last still has the complement if nothing
//! was popped. For a map at rest, such as the idle twin's, this test is exact: the pop returns the
//! value that was looked up. The pop of a STACK that packets push to may return another value. The
//! value is lost only if it is the complement of the expected one.
//!
//! The memory is that of pinned array maps, not that of a file. The kernel makes shared pages of a
//! file read-only at each writeback: the copy after the pop would fault, and fail if the file
//! system refuses the page or a signal comes. The pages of an array map are present from its
//! creation on. The journal also lives exactly as long as the maps of its rows: none of them
//! outlives a restart of the machine. A full disk does no harm.

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use twinprobe_ebpf_common::{MapFamily, RawTable, TableLayout};

use crate::read::journal::batch::{Batch, Moved};
use crate::read::journal::segment::{JournalShape, Segment, SegmentWord};
use crate::read::table::{self, Sink};
use crate::sys::call::found;
use crate::sys::object;

/// The rows of one map, in the order in which they were taken out of it.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    layout: Arc<TableLayout>,
    shape: JournalShape,
    chunk_bytes: usize,
    pub segments: Vec<Segment>,
    pub batch: Option<Batch>,
    /// The value at the head of the map, for a map that is popped.
    pub head: Vec<u8>,
}

impl Journal {
    /// Opens the journal that an earlier process has left in `directory`, which is in bpffs, or
    /// begins a new one, which has no pins before its first row. Fails with
    /// [`io::ErrorKind::InvalidData`] if the pins there are not a journal of maps with this layout.
    /// They have been set aside then, and the next call begins a new journal.
    pub fn open(directory: &Path, layout: &Arc<TableLayout>) -> io::Result<Self> {
        let (key, value) = (layout.key.size, layout.value_stride());
        let shape = JournalShape {
            kind: layout.kind.bpf_type().unwrap_or(0),
            key,
            value,
        };
        let mut journal = Self {
            directory: directory.to_owned(),
            layout: Arc::clone(layout),
            shape,
            chunk_bytes: table::CHUNK_BYTES,
            segments: Vec::new(),
            batch: None,
            head: vec![0; value],
        };
        if let Err(reason) = journal.recover()? {
            let aside = set_aside(directory)?;
            let (directory, aside) = (directory.display(), aside.display());
            let text = format!(
                "{directory} is not the journal of this map: {reason}; it was moved to {aside}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(journal)
    }

    /// Returns the number of complete rows.
    pub fn len(&self) -> usize {
        self.word(SegmentWord::Done)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes on all rows in chunks, as a reading of a map does. The rows stay in the journal.
    pub fn read(&self, sink: &mut Sink<'_>) -> ControlFlow<()> {
        self.read_range(0, self.len(), sink)
    }

    pub fn read_range(&self, mut from: usize, to: usize, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let (key, row) = (self.shape.key, self.shape.row().max(1));
        let at_once = (self.chunk_bytes / row).max(1);
        let mut chunk = RawTable::default();
        while let Some((segment, slot)) = self.place(from).filter(|_| from < to) {
            let segment = &self.segments[segment];
            let count = at_once.min(segment.slots() - slot).min(to - from);
            let rows = segment.rows(slot, count);
            chunk.clear();
            if key == 0 {
                chunk.values.extend_from_slice(rows);
            } else {
                for row in rows.chunks_exact(row) {
                    chunk.keys.extend_from_slice(&row[..key]);
                    chunk.values.extend_from_slice(&row[key..]);
                }
            }
            sink(&mut chunk)?;
            from += count;
        }
        ControlFlow::Continue(())
    }

    /// Removes the journal in `directory`, once its rows are stored elsewhere or not wanted.
    pub fn discard(directory: &Path) -> io::Result<()> {
        // A journal without its first segment counts as removed, even if the removal of the rest is
        // interrupted.
        found(fs::remove_file(segment_path(directory, 0)))?;
        found(fs::remove_dir_all(directory)).map(drop)
    }

    /// Returns a number of the first segment; 0 if there is no segment yet.
    pub fn word(&self, word: SegmentWord) -> usize {
        self.segments.first().map_or(0, |first| first.word(word))
    }

    pub fn set(&self, word: SegmentWord, number: usize) {
        self.segments
            .iter()
            .take(1)
            .for_each(|first| first.set(word, number));
    }

    /// Writes rows; the first row gets this number. The rows belong to the journal once
    /// [`SegmentWord::Done`] is at least as large as their numbers.
    pub fn write(&mut self, number: usize, rows: &RawTable) -> io::Result<()> {
        let (layout, key_size) = (Arc::clone(&self.layout), self.shape.key);
        for (number, (key, value)) in (number..).zip(rows.entries(&layout)) {
            let (segment, slot) = self.room(number)?;
            let slot = self.segments[segment].slot(slot);
            slot[..key_size].copy_from_slice(key);
            slot[key_size..].copy_from_slice(value);
        }
        Ok(())
    }

    /// Turns the entries of the present batch into rows of the journal. A repetition after a crash
    /// changes nothing.
    pub fn settle_batch(&mut self) -> io::Result<()> {
        let Some(Moved {
            before,
            rows,
            cursor,
        }) = self.batch.as_ref().and_then(Batch::moved)
        else {
            return Ok(());
        };
        if let Some(cursor) = cursor {
            self.write(before, &rows)?;
            let done = before + rows.len(&self.layout);
            self.set(SegmentWord::Cursor, cursor);
            self.set(SegmentWord::Started, done);
            self.set(SegmentWord::Done, done);
        }
        self.batch.iter().for_each(Batch::finish);
        Ok(())
    }

    /// Returns a batch with room for at least this many entries.
    pub fn batch(&mut self, room: usize) -> io::Result<&mut Batch> {
        self.room(0)?;
        let fits = |batch: &Batch| batch.room >= room;
        let batch = match self.batch.take_if(|batch| fits(batch)) {
            Some(batch) => batch,
            None => {
                let path = self.directory.join(BATCH);
                if self.batch.is_some() {
                    fs::remove_file(&path)?;
                    self.batch = None;
                }
                Batch::create(&path, self.shape, room)?
            }
        };
        Ok(self.batch.insert(batch))
    }

    /// Returns the segment and the slot of the row with this number. Adds a segment if there is no
    /// room for the row.
    pub fn room(&mut self, number: usize) -> io::Result<(usize, usize)> {
        self.place(number).map_or_else(|| self.grow(), Ok)
    }

    /// Returns the segment and the slot of the row with this number; `None` if there is no room for
    /// the row.
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
            // An interrupted removal may have left other pins of an earlier journal.
            Self::discard(&self.directory)?;
            fs::create_dir_all(&self.directory)?;
        }
        let path = segment_path(&self.directory, index);
        self.segments
            .push(Segment::create(&path, self.shape, index)?);
        Ok((index, 0))
    }

    /// Adopts the pinned segments and the pinned batch. The inner error is the reason why they are
    /// not a journal of this map.
    fn recover(&mut self) -> io::Result<Result<(), String>> {
        while let Some(map) = found(object::obj_get(&segment_path(
            &self.directory,
            self.segments.len(),
        )))? {
            match Segment::adopt(&map, self.shape, self.segments.len())? {
                Ok(segment) => self.segments.push(segment),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        if !self.segments.is_empty()
            && let Some(map) = found(object::obj_get(&self.directory.join(BATCH)))?
        {
            match Batch::adopt(&map, self.shape)? {
                Some(batch) => self.batch = Some(batch),
                None => return Ok(Err("its batch is another map".to_owned())),
            }
        }
        let settled = self.settle();
        if settled.is_ok() {
            self.settle_batch()?;
        }
        Ok(settled)
    }

    /// Decides whether the pop that was started last has taken place. Fails with the reason if the
    /// numbers of rows contradict each other.
    fn settle(&mut self) -> Result<(), String> {
        let (started, done) = (
            self.word(SegmentWord::Started),
            self.word(SegmentWord::Done),
        );
        let room: usize = self.segments.iter().map(Segment::slots).sum();
        let popped = self.layout.kind.family() == MapFamily::Fifo;
        if started
            .checked_sub(done)
            .is_none_or(|open| popped && open > 1)
            || started > room
        {
            return Err(format!(
                "the header says {done} of {started} rows, but there are {room} slots"
            ));
        }
        if let Some((segment, slot)) = self.place(done).filter(|_| popped && started > done) {
            let expected = self.segments[0].expected().to_vec();
            let slot = self.segments[segment].slot(slot);
            let is_there = slot
                .iter()
                .zip(&expected)
                .any(|(slot, expected)| *slot != !expected);
            self.set(SegmentWord::Done, done + usize::from(is_there));
            self.set(SegmentWord::Started, done + usize::from(is_there));
        }
        Ok(())
    }
}

/// The name of the batch's pin beside the pins of the segments.
const BATCH: &str = "batch";

fn segment_path(directory: &Path, index: usize) -> PathBuf {
    directory.join(index.to_string())
}

/// Renames `directory`, so that the operator can examine it. Replaces a directory that was renamed
/// before.
fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    let mut aside = directory.as_os_str().to_owned();
    // Names in bpffs have no dots.
    aside.push("_damaged");
    let aside = PathBuf::from(aside);
    Journal::discard(&aside)?;
    fs::rename(directory, &aside)?;
    Ok(aside)
}
