//! Attachments that call no probe any more: those that a dead daemon has left, and those that could not be removed at
//! once.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use twinprobe_ebpf_common::finding::with_causes;

use crate::attach::dispatcher::chain::{NETNS, NETNS_PATH};
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::hook_point::{Key, parse_pin_name};
use crate::attach::hook::attachment::{Attachment, Hook};
use crate::load::pins;
use crate::net::netns::Netns;

impl Dispatchers {
    /// Makes the dispatchers call just the probes that have been added. To be called once every probe that an earlier
    /// daemon ran is among them. Detaches attachments that no probe has claimed, or, if probes are `unsure` where their
    /// interfaces are, keeps these attachments until the probes know.
    pub fn settle(&self, unsure: bool) {
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, dispatcher) in by_place.values_mut().filter(|(_, dispatcher)| dispatcher.adopted) {
            dispatcher.adopted = false;
            if let Err(error) = self.settle_one(dispatcher, place) {
                let error = with_causes(&error);
                let interface = &place.interface;
                tracing::error!(interface, error, "a dispatcher could not be brought up to date");
            }
        }
        let unsure = unsure
            | self.hindered.swap(false, Ordering::Relaxed)
            | self.keeps_unclaimed.load(Ordering::Relaxed);
        let unclaimed = if self.settled.swap(true, Ordering::Relaxed) {
            Ok(std::mem::take(&mut *lock(&self.unclaimed)).into_iter().collect())
        } else {
            self.all_pins()
        };
        match unclaimed {
            Ok(pins) => {
                let is_claimed = |pins: &PathBuf| key(pins).is_some_and(|key| by_place.contains_key(&key));
                for pins in pins.into_iter().filter(|pins| !is_claimed(pins)) {
                    if unsure {
                        lock(&self.unclaimed).insert(pins);
                    } else {
                        tracing::info!(pins = %pins.display(), "an attachment without probes is removed");
                        self.discard(pins);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "what an earlier daemon left attached could not be removed");
            }
        }
    }

    /// Tells whether pins of an earlier daemon wait for probes that could not look for their interfaces yet. Once these
    /// probes have looked, [`Self::settle`] is to be called again.
    pub fn has_unclaimed(&self) -> bool {
        !lock(&self.unclaimed).is_empty()
    }

    /// Prevents from now on that an attachment is detached only because no probe has claimed it.
    pub fn keep_unclaimed(&self) {
        self.keeps_unclaimed.store(true, Ordering::Relaxed);
    }

    pub fn is_unclaimed(&self, pins: &Path) -> bool {
        lock(&self.unclaimed).contains(pins)
    }

    pub fn leave_unclaimed(&self, pins: PathBuf) {
        self.hindered.store(true, Ordering::Relaxed);
        lock(&self.unclaimed).insert(pins);
    }

    fn all_pins(&self) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(&self.root)?.map(|entry| Ok(entry?.path())).collect()
    }

    /// Detaches what `pins` hold and removes `pins`. If this is not possible now, [`Self::remove_left`] does it later:
    /// a filter without pins is known to nobody and stays for ever.
    pub fn discard(&self, pins: PathBuf) {
        if let Err(error) = remove(&pins) {
            tracing::warn!(pins = %pins.display(), %error, "an attachment can't be removed now; it is tried again");
            lock(&self.left).insert(pins);
        }
    }

    /// Retries the removals that were not possible before.
    pub fn remove_left(&self) {
        let mut left = lock(&self.left);
        left.retain(|pins| match remove(pins) {
            Ok(()) => {
                tracing::info!(pins = %pins.display(), "an attachment without probes was removed");
                false
            }
            Err(_) => true,
        });
    }

    /// Completes the removal of `pins`, if it is pending, so that another dispatcher can have the same path.
    pub fn make_room(&self, pins: &Path) -> io::Result<()> {
        let mut left = lock(&self.left);
        if left.contains(pins) {
            remove(pins)?;
            left.remove(pins);
        }
        Ok(())
    }
}

/// Detaches what `pins` hold and removes `pins`. After an error another attempt may succeed.
fn remove(pins: &Path) -> io::Result<()> {
    if let Some((netns, ifindex, hook, _)) = key(pins) {
        match detach(pins, netns, ifindex, hook) {
            Err(error) if is_passing(&error) => return Err(error),
            Err(error) => tracing::debug!(pins = %pins.display(), %error, "it was attached nowhere"),
            Ok(()) => {}
        }
    }
    pins::remove_directory(pins)
}

fn detach(pins: &Path, netns: u64, ifindex: u32, hook: Hook) -> io::Result<()> {
    // A link can be detached from any namespace; a filter goes with its namespace.
    let left = match Attachment::adopt_link(pins)? {
        Some(link) => Some(link),
        None => match namespace(pins, netns)? {
            Some(netns) => netns.run(|| Attachment::adopt(ifindex, hook, pins))??,
            None => None,
        },
    };
    left.map_or(Ok(()), |left| left.detach())
}

/// Finds the namespace that a dispatcher was made in: at the path it had then, or by another name or a process.
fn namespace(pins: &Path, id: u64) -> io::Result<Option<Netns>> {
    let own = Netns::own()?;
    if own.id() == id {
        return Ok(Some(own));
    }
    let link = std::fs::read_link(pins.join(NETNS)).ok();
    let path = link.as_deref().and_then(Path::to_str).and_then(|text| text.strip_prefix(NETNS_PATH));
    if let Some(path) = path {
        match Netns::open(Path::new(path)) {
            Ok(netns) if netns.id() == id => return Ok(Some(netns)),
            Err(error) if !Netns::is_not_there(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(Netns::find(id))
}

/// True if the cause of the error is not the attachment, so that another attempt may succeed.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory)
        || matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOBUFS | libc::EBUSY)
        )
}

fn lock(pins: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    pins.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(pins: &Path) -> Option<Key> {
    pins.file_name().and_then(|name| name.to_str()).and_then(parse_pin_name)
}
