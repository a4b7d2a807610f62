//! Epoch words: a few 64-bit words for each probe, in array maps that programs and this process
//! share.
//!
//! The parity of a probe's word says which twin its dispatchers call, on every interface and in
//! both directions. A flip is therefore one store: atomic for the whole probe, without a system
//! call. The word counts flips, so it is also the sequence number of the window that is open.
//!
//! The maps are pinned and outlive the daemon. They also have the state of a window for the time
//! after a crash: whether the idle twin has been read and reset, and when the open window began.
//! Beside each map a second one, `clocks`, has this time by a clock that is never set. The first
//! map keeps its layout, because programs follow it.
//!
//! A map has places for [`PLACES`] probes, as many as an instruction's offset reaches. Two maps are
//! a *page*; there is another page as soon as all places are taken.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aya_obj::generated::BPF_F_MMAPABLE;
use jiff::Timestamp;
use parking_lot::Mutex;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use crate::sys::call::{KernelError, found};
use crate::sys::clock::Moment;
use crate::sys::map::{self, BPF_MAP_TYPE_ARRAY, MapCreate};
use crate::sys::mapping::{Mapping, MappingAccess};
use crate::sys::object;

/// The number of a probe's words: its epoch, the last epoch whose twin has been reset, the start of
/// the open window, and the end of the last window.
const WORDS: usize = 4;
const EPOCH: usize = 0;
const CLEARED: usize = 1;
const OPENED: usize = 2;
const CLOSED: usize = 3;
/// The bit in [`CLEARED`] that says that the twin of the epoch is being cleared now. No epoch is so
/// large that it uses this bit.
const CLEARING: u64 = 1 << 63;
const WORD_BYTES: usize = size_of::<u64>();
/// The number of places of a page, one for each probe; the first ones hold constants that
/// dispatchers read. Offsets must fit an instruction's 16 bits.
const PLACES: usize = 512;
/// The largest number of a page that does not exist and that a record may name. A larger number is
/// an error in the record.
const PAGES: usize = 1024;
const BYTES: usize = PLACES * WORDS * WORD_BYTES;
/// A probe's words in the second map: the start of the open window, and the end of the last window.
/// Beside each of them is the same moment by the wall clock: a daemon of a version without this map
/// changes only the other map.
const CLOCK_WORDS: usize = 4;
const CLOCK_OPENED: usize = 0;
const CLOCK_CLOSED: usize = 2;
const CLOCK_BYTES: usize = PLACES * CLOCK_WORDS * WORD_BYTES;
/// The names of the pins of a page's two maps; those of further pages have a number, as `epochs_1`.
const PINS: [&str; 2] = ["epochs", "clocks"];

/// The pages, in the order of their numbers.
#[derive(Debug)]
pub struct EpochWords {
    bpffs: PathBuf,
    pages: Mutex<Vec<Arc<Page>>>,
}

/// Shared memory for [`PLACES`] probes, and which of its places are taken.
#[derive(Debug)]
pub struct Page {
    pub number: usize,
    epochs: MappedWords,
    clocks: MappedWords,
    taken: Mutex<[bool; PLACES]>,
}

/// A pinned array of one value, mapped into memory.
#[derive(Debug)]
struct MappedWords {
    map: OwnedFd,
    memory: Mapping,
    adopted: bool,
}

impl MappedWords {
    /// Opens the map that an earlier daemon left at `pin`, or makes a new map and pins it at `pin`.
    fn open(pin: &Path, name: &str, bytes: usize) -> Result<Self, KernelError> {
        let error = |call| move |source| KernelError::new(call, "the epoch map", source);
        let left = object::obj_get(pin)
            .ok()
            .filter(|map| is_page(map.as_fd(), name, bytes));
        let adopted = left.is_some();
        let map = match left {
            Some(map) => map,
            None => {
                // A map of another layout is useless, but its name is needed.
                found(std::fs::remove_file(pin)).map_err(error("clean-up"))?;
                let array = MapCreate {
                    flags: BPF_F_MMAPABLE,
                    ..MapCreate::array(name, bytes, 1)
                };
                let map = map::map_create(&array).map_err(error("creation"))?;
                object::obj_pin(map.as_fd(), pin).map_err(error("pinning"))?;
                map
            }
        };
        let memory = Mapping::new(map.as_fd(), 0, bytes, MappingAccess::ReadWrite)
            .map_err(error("mapping"))?;
        Ok(Self {
            map,
            memory,
            adopted,
        })
    }
}

