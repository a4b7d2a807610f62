//! One dispatcher in the kernel: its prog-array, the probes it calls, and its attachment.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::XdpMode;

use crate::attach::dispatcher::failure::is_final;
use crate::attach::dispatcher::health::Health;
use crate::attach::dispatcher::program::Call;
use crate::attach::hook::attachment::Attachment;
use crate::attach::hook::hook_point::HookPoint;
use crate::load::direction::program_ids;
use crate::load::maps::Twins;
use crate::load::pins;
use crate::sys::call::found;
use crate::sys::map::{self, BPF_MAP_TYPE_PROG_ARRAY, MapCreate};
use crate::sys::object;

/// The largest number of probes at one hook of one interface. The kernel allows 33 tail calls per packet
/// (`MAX_TAIL_CALL_CNT`); the rest is left to the probes.
pub const MAX_CHAIN: usize = 16;
/// The number of pairs of slots: twice the number of probes, so that all can be replaced while they run.
const PAIRS: usize = 2 * MAX_CHAIN;
/// The name of a symbolic link among the pins whose text is the path of the dispatcher's network namespace. A
/// dispatcher in the daemon's own namespace has no such link. The text has the prefix [`NETNS_PATH`], so that the link
/// leads to no file.
pub const NETNS: &str = "netns";
pub const NETNS_PATH: &str = "path:";

/// Identifies one deployment of a probe in all dispatchers it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeploymentId(pub u64);

/// The order of probes: by priority, then by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub priority: i32,
    pub order: u64,
}

/// The programs of a deployment.
#[derive(Clone, Copy, Debug)]
pub enum Callee<'a> {
    Loaded(&'a Twins<OwnedFd>),
    /// The programs with these ids, for even and odd epochs; an earlier daemon has put them into their slots.
    Slotted([u32; 2]),
}

/// One probe that a dispatcher calls.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub owner: DeploymentId,
    pub rank: Rank,
    pub call: Call,
    pub xdp_mode: XdpMode,
}

/// The dispatcher at one hook point.
#[derive(Debug)]
pub struct Dispatcher {
    pub pins: PathBuf,
    pub slots: OwnedFd,
    /// `None` while the first probe is being added, and if it could not be attached anew.
    pub attachment: Option<Attachment>,
    /// The id of the program that was attached, if it is known.
    pub program: Option<u32>,
    /// The state of the attachment, shared with those who show it. Nobody takes another lock while holding this one.
    pub health: Arc<Mutex<Health>>,
    /// The probes, in the order in which they are called.
    pub entries: Vec<Entry>,
    /// Replaced deployments that are not called any more. Their slots are still filled, so that they can be called
    /// again.
    pub retired: Vec<Entry>,
    /// Pairs that the present revision still calls although no entry has them. Their slots are empty, and stay unused
    /// until the next revision.
    pub abandoned: Vec<usize>,
    /// True for a dispatcher of an earlier daemon until [`settle`](super::dispatchers::Dispatchers::settle): its probes
    /// are still being claimed.
    pub adopted: bool,
}

impl Dispatcher {
    pub fn create(pins: PathBuf, place: &HookPoint) -> io::Result<Self> {
        let array = MapCreate::array("tp_slots", 4, 2 * PAIRS as u32);
        let slots = map::map_create(&MapCreate { map_type: BPF_MAP_TYPE_PROG_ARRAY, ..array })?;
        // A daemon that died between detaching and cleaning up leaves its pins.
        pins::remove_directory(&pins)?;
        std::fs::create_dir_all(&pins)?;
        // Without a pin the kernel empties a prog-array when its last descriptor is closed.
        let pinned = object::obj_pin(slots.as_fd(), &pins.join("slots"));
        // The link is made before anything is attached: the next daemon looks for the attachment in that namespace.
        let pinned = pinned.and_then(|()| match place.netns.path() {
            Some(path) => symlink(format!("{NETNS_PATH}{}", path.display()), pins.join(NETNS)),
            None => Ok(()),
        });
        if let Err(error) = pinned {
            let _ = pins::remove_directory(&pins);
            return Err(error);
        }
        Ok(Self::with(pins, slots, None))
    }

    fn with(pins: PathBuf, slots: OwnedFd, attachment: Option<Attachment>) -> Self {
        let mode = attachment.as_ref().map(Attachment::mode);
        Self {
            pins,
            slots,
            adopted: attachment.is_some(),
            attachment,
            program: None,
            health: Arc::new(Mutex::new(Health { mode, ..Health::default() })),
            entries: Vec::new(),
            retired: Vec::new(),
            abandoned: Vec::new(),
        }
    }

