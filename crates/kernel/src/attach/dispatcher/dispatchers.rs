//! One dispatcher program for each interface and hook that has probes. Adding, removing or
//! replacing a probe loads a new revision and puts it into the same link: every packet sees one
//! revision or the other.
//!
//! Dispatchers outlive the daemon. A later daemon [opens](Dispatchers::open) them, and each probe
//! adds itself again to its dispatchers. Then [`Dispatchers::settle`] makes the programs in the
//! kernel match, even after half-done changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::{ProgramKind, Verdict, XdpKind, XdpMode};

use crate::attach::dispatcher::chain::{Dispatcher, MAX_CHAIN};
use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::dispatcher::failure;
use crate::attach::dispatcher::health::Health;
use crate::attach::dispatcher::kinds;
use crate::attach::dispatcher::revision::DispatcherPrograms;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::epoch::EpochWord;
use crate::attach::hook::attachment::{Attachment, TcMethod};
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::{HookKey, HookPoint};
use crate::attach::hook::xdp_request::{NATIVE, XdpRequest};
use crate::attach::quiesce::quiescer::Quiescer;
use crate::attach::rank::{DeploymentId, Rank};
use crate::load::pins;
use twinprobe_faults::crash;

/// The facts about a probe that a dispatcher needs to call it.
#[derive(Clone, Copy, Debug)]
pub struct Addition<'a> {
    pub owner: DeploymentId,
    pub probe: &'a Arc<str>,
    pub rank: Rank,
    pub slots: &'a Arc<Slots>,
    pub epoch: &'a EpochWord,
    pub verdict: Verdict,
    pub sample: Option<NonZeroU32>,
    /// True if each verdict that the programs can return takes effect without a change.
    pub stands: bool,
    /// The kind of the programs.
    pub kind: XdpKind,
    pub xdp_mode: XdpMode,
}

/// All dispatchers of this daemon.
#[derive(Debug)]
pub struct Dispatchers {
    pub quiescer: Arc<Quiescer>,
    revisions: DispatcherPrograms,
    /// One directory of pins for each dispatcher.
    pub root: PathBuf,
    tc_method: TcMethod,
    pub by_place: Mutex<BTreeMap<HookKey, (HookPoint, Dispatcher)>>,
    /// Pins of attachments that call no probe and could not be detached yet. If both locks are
    /// taken, the lock of `by_place` comes first.
    pub left: Mutex<BTreeSet<PathBuf>>,
    /// Pins of an earlier daemon that no probe has claimed yet. They are kept until probes have
    /// been able to look for their interfaces. If both locks are taken, the lock of `by_place`
    /// comes first.
    pub unclaimed: Mutex<BTreeSet<PathBuf>>,
    /// True if, since the last [`Self::settle`], an error that may be temporary has prevented the
    /// adoption of pins.
    pub hindered: AtomicBool,
    /// True if a held probe could not look for its interfaces. A held probe looks for them only
    /// once.
    pub keeps_unclaimed: AtomicBool,
    /// True once the remains of earlier daemons have been adopted or removed.
    pub settled: AtomicBool,
}

impl Dispatchers {
    /// Opens the dispatchers whose pins an earlier daemon may have left under `root`. If they are
    /// `measured`, each dispatcher has a separate program, whose runs the kernel counts.
    pub fn open(
        root: PathBuf,
        quiescer: Arc<Quiescer>,
        tc_method: TcMethod,
        measured: bool,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        Ok(Self {
            quiescer,
            revisions: DispatcherPrograms::new(!measured),
            root,
            tc_method,
            by_place: Mutex::default(),
            left: Mutex::default(),
            unclaimed: Mutex::default(),
            hindered: AtomicBool::new(false),
            keeps_unclaimed: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        })
    }