impl EpochWords {
    /// Opens the maps that an earlier daemon left in `bpffs`, or makes new maps.
    pub fn open(bpffs: &Path) -> Result<Self, KernelError> {
        let left = last_page(bpffs)
            .map_err(|source| KernelError::new("listing", "the epoch maps", source))?;
        let pages = (0..=left)
            .map(|number| Page::open(bpffs, number))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            bpffs: bpffs.to_owned(),
            pages: Mutex::new(pages),
        })
    }

    /// Takes a free place and begins with `epoch`. The other twin counts as cleared.
    pub fn allocate(&self, epoch: u64) -> Result<EpochWord, KernelError> {
        let mut pages = self.pages.lock();
        if let Some(word) = pages.iter().find_map(|page| page.allocate(epoch)) {
            return Ok(word);
        }
        let page = Page::open(&self.bpffs, pages.len())?;
        pages.push(Arc::clone(&page));
        page.allocate(epoch).ok_or_else(|| {
            KernelError::new(
                "allocation",
                "an epoch word",
                io::Error::other("a new page is full"),
            )
        })
    }

    /// Claims the place of a running probe, and changes none of its words. `None` if the place is
    /// taken, or if the page of the place can't be made.
    pub fn claim(&self, place: usize) -> Option<EpochWord> {
        let (number, place) = (place / PLACES, place % PLACES);
        let mut pages = self.pages.lock();
        // The pages before it are made even if a map is no longer at its pin: programs may still
        // read that map, and no other probe may get the same word.
        while number < PAGES && pages.len() <= number {
            let page = Page::open(&self.bpffs, pages.len()).ok()?;
            pages.push(page);
        }
        pages.get(number)?.claim(place)
    }

    /// Removes the pins of all pages.
    pub fn unpin(&self) -> io::Result<()> {
        self.pages
            .lock()
            .iter()
            .flat_map(|page| PINS.map(|name| pin_name(name, page.number)))
            .try_for_each(|name| std::fs::remove_file(self.bpffs.join(name)))
    }
}

impl Page {
    fn open(bpffs: &Path, number: usize) -> Result<Arc<Self>, KernelError> {
        let [epochs, clocks] = PINS.map(|name| pin_name(name, number));
        let open =
            |name: &str, bytes| MappedWords::open(&bpffs.join(name), &format!("tp_{name}"), bytes);
        Ok(Self::of(
            number,
            open(&epochs, BYTES)?,
            open(&clocks, CLOCK_BYTES)?,
        ))
    }

    fn of(number: usize, epochs: MappedWords, clocks: MappedWords) -> Arc<Self> {
        let mut taken = [false; PLACES];
        for hook in Hook::ALL {
            taken[Self::pass_place(hook)] = true;
        }
        let page = Self {
            number,
            epochs,
            clocks,
            taken: Mutex::new(taken),
        };
        for hook in Hook::ALL {
            let pass = u64::from(hook.pass() as u32);
            page.word(Self::pass_place(hook), EPOCH)
                .store(pass, Ordering::Relaxed);
        }
        Arc::new(page)
    }

    pub fn map(&self) -> BorrowedFd<'_> {
        self.epochs.map.as_fd()
    }

    /// The word that holds [`Hook::pass`]. Dispatchers load the verdict from here because the
    /// verifier must not know it: it would also use the constant as the result of the tail call.
    const fn pass_place(hook: Hook) -> usize {
        match hook.kind() {
            ProgramKind::Xdp => 0,
            ProgramKind::Tc => 1,
        }
    }

    /// Returns the offset of [`Hook::pass`] in the map's value.
    pub const fn pass_offset(hook: Hook) -> i32 {
        offset(Self::pass_place(hook))
    }

    fn allocate(self: &Arc<Self>, epoch: u64) -> Option<EpochWord> {
        let mut taken = self.taken.lock();
        let place = taken.iter().position(|taken| !taken)?;
        taken[place] = true;
        self.word(place, CLEARED)
            .store(epoch.wrapping_sub(1), Ordering::SeqCst);
        self.word(place, EPOCH).store(epoch, Ordering::SeqCst);
        let word = EpochWord {
            page: Arc::clone(self),
            place,
        };
        // The place still contains the start of a window of its previous probe.
        word.set_opened(Moment::now());
        Some(word)
    }

    fn claim(self: &Arc<Self>, place: usize) -> Option<EpochWord> {
        let mut taken = self.taken.lock();
        let free = taken.get_mut(place).filter(|taken| !**taken)?;
        *free = true;
        Some(EpochWord {
            page: Arc::clone(self),
            place,
        })
    }

    fn word(&self, place: usize, word: usize) -> &AtomicU64 {
        self.epochs.memory.u64((place * WORDS + word) * WORD_BYTES)
    }

    fn clock_word(&self, place: usize, word: usize) -> &AtomicU64 {
        self.clocks
            .memory
            .u64((place * CLOCK_WORDS + word) * WORD_BYTES)
    }
}

/// Returns the name of a map's pin. Maps of further pages have other names, so that the daemon
/// notices exchanged pins.
fn pin_name(name: &str, page: usize) -> String {
    if page == 0 {
        name.to_owned()
    } else {
        format!("{name}_{page}")
    }
}

/// Returns the number of the last page that an earlier daemon has pinned; 0 if there is none.
fn last_page(bpffs: &Path) -> io::Result<usize> {
    let mut last = 0;
    for entry in std::fs::read_dir(bpffs)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.rsplit_once('_'));
        let number = number
            .filter(|(name, _)| PINS.contains(name))
            .and_then(|(_, number)| number.parse().ok());
        last = last.max(number.filter(|number| *number < PAGES).unwrap_or(0));
    }
    Ok(last)
}

