//! Global variables: parts of the only value of an array map. The value is mapped into memory, so that exactly the
//! variable's bytes are read and written.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::read::table::Sink;
use crate::sys::mapping::{Access, Mapping};

/// The memory of one data section of one twin.
#[derive(Debug)]
pub struct Section {
    memory: Mapping,
}

/// A variable in a section.
#[derive(Debug)]
pub struct Variable {
    section: Arc<Section>,
    layout: Arc<TableLayout>,
    offset: usize,
    /// The bytes that a reset writes.
    initial: Box<[u8]>,
}

impl Section {
    /// Maps the memory of `map`, which was made with `BPF_F_MMAPABLE` and has `len` bytes.
    pub fn new(map: BorrowedFd<'_>, len: usize, access: Access) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { memory: Mapping::new(map, 0, len, access)? }))
    }
}

impl Variable {
    /// Makes a variable at `offset` bytes in the section. `initial` has the variable's size.
    pub fn new(section: Arc<Section>, layout: Arc<TableLayout>, offset: usize, initial: Box<[u8]>) -> Self {
        Self { section, layout, offset, initial }
    }

    pub const fn layout(&self) -> &Arc<TableLayout> {
        &self.layout
    }

    /// Reads the variable, and resets it with [`AfterRead::Reset`].
    pub fn read(&self, after: AfterRead, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let mut values = vec![0; self.initial.len()];
        let mut done = 0;
        while done < values.len() {
            done += self.word(after, done, &mut values[done..]);
        }
        sink(&RawTable { values, ..RawTable::default() })
    }

    /// Reads the largest word that is aligned and fits, and returns its size. A word is read and reset in one atomic
    /// step, so that an addition by a program to an aligned number is in this reading or in the next.
    fn word(&self, after: AfterRead, done: usize, out: &mut [u8]) -> usize {
        macro_rules! step {
            ($int:ident) => {{
                const SIZE: usize = size_of::<$int>();
                let word = self.section.memory.$int(self.offset + done);
                let value = match after {
                    AfterRead::Keep => word.load(Relaxed),
                    AfterRead::Reset => {
                        let mut initial = [0; SIZE];
                        initial.copy_from_slice(&self.initial[done..done + SIZE]);
                        word.swap(<$int>::from_ne_bytes(initial), Relaxed)
                    }
                };
                out[..SIZE].copy_from_slice(&value.to_ne_bytes());
                SIZE
            }};
        }
        let fits = |size: usize| out.len() >= size && (self.offset + done).is_multiple_of(size);
        match () {
            () if fits(8) => step!(u64),
            () if fits(4) => step!(u32),
            () if fits(2) => step!(u16),
            () => step!(u8),
        }
    }
}