    /// Calls a probe at `place`, in the place of the deployment that it replaces, if there is one.
    /// The replaced deployment stays ready until it is [retired](Self::retire). An error changes
    /// nothing.
    pub fn add(
        &self,
        place: &HookPoint,
        addition: &Addition<'_>,
        replaces: Option<DeploymentId>,
    ) -> Result<Arc<Mutex<Health>>, AttachError> {
        let mut by_place = self.by_place.lock();
        // Every probe on the dispatcher drops a dead attachment; `attach` makes the attachment
        // again below.
        if let Some((_, known)) = by_place.get_mut(&place.key())
            && !known.is_alive(place).map_err(|error| place.failed(error))?
        {
            known.let_go();
        }
        let existing = by_place
            .remove(&place.key())
            .map(|(_, dispatcher)| dispatcher);
        let is_new = existing.is_none();
        let mut dispatcher = match existing {
            Some(dispatcher) => dispatcher,
            None => self
                .adopt_or_create(place)
                .map_err(|error| place.failed(error))?,
        };
        let result = self.add_to(&mut dispatcher, place, addition, replaces);
        let health = Arc::clone(&dispatcher.health);
        if result.is_err() && is_new && !dispatcher.adopted {
            // Nothing was attached, so the daemon must remove only the pins.
            if let Err(error) = pins::remove_directory(&dispatcher.pins) {
                tracing::warn!(pins = %dispatcher.pins.display(), %error, "unused pins could not be removed");
            }
        } else {
            by_place.insert(place.key(), (place.clone(), dispatcher));
        }
        result.map(|()| health)
    }

    /// Returns the reason why programs of `probe` of this kind can't run beside the programs of the
    /// other probes at `place`; `None` if they can.
    pub fn misfit(&self, place: &HookPoint, probe: &str, kind: XdpKind) -> Option<String> {
        let by_place = self.by_place.lock();
        let (_, dispatcher) = by_place.get(&place.key())?;
        let others = dispatcher
            .entries
            .iter()
            .filter(|entry| &*entry.probe != probe);
        kinds::check(place, others, kind)
            .err()
            .map(|error| error.to_string())
    }

    /// Forgets the slots of a deployment that has been replaced at `place`.
    pub fn retire(&self, place: &HookPoint, owner: DeploymentId) -> Result<(), AttachError> {
        let mut by_place = self.by_place.lock();
        let Some((_, dispatcher)) = by_place.get_mut(&place.key()) else {
            return Ok(());
        };
        if !dispatcher.retired.contains(&owner) {
            return Ok(());
        }
        dispatcher.unpin(owner).map_err(|error| place.failed(error))
    }

    /// Takes a deployment out of the dispatcher at `place`. With the last deployment, the
    /// dispatcher is removed as well. A CPU may still run a revision that calls the deployment.
    pub fn remove(&self, place: &HookPoint, owner: DeploymentId) -> Result<(), AttachError> {
        // A pin that stays must not prevent the removal of the deployment.
        if let Err(error) = self.retire(place, owner) {
            tracing::warn!(
                error = with_causes(&error),
                "a replaced probe's slots could not be unpinned"
            );
        }
        let mut by_place = self.by_place.lock();
        let Some((_, dispatcher)) = by_place.get_mut(&place.key()) else {
            return Ok(());
        };
        let mut entries = dispatcher.entries.clone();
        entries.retain(|entry| entry.owner != owner);
        if entries.len() == dispatcher.entries.len() {
            return Ok(());
        }
        if entries.is_empty() {
            if let Some((_, dispatcher)) = by_place.remove(&place.key())
                && let Err(pins) = dispatcher.detach(place)
            {
                self.discard(pins);
            }
            return Ok(());
        }
        let switched = if dispatcher.is_alive(place).unwrap_or(true) {
            self.switch(dispatcher, place, entries.clone())
        } else {
            Ok(())
        };
        // After an error the present revision continues calling the slots, until the kernel takes
        // another revision or the slots have no holder any more.
        dispatcher.is_stale = switched.is_err();
        dispatcher.entries = entries;
        switched.and(dispatcher.unpin(owner).map_err(|error| place.failed(error)))
    }

