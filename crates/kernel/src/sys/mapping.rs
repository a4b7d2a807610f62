//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};

/// A shared mapping of a descriptor, which is unmapped on drop.
#[derive(Debug)]
pub struct Mapping(MmapRaw);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingAccess {
    Read,
    ReadWrite,
}

impl Mapping {
    /// Maps `len` bytes at `offset`, which is a multiple of the size of a page.
    pub fn new(
        fd: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        access: MappingAccess,
    ) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset as u64).len(len);
        let memory = match access {
            MappingAccess::Read => options.map_raw_read_only(&fd),
            MappingAccess::ReadWrite => options.map_raw(&fd),
        };
        memory.map(Self)
    }

    /// Returns the word at `offset`, which the kernel and this process may write at the same time.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        self.word(offset)
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        self.word(offset)
    }

    pub fn u16(&self, offset: usize) -> &AtomicU16 {
        self.word(offset)
    }

    pub fn u8(&self, offset: usize) -> &AtomicU8 {
        self.word(offset)
    }

    /// Returns bytes of the mapping.
    ///
    /// # Safety
    /// No code writes the bytes as long as the reference lives.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: within the mapping, which lives as long as `self`; the caller vouches for the
        // content.
        unsafe { std::slice::from_raw_parts(self.pointer(offset, len), len) }
    }

    /// Returns bytes of the mapping, for writing.
    ///
    /// # Safety
    /// No other code reads or writes the bytes as long as the reference lives, neither through this
    /// mapping nor through another one.
    pub unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: within the mapping, which lives as long as `self`; the caller vouches for the
        // rest.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(offset, len), len) }
    }

    /// Returns the word at `offset`; `A` is an atomic integer.
    fn word<A>(&self, offset: usize) -> &A {
        let word = self.pointer(offset, size_of::<A>()).cast::<A>();
        assert!(word.is_aligned(), "a word is aligned");
        // SAFETY: within the mapping, aligned, and any bits are a valid atomic integer.
        unsafe { &*word }
    }

    /// Returns the address of `len` bytes at `offset`, which must lie in the mapping.
    fn pointer(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.0.len() && len <= self.0.len() - offset,
            "bytes lie in the mapping"
        );
        self.0.as_mut_ptr().wrapping_add(offset)
    }
}