    /// Adopts the dispatcher that an earlier daemon left at `place`; `None` if it is incomplete or attached nowhere any
    /// more.
    pub fn adopt(pins: PathBuf, place: &HookPoint) -> io::Result<Option<Self>> {
        let Some(slots) = found(object::obj_get(&pins.join("slots")))? else { return Ok(None) };
        let info = map::map_info(slots.as_fd())?;
        if (info.type_, info.max_entries) != (BPF_MAP_TYPE_PROG_ARRAY, 2 * PAIRS as u32) {
            return Ok(None);
        }
        let attachment = place.netns.run(|| Attachment::adopt(place.ifindex, place.hook, &pins))??;
        Ok(attachment.map(|attachment| Self::with(pins, slots, Some(attachment))))
    }

    /// Tells whether packets still come to the dispatcher: an interface that goes takes the attachment with it, even if
    /// another interface gets its name. Fails if the answer is unknown.
    pub fn is_alive(&self, place: &HookPoint) -> io::Result<bool> {
        match &self.attachment {
            Some(attachment) => Ok(attachment.program_at(place.ifindex)?.is_some()),
            None => Ok(false),
        }
    }

    /// Records that packets come to the dispatcher.
    pub fn is_well(&self) {
        let mut health = self.health.lock();
        health.mode = self.attachment.as_ref().map(Attachment::mode);
        health.trouble = None;
    }

    /// Forgets an attachment that is gone and removes its pins, so that the dispatcher can be attached anew with all
    /// its probes.
    pub fn let_go(&mut self) {
        (self.attachment, self.program) = (None, None);
        if let Err(error) = Attachment::unpin(&self.pins) {
            tracing::warn!(pins = %self.pins.display(), %error, "a lost attachment's pins can't be removed");
        }
    }

    /// Returns the pair that holds the programs already, or fills a free pair with them.
    pub fn place_programs(&self, callee: Callee<'_>) -> io::Result<usize> {
        let taken = |pair: usize| {
            let mut entries = self.entries.iter().chain(&self.retired);
            self.abandoned.contains(&pair) || entries.any(|entry| entry.call.pair == pair)
        };
        let mut free = None;
        let [even, odd] = match callee {
            Callee::Slotted(ids) => ids,
            Callee::Loaded(programs) => program_ids(programs)?,
        };
        for pair in (0..PAIRS).filter(|pair| !taken(*pair)) {
            // A slot that nobody has taken can be filled only in a dispatcher of an earlier daemon.
            let held = if self.adopted { self.held(pair)? } else { [None, None] };
            if held == [Some(even), Some(odd)] {
                return Ok(pair);
            }
            if held == [None, None] {
                free.get_or_insert(pair);
                if !self.adopted {
                    break;
                }
            }
        }
        let Callee::Loaded(programs) = callee else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the programs are in no slot"));
        };
        let pair = free.ok_or_else(|| io::Error::other("no slot is free"))?;
        for parity in 0..2 {
            let program = programs.of_twin(parity).as_raw_fd();
            map::map_update(self.slots.as_fd(), &slot(pair, parity), &program.to_ne_bytes())?;
        }
        Ok(pair)
    }

    /// The ids of the programs in a pair.
    fn held(&self, pair: usize) -> io::Result<[Option<u32>; 2]> {
        let lookup = |parity: usize| {
            let mut id = [0; 4];
            let found = map::map_lookup(self.slots.as_fd(), &slot(pair, parity), &mut id)?;
            Ok::<_, io::Error>(found.then(|| u32::from_ne_bytes(id)))
        };
        Ok([lookup(0)?, lookup(1)?])
    }

    pub fn clear(&self, pair: usize) -> io::Result<()> {
        for parity in 0..2 {
            map::map_delete(self.slots.as_fd(), &slot(pair, parity))?;
        }
        Ok(())
    }

    /// Empties every pair that no probe has claimed.
    pub fn clear_unclaimed(&self) -> io::Result<()> {
        for pair in 0..PAIRS {
            let claimed = self.entries.iter().chain(&self.retired).any(|entry| entry.call.pair == pair);
            if !claimed && self.held(pair)? != [None, None] {
                self.clear(pair)?;
            }
        }
        Ok(())
    }

    /// Detaches and removes the pins. Failures are logged: no caller can handle them. After a failure that may be over
    /// later, returns the pins, to be [discarded](dispatchers::Dispatchers::discard).
    pub fn detach(self, place: &HookPoint) -> Result<(), PathBuf> {
        let detached = self.attachment.map_or(Ok(()), Attachment::detach);
        let detached = match detached {
            Err(error) if !is_final(&error) => return Err(self.pins),
            // The link went with its interface.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            detached => detached,
        };
        for error in [detached, pins::remove_directory(&self.pins)].into_iter().filter_map(Result::err) {
            tracing::warn!(
                interface = place.interface,
                hook = place.hook.name(),
                error = with_causes(&error),
                "a dispatcher could not be removed completely"
            );
        }
        Ok(())
    }
}

fn slot(pair: usize, parity: usize) -> [u8; 4] {
    ((2 * pair + parity) as u32).to_ne_bytes()
}