    fn adopt_or_create(&self, place: &HookPoint) -> io::Result<Dispatcher> {
        let pins = self.root.join(place.pin_name());
        if !self.settled.load(Ordering::Relaxed) || self.is_unclaimed(&pins) {
            match Dispatcher::adopt(pins.clone(), place)
                .and_then(|found| found.map_or(Ok(None), |d| Ok(d.is_alive(place)?.then_some(d))))
            {
                Ok(Some(dispatcher)) => return Ok(dispatcher),
                Ok(None) => {}
                // The attachment stays, since it may be intact.
                Err(error) if failure::is_passing(&error) => {
                    self.leave_unclaimed(pins);
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(pins = %pins.display(), %error, "unusable pins are replaced");
                }
            }
        }
        self.make_room(&pins, &place.netns)?;
        Dispatcher::create(pins, place)
    }

    /// Makes an adopted dispatcher call exactly the probes that have claimed their slots.
    pub fn settle_one(
        &self,
        dispatcher: &mut Dispatcher,
        place: &HookPoint,
    ) -> Result<(), AttachError> {
        let entries = dispatcher.entries.clone();
        let attachment = dispatcher.attachment.as_mut();
        let present = attachment
            .as_ref()
            .and_then(|present| present.program(place.ifindex, &dispatcher.pins));
        let wanted = self.revisions.get_or_adopt(place, &entries, present)?;
        let is_there =
            |there: &Attachment| there.program_at(place.ifindex).ok().flatten() == Some(wanted.id);
        if let Some(attachment) = attachment.filter(|attachment| !is_there(attachment)) {
            tracing::info!(
                interface = place.interface,
                hook = place.hook.name(),
                "the program of an adopted dispatcher is replaced"
            );
            let replaced = attachment.replace(wanted.program(), &dispatcher.pins);
            replaced.map_err(|error| place.failed(error))?;
        }
        dispatcher.calls(entries, wanted);
        Ok(())
    }

    /// Does the part of [`Self::add`] that needs the dispatcher alone. An error changes nothing.
    pub fn add_to(
        &self,
        dispatcher: &mut Dispatcher,
        place: &HookPoint,
        addition: &Addition<'_>,
        replaces: Option<DeploymentId>,
    ) -> Result<(), AttachError> {
        let attached_as = dispatcher.attachment.as_ref().map(Attachment::mode);
        if let (Some("generic"), XdpMode::Native) | (Some("native"), XdpMode::Generic) =
            (attached_as, addition.xdp_mode)
        {
            return Err(AttachError::Occupied(format!(
                "other probes have attached XDP to {} in mode {}; use that mode or auto",
                place.interface,
                attached_as.unwrap_or_default()
            )));
        }
        let mut entries = dispatcher.entries.clone();
        let old = entries
            .iter()
            .position(|entry| Some(entry.owner) == replaces)
            .map(|at| entries.remove(at));
        if entries.len() == MAX_CHAIN {
            return Err(no_room(place));
        }
        kinds::check(place, &entries, addition.kind)?;
        if let Some(Attachment::Link(..)) = dispatcher.attachment {
            kinds::check_link(place, &dispatcher.entries, addition.kind)?;
        }
        let is_ready = dispatcher.retired.contains(&addition.owner);
        let Addition {
            owner,
            probe,
            rank,
            slots,
            epoch,
            verdict,
            stands,
            kind,
            sample,
            xdp_mode,
        } = *addition;
        // The program of an earlier daemon continues calling its pinned slots. At interfaces with
        // earlier lists, the slots may differ.
        let left = dispatcher
            .adopted
            .then(|| Slots::left(&dispatcher.pins, owner, slots.programs));
        let left = left
            .transpose()
            .map_err(|error| place.failed(error))?
            .flatten();
        let slots = left.map_or_else(|| Arc::clone(slots), Arc::new);
        // A later daemon must find every program that packets may meet.
        slots
            .pin(&dispatcher.pins, owner)
            .map_err(|error| place.failed(error))?;
        if !dispatcher.adopted {
            crash::point("filled");
        }
        let (page, epoch_offset) = (Arc::clone(epoch.page()), epoch.offset());
        let probe = Arc::clone(probe);
        let entry = DispatcherEntry {
            owner,
            probe,
            rank,
            slots,
            page,
            epoch_offset,
            verdict,
            stands,
            sample,
            kind,
            xdp_mode,
        };
        let at = entries.partition_point(|other| other.rank <= entry.rank);
        entries.insert(at, entry);
        let result = match dispatcher.attachment {
            // The program of an earlier daemon stays until all its probes are known.
            Some(_) if dispatcher.adopted => {
                dispatcher.entries = entries;
                Ok(())
            }
            Some(_) => self.switch(dispatcher, place, entries),
            None => self.attach(dispatcher, place, addition.xdp_mode, entries),
        };
        if let Err(error) = result {
            if !is_ready && let Err(error) = dispatcher.unpin(addition.owner) {
                tracing::warn!(%error, "slots of a failed change could not be unpinned");
            }
            return Err(error);
        }
        dispatcher
            .retired
            .retain(|retired| *retired != addition.owner);
        dispatcher.retired.extend(old.map(|old| old.owner));
        Ok(())
    }

