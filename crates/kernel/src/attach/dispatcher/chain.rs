//! One dispatcher in the kernel: the probes it calls, its program, and its attachment.

use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use twinprobe_ebpf_common::finding::with_causes;

use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::dispatcher::failure::is_final;
use crate::attach::dispatcher::health::Health;
use crate::attach::dispatcher::revision::DispatcherProgram;
use crate::attach::dispatcher::slots;
use crate::attach::hook::attachment::Attachment;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::rank::DeploymentId;
use crate::load::pins;

/// The largest number of probes at one hook of one interface. The kernel allows 33 tail calls per
/// packet (`MAX_TAIL_CALL_CNT`). The probes can use the remaining ones.
pub const MAX_CHAIN: usize = 16;
/// The name of a symbolic link among the pins whose text is the path of the dispatcher's network
/// namespace. A dispatcher in the daemon's own namespace has no such link. The text has the prefix
/// [`NETNS_PATH`], so that the link leads to no file.
pub const NETNS: &str = "netns";
pub const NETNS_PATH: &str = "path:";

/// The dispatcher at one hook point.
#[derive(Debug)]
pub struct Dispatcher {
    pub pins: PathBuf,
    /// The attachment; `None` during the addition of the first probe, and after a failed
    /// attachment.
    pub attachment: Option<Attachment>,
    /// The id of the program that was attached, if it is known.
    pub program: Option<u32>,
    /// The attached program, kept for other dispatchers that call the same probes.
    pub revision: Option<Arc<DispatcherProgram>>,
    /// The state of the attachment, shared with the code that shows it. No task takes another lock
    /// while it holds this one.
    pub health: Arc<Mutex<Health>>,
    /// The probes, in the order in which they are called.
    pub entries: Vec<DispatcherEntry>,
    /// Replaced deployments that the dispatcher does not call any more. Their slots are still
    /// pinned, so that a later daemon finds the programs that the earlier daemon called.
    pub retired: Vec<DeploymentId>,
    /// True if the present program still calls a probe that is not among the entries, because the
    /// kernel refused the next program.
    pub is_stale: bool,
    /// True for an earlier daemon's dispatcher until
    /// [`settle`](super::dispatchers::Dispatchers::settle): probes may still claim it.
    pub adopted: bool,
}

impl Dispatcher {
    pub fn create(pins: PathBuf, place: &HookPoint) -> io::Result<Self> {
        // A daemon that died between detaching and cleaning up leaves its pins.
        pins::remove_directory(&pins)?;
        std::fs::create_dir_all(&pins)?;
        // The link is made before anything is attached: the next daemon looks for the attachment in
        // that namespace.
        let linked = match place.netns.path() {
            Some(path) => symlink(format!("{NETNS_PATH}{}", path.display()), pins.join(NETNS)),
            None => Ok(()),
        };
        if let Err(error) = linked {
            let _ = pins::remove_directory(&pins);
            return Err(error);
        }
        Ok(Self::with(pins, None))
    }

    fn with(pins: PathBuf, attachment: Option<Attachment>) -> Self {
        let mode = attachment.as_ref().map(Attachment::mode);
        Self {
            pins,
            adopted: attachment.is_some(),
            attachment,
            program: None,
            revision: None,
            health: Arc::new(Mutex::new(Health {
                mode,
                ..Health::default()
            })),
            entries: Vec::new(),
            retired: Vec::new(),
            is_stale: false,
        }
    }

    /// Adopts the dispatcher that an earlier daemon left at `place`; `None` if it is incomplete or
    /// attached nowhere any more.
    pub fn adopt(pins: PathBuf, place: &HookPoint) -> io::Result<Option<Self>> {
        if !pins.is_dir() {
            return Ok(None);
        }
        let attachment = place
            .netns
            .run(|| Attachment::adopt(place.ifindex, place.hook, &pins))??;
        Ok(attachment.map(|attachment| Self::with(pins, Some(attachment))))
    }

    /// Tells whether the dispatcher still gets packets: an interface that disappears takes the
    /// attachment with it, even if another interface gets its name. Fails if the answer is unknown.
    pub fn is_alive(&self, place: &HookPoint) -> io::Result<bool> {
        match &self.attachment {
            Some(attachment) => Ok(attachment.program_at(place.ifindex)?.is_some()),
            None => Ok(false),
        }
    }

    /// Records that the dispatcher gets packets.
    pub fn is_well(&self) {
        let mut health = self.health.lock();
        health.mode = self.attachment.as_ref().map(Attachment::mode);
        health.failure = None;
    }

    /// Forgets an attachment that has ended and removes its pins, so that the dispatcher can be
    /// attached anew with all its probes.
    pub fn let_go(&mut self) {
        (self.attachment, self.program, self.revision) = (None, None, None);
        if let Err(error) = Attachment::unpin(&self.pins) {
            tracing::warn!(pins = %self.pins.display(), %error, "a lost attachment's pins can't be removed");
        }
    }

    /// Records that the attached program is `revision`, which calls `entries`.
    pub fn calls(&mut self, entries: Vec<DispatcherEntry>, revision: Arc<DispatcherProgram>) {
        (self.program, self.revision) = (Some(revision.id), Some(revision));
        self.entries = entries;
        self.is_stale = false;
    }

    /// Removes the slots of a deployment that the dispatcher does not call any more.
    pub fn unpin(&mut self, owner: DeploymentId) -> io::Result<()> {
        self.retired.retain(|retired| *retired != owner);
        slots::unpin(&self.pins, owner)
    }

    /// Removes the pins of all slots that no probe has claimed.
    pub fn unpin_unclaimed(&self) -> io::Result<()> {
        let owners = self
            .entries
            .iter()
            .map(|entry| entry.owner)
            .chain(self.retired.iter().copied());
        slots::unpin_others(&self.pins, &owners.collect::<Vec<_>>())
    }

    /// Detaches the dispatcher and removes its pins. Failures are logged, because no caller can
    /// handle them. After a failure that may be temporary, returns the pins, to be
    /// [discarded](dispatchers::Dispatchers::discard).
    pub fn detach(self, place: &HookPoint) -> Result<(), PathBuf> {
        let detach = |attachment: Attachment| place.netns.run(|| attachment.detach()).flatten();
        let detached = self.attachment.map_or(Ok(()), detach);
        let detached = match detached {
            Err(error) if !is_final(&error) => return Err(self.pins),
            // The link ended with its interface.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            detached => detached,
        };
        for error in [detached, pins::remove_directory(&self.pins)]
            .into_iter()
            .filter_map(Result::err)
        {
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
