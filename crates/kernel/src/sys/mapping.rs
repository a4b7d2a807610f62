//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A shared mapping of a descriptor; unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that belongs to no thread; words that change are only reached through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

impl Mapping {
    pub fn new(fd: BorrowedFd<'_>, offset: usize, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice; it is unmapped in `drop` only.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { start, len })
    }

    /// A word that the kernel and we take turns to write.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned (both checked by `at`), and only reached as an atomic.
        unsafe { AtomicU64::from_ptr(self.at::<u64>(offset).cast()) }
    }

    /// As [`Self::u64`].
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.at::<u32>(offset).cast()) }
    }

    /// Bytes of the mapping.
    ///
    /// # Safety
    /// Nobody writes them as long as the reference lives.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "bytes lie in the mapping");
        // SAFETY: within the mapping, which lives as long as `self`; the caller vouches for the content.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// As [`Self::bytes`], to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them as long as the reference lives, through another mapping either.
    pub unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: within the mapping, which lives as long as `self`; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(offset, len).as_ptr(), len) }
    }

    /// Where `len` bytes at `offset` are.
    pub fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "bytes lie in the mapping");
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }
    }

    fn at<T>(&self, offset: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.len,
            "a word lies in the mapping"
        );
        // SAFETY: within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; every reference into it borrows `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

pub fn page_size() -> usize {
    // SAFETY: takes and returns numbers only.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