    /// Loads a revision that calls `entries`, attaches it at `place` and pins the attachment.
    pub fn attach(
        &self,
        dispatcher: &mut Dispatcher,
        place: &HookPoint,
        mode: XdpMode,
        entries: Vec<DispatcherEntry>,
    ) -> Result<(), AttachError> {
        let revision = self.revisions.get(place, &entries)?;
        let xdp = XdpRequest {
            mode,
            kind: kinds::of(&entries),
        };
        let attach = || {
            Attachment::attach(
                place,
                xdp,
                self.tc_method,
                revision.program(),
                &dispatcher.pins,
            )
        };
        let attached = place.netns.run(attach);
        let (attachment, fallback) = attached.map_err(|error| place.failed(error))??;
        crash::point("linked");
        if let Err(error) = attachment.pin(&dispatcher.pins) {
            let _ = attachment.detach();
            return Err(place.failed(error));
        }
        dispatcher.attachment = Some(attachment);
        dispatcher.calls(entries, revision);
        if let Some(reason) = &fallback {
            tracing::warn!(
                interface = place.interface,
                reason,
                "XDP is attached in generic mode"
            );
        }
        dispatcher.health.lock().fallback = fallback;
        dispatcher.is_well();
        Ok(())
    }

    /// Loads a revision that calls `entries`, and replaces the present revision with it, between
    /// two packets.
    pub fn switch(
        &self,
        dispatcher: &mut Dispatcher,
        place: &HookPoint,
        entries: Vec<DispatcherEntry>,
    ) -> Result<(), AttachError> {
        crash::fault("revising").map_err(|error| place.failed(error))?;
        let revision = self.revisions.get(place, &entries)?;
        let kind = kinds::of(&entries);
        if let Some(attachment) = &mut dispatcher.attachment {
            let is_native = attachment.mode() == NATIVE;
            let replaced = attachment.replace(revision.program(), &dispatcher.pins);
            replaced.map_err(|error| {
                kinds::not_replaced(place, is_native && kind == XdpKind::Single, error)
            })?;
            if kind == XdpKind::Frags {
                dispatcher.health.lock().fallback = None;
            }
            dispatcher.calls(entries, revision);
        } else {
            dispatcher.entries = entries;
        }
        Ok(())
    }
}

/// Makes the error for a hook that already has the most probes. The message names another hook with
/// room, if there is one.
fn no_room(place: &HookPoint) -> AttachError {
    let elsewhere = match place.hook.kind() {
        ProgramKind::Xdp => ", or attach this one at tc: `--hook tc`, or `hook: tc` in its ingress",
        ProgramKind::Tc => "",
    };
    let (hook, interface) = (place.hook.name(), &place.interface);
    AttachError::Occupied(format!(
        "{MAX_CHAIN} probes are attached at {hook} of {interface}; delete one first{elsewhere}"
    ))
}