const fn offset(place: usize) -> i32 {
    (place * WORDS * WORD_BYTES) as i32
}

/// Tells whether [`MappedWords::open`] has made the map under this name: both maps of a page have
/// the same size.
fn is_page(map: BorrowedFd<'_>, name: &str, bytes: usize) -> bool {
    map::map_info(map).is_ok_and(|info| {
        let named = info
            .name
            .iter()
            .map(|&byte| byte as u8)
            .take_while(|&byte| byte != 0);
        named.eq(name.bytes())
            && info.type_ == BPF_MAP_TYPE_ARRAY
            && info.value_size as usize == bytes
            && info.max_entries == 1
            && info.map_flags & BPF_F_MMAPABLE != 0
    })
}

/// The words of one probe.
#[derive(Debug)]
pub struct EpochWord {
    page: Arc<Page>,
    place: usize,
}

impl EpochWord {
    /// Returns the epoch of the open window.
    pub fn current(&self) -> u64 {
        self.word(EPOCH).load(Ordering::SeqCst)
    }

    /// Returns the index of the active twin.
    pub fn twin(&self) -> usize {
        (self.current() & 1) as usize
    }

    /// Sends packets to the other twin from now on. Returns the epoch that ended.
    pub fn flip(&self) -> u64 {
        self.word(EPOCH).fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the epoch that has ended and whose twin has not been reset, if there is one.
    pub fn unread(&self) -> Option<u64> {
        let ended = self.current().wrapping_sub(1);
        (self.word(CLEARED).load(Ordering::SeqCst) != ended).then_some(ended)
    }

    /// Records that the clearing of the twin of `epoch` begins: from now on, this twin does not
    /// contain all of its window.
    pub fn set_clearing(&self, epoch: u64) {
        self.word(CLEARED).store(epoch | CLEARING, Ordering::SeqCst);
    }

    /// Tells whether the twin of `epoch` may have been cleared in part.
    pub fn is_clearing(&self, epoch: u64) -> bool {
        self.word(CLEARED).load(Ordering::SeqCst) == epoch | CLEARING
    }

    /// Records that the twin of `epoch` has been read and cleared.
    pub fn set_cleared(&self, epoch: u64) {
        self.word(CLEARED).store(epoch, Ordering::SeqCst);
    }

    /// Returns the start of the open window.
    pub fn opened(&self) -> Moment {
        self.moment(OPENED, CLOCK_OPENED)
    }

    pub fn set_opened(&self, at: Moment) {
        self.set_moment(OPENED, CLOCK_OPENED, at);
    }

    /// Returns the moment of the last flip, which was stored before the flip.
    pub fn closed(&self) -> Moment {
        self.moment(CLOSED, CLOCK_CLOSED)
    }

    /// Stores the end of the open window. Call this before the flip.
    pub fn set_closed(&self, at: Moment) {
        self.set_moment(CLOSED, CLOCK_CLOSED, at);
    }

    fn moment(&self, wall: usize, clock: usize) -> Moment {
        let nanoseconds = self.word(wall).load(Ordering::SeqCst);
        let [clock, belongs_to] = self
            .clock_words(clock)
            .map(|word| word.load(Ordering::SeqCst));
        let boot_ns = if belongs_to == nanoseconds { clock } else { 0 };
        match Timestamp::from_nanosecond(nanoseconds.into()) {
            Ok(wall) => Moment { wall, boot_ns },
            Err(_) => Moment::now(),
        }
    }

    fn set_moment(&self, wall: usize, clock: usize, at: Moment) {
        let nanoseconds = u64::try_from(at.wall.as_nanosecond()).unwrap_or_default();
        let [clock, belongs_to] = self.clock_words(clock);
        // A kill between the stores must not leave two times of different moments.
        clock.store(0, Ordering::SeqCst);
        belongs_to.store(nanoseconds, Ordering::SeqCst);
        self.word(wall).store(nanoseconds, Ordering::SeqCst);
        clock.store(at.boot_ns, Ordering::SeqCst);
    }

    fn clock_words(&self, first: usize) -> [&AtomicU64; 2] {
        [first, first + 1].map(|word| self.page.clock_word(self.place, word))
    }

    /// Returns the place of the words among all pages. A record stores the place for
    /// [`EpochWords::claim`].
    pub fn place(&self) -> usize {
        self.page.number * PLACES + self.place
    }

    /// Tells whether the word is in an earlier daemon's map, so that the programs of that daemon
    /// read it.
    pub fn is_adopted(&self) -> bool {
        self.page.epochs.adopted
    }

    pub const fn page(&self) -> &Arc<Page> {
        &self.page
    }

    /// Returns the offset of the epoch in the map's value.
    pub const fn offset(&self) -> i32 {
        offset(self.place)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.page.word(self.place, word)
    }
}

impl Drop for EpochWord {
    fn drop(&mut self) {
        self.page.taken.lock()[self.place] = false;
    }
}

#[cfg(test)]
mod tests;
