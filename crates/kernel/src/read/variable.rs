//! Global variables: parts of the only value of an array map. The value is mapped into memory, so
//! that exactly the variable's bytes are read and written.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{RawTable, TableLayout};

use crate::read::table::Sink;
use crate::sys::mapping::Mapping;

/// A variable in a data section.
#[derive(Debug)]
pub struct Variable {
    /// The memory of the section of one twin.
    pub memory: Arc<Mapping>,
    pub layout: Arc<TableLayout>,
    /// The offset of the variable in the section, in bytes.
    pub offset: usize,
    /// The bytes that a reset writes, as many as the variable has.
    pub initial: Box<[u8]>,
}

impl Variable {
    /// Reads the variable, and resets it with [`AfterRead::Reset`].
    pub fn read(&self, after: AfterRead, sink: &mut Sink<'_>) -> ControlFlow<()> {
        let mut values = vec![0; self.initial.len()];
        let mut done = 0;
        while done < values.len() {
            done += self.word(after, done, &mut values[done..]);
        }
        sink(&mut RawTable {
            values,
            ..RawTable::default()
        })
    }

    /// Reads the largest word that is aligned and fits, and returns its size. A word is read and
    /// reset in one atomic step, so that an addition by a program to an aligned number is in this
    /// reading or in the next.
    fn word(&self, after: AfterRead, done: usize, out: &mut [u8]) -> usize {
        macro_rules! step {
            ($int:ident) => {{
                const SIZE: usize = size_of::<$int>();
                let word = self.memory.$int(self.offset + done);
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
