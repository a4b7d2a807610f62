//! Epoch words: one 64-bit word for each probe, in one array map that programs and this process share.
//!
//! The parity of a probe's word says which twin its dispatchers call, on every interface and in both
//! directions. A flip is therefore one store: atomic for the whole probe, without a system call. The word
//! counts flips, so it is also the sequence number of the window that is open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::hook::Hook;
use super::mapping::{Access, Mapping};
use super::sys::{self, KernelError, MapCreate};

/// Words in one page; the first hold constants that dispatchers read, the rest belong to probes.
const WORDS: usize = 512;
const WORD_BYTES: usize = size_of::<u64>();
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The shared page and which of its words are taken.
#[derive(Debug)]
pub struct EpochPage {
    map: OwnedFd,
    page: Mapping,
    taken: Mutex<[bool; WORDS]>,
}

impl EpochPage {
    /// Creates the page and pins it at `pin`.
    pub fn create(pin: &Path) -> Result<Arc<Self>, KernelError> {
        let error = |call| move |source| KernelError::new(call, "the epoch map", source);
        let map = sys::map_create(&MapCreate {
            name: "tp_epochs",
            map_type: BPF_MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: (WORDS * WORD_BYTES) as u32,
            max_entries: 1,
            flags: BPF_F_MMAPABLE,
            ..MapCreate::default()
        })
        .map_err(error("creation"))?;
        let page =
            Mapping::new(map.as_fd(), 0, WORDS * WORD_BYTES, Access::ReadWrite).map_err(error("mapping"))?;
        sys::obj_pin(map.as_fd(), pin).map_err(error("pinning"))?;
        let mut taken = [false; WORDS];
        for hook in Hook::ALL {
            taken[Self::pass_word(hook)] = true;
        }
        let epochs = Self { map, page, taken: Mutex::new(taken) };
        for hook in Hook::ALL {
            epochs.atomic(Self::pass_word(hook)).store(u64::from(hook.pass() as u32), Ordering::Relaxed);
        }
        Ok(Arc::new(epochs))
    }

    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The word that holds [`Hook::pass`]. Dispatchers load the verdict from here because the verifier
    /// must not know it: it would take the constant for the result of the tail call as well.
    const fn pass_word(hook: Hook) -> usize {
        match hook {
            Hook::Xdp => 0,
            Hook::TcIngress | Hook::TcEgress => 1,
        }
    }

    /// Offset in the map's value of [`Hook::pass`].
    pub const fn pass_offset(hook: Hook) -> i32 {
        (Self::pass_word(hook) * WORD_BYTES) as i32
    }

    /// Takes a free word and sets it to `epoch`.
    pub fn allocate(self: &Arc<Self>, epoch: u64) -> Option<EpochWord> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let word = taken.iter().position(|taken| !taken)?;
        taken[word] = true;
        self.atomic(word).store(epoch, Ordering::SeqCst);
        Some(EpochWord { page: Arc::clone(self), word })
    }

    fn atomic(&self, word: usize) -> &AtomicU64 {
        self.page.u64(word * WORD_BYTES)
    }
}

/// A probe's own word.
#[derive(Debug)]
pub struct EpochWord {
    page: Arc<EpochPage>,
    word: usize,
}

impl EpochWord {
    pub fn current(&self) -> u64 {
        self.page.atomic(self.word).load(Ordering::SeqCst)
    }

    /// From now on packets go to the other twin. Returns the epoch that ended.
    pub fn flip(&self) -> u64 {
        self.page.atomic(self.word).fetch_add(1, Ordering::SeqCst)
    }

    /// Offset in the map's value.
    pub const fn offset(&self) -> i32 {
        (self.word * WORD_BYTES) as i32
    }
}

impl Drop for EpochWord {
    fn drop(&mut self) {
        self.page.taken.lock().unwrap_or_else(PoisonError::into_inner)[self.word] = false;
    }
}
