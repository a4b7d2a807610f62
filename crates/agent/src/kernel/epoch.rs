//! Epoch words: a few 64-bit words for each probe, in one array map that programs and this process share.
//!
//! The parity of a probe's word says which twin its dispatchers call, on every interface and in both
//! directions. A flip is therefore one store: atomic for the whole probe, without a system call. The word
//! counts flips, so it is also the sequence number of the window that is open.
//!
//! The map is pinned and outlives the daemon, and with it what else has to be known about a window after a
//! crash: whether the idle twin has been read and reset, and when the open window began.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::hook::Hook;
use super::mapping::{Access, Mapping};
use super::sys::{self, KernelError, MapCreate};

/// A probe's words: its epoch, the last epoch whose twin has been reset, when the open window began, and when the
/// last one was closed.
const WORDS: usize = 4;
const EPOCH: usize = 0;
const CLEARED: usize = 1;
const OPENED: usize = 2;
const CLOSED: usize = 3;
/// Beside an epoch in [`CLEARED`]: it is being done. No epoch gets there.
const CLEARING: u64 = 1 << 63;
const WORD_BYTES: usize = size_of::<u64>();
/// Probes; the first places hold constants that dispatchers read. Offsets must fit an instruction's 16 bits.
const PLACES: usize = 512;
const BYTES: usize = PLACES * WORDS * WORD_BYTES;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The shared memory and which of its places are taken.
#[derive(Debug)]
pub struct EpochPage {
    map: OwnedFd,
    memory: Mapping,
    taken: Mutex<[bool; PLACES]>,
    adopted: bool,
}

impl EpochPage {
    /// The page an earlier daemon left at `pin`, else a new one that is pinned there.
    pub fn open(pin: &Path) -> Result<Arc<Self>, KernelError> {
        let error = |call| move |source| KernelError::new(call, "the epoch map", source);
        let left = sys::obj_get(pin).ok().filter(|map| is_page(map.as_fd()));
        let adopted = left.is_some();
        let map = match left {
            Some(map) => map,
            None => {
                // What is there is not ours to use, but the name is.
                if let Err(source) = std::fs::remove_file(pin)
                    && source.kind() != std::io::ErrorKind::NotFound
                {
                    return Err(error("clean-up")(source));
                }
                let map = create().map_err(error("creation"))?;
                sys::obj_pin(map.as_fd(), pin).map_err(error("pinning"))?;
                map
            }
        };
        let memory = Mapping::new(map.as_fd(), 0, BYTES, Access::ReadWrite).map_err(error("mapping"))?;
        let mut taken = [false; PLACES];
        for hook in Hook::ALL {
            taken[Self::pass_place(hook)] = true;
        }
        let epochs = Self { map, memory, taken: Mutex::new(taken), adopted };
        for hook in Hook::ALL {
            let pass = u64::from(hook.pass() as u32);
            epochs.word(Self::pass_place(hook), EPOCH).store(pass, Ordering::Relaxed);
        }
        Ok(Arc::new(epochs))
    }

    /// Whether it is an earlier daemon's: its programs follow these words.
    pub const fn is_adopted(&self) -> bool {
        self.adopted
    }

    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The word that holds [`Hook::pass`]. Dispatchers load the verdict from here because the verifier
    /// must not know it: it would take the constant for the result of the tail call as well.
    const fn pass_place(hook: Hook) -> usize {
        match hook {
            Hook::Xdp => 0,
            Hook::TcIngress | Hook::TcEgress => 1,
        }
    }

    /// Offset in the map's value of [`Hook::pass`].
    pub const fn pass_offset(hook: Hook) -> i32 {
        offset(Self::pass_place(hook))
    }

    /// Takes a free place and begins with `epoch`, the other twin being empty.
    pub fn allocate(self: &Arc<Self>, epoch: u64) -> Option<EpochWord> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let place = taken.iter().position(|taken| !taken)?;
        taken[place] = true;
        self.word(place, CLEARED).store(epoch.wrapping_sub(1), Ordering::SeqCst);
        self.word(place, EPOCH).store(epoch, Ordering::SeqCst);
        Some(EpochWord { page: Arc::clone(self), place })
    }

    /// The place of a probe that runs, as it is.
    pub fn claim(self: &Arc<Self>, place: usize) -> Option<EpochWord> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.get_mut(place).filter(|taken| !**taken)?;
        *free = true;
        Some(EpochWord { page: Arc::clone(self), place })
    }

    fn word(&self, place: usize, word: usize) -> &AtomicU64 {
        self.memory.u64((place * WORDS + word) * WORD_BYTES)
    }
}

const fn offset(place: usize) -> i32 {
    (place * WORDS * WORD_BYTES) as i32
}

fn create() -> std::io::Result<OwnedFd> {
    sys::map_create(&MapCreate {
        name: "tp_epochs",
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: BYTES as u32,
        max_entries: 1,
        flags: BPF_F_MMAPABLE,
        ..MapCreate::default()
    })
}

fn is_page(map: BorrowedFd<'_>) -> bool {
    sys::map_info(map).is_ok_and(|info| {
        info.type_ == BPF_MAP_TYPE_ARRAY
            && info.value_size as usize == BYTES
            && info.max_entries == 1
            && info.map_flags & BPF_F_MMAPABLE != 0
    })
}

/// A probe's own words.
#[derive(Debug)]
pub struct EpochWord {
    page: Arc<EpochPage>,
    place: usize,
}

impl EpochWord {
    pub fn current(&self) -> u64 {
        self.word(EPOCH).load(Ordering::SeqCst)
    }

    /// From now on packets go to the other twin. Returns the epoch that ended.
    pub fn flip(&self) -> u64 {
        self.word(EPOCH).fetch_add(1, Ordering::SeqCst)
    }

    /// The epoch that has ended and whose twin has not been reset, if there is one.
    pub fn unread(&self) -> Option<u64> {
        let ended = self.current().wrapping_sub(1);
        (self.word(CLEARED).load(Ordering::SeqCst) != ended).then_some(ended)
    }

    /// From now on the twin of `epoch` does not hold all of its window.
    pub fn set_clearing(&self, epoch: u64) {
        self.word(CLEARED).store(epoch | CLEARING, Ordering::SeqCst);
    }

    /// Whether the twin of `epoch` may be half empty.
    pub fn is_clearing(&self, epoch: u64) -> bool {
        self.word(CLEARED).load(Ordering::SeqCst) == epoch | CLEARING
    }

    /// The twin of `epoch` has been read and reset.
    pub fn set_cleared(&self, epoch: u64) {
        self.word(CLEARED).store(epoch, Ordering::SeqCst);
    }

    /// When the open window began, in nanoseconds of the Unix epoch.
    pub fn opened(&self) -> u64 {
        self.word(OPENED).load(Ordering::SeqCst)
    }

    pub fn set_opened(&self, at: u64) {
        self.word(OPENED).store(at, Ordering::SeqCst);
    }

    /// When the last flip was, as [`Self::opened`]; told before it.
    pub fn closed(&self) -> u64 {
        self.word(CLOSED).load(Ordering::SeqCst)
    }

    pub fn set_closed(&self, at: u64) {
        self.word(CLOSED).store(at, Ordering::SeqCst);
    }

    /// To be remembered, for [`EpochPage::claim`].
    pub const fn place(&self) -> usize {
        self.place
    }

    /// Offset of the epoch in the map's value.
    pub const fn offset(&self) -> i32 {
        offset(self.place)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.page.word(self.place, word)
    }
}

impl Drop for EpochWord {
    fn drop(&mut self) {
        self.page.taken.lock().unwrap_or_else(PoisonError::into_inner)[self.place] = false;
    }
}
