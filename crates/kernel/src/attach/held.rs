//! Attachments of a probe that this daemon can't take over from an earlier daemon. They stay
//! unchanged until a successor is attached or the probe is removed.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::{Hook, Position, Verdict, XdpKind, XdpMode};

use crate::attach::dispatcher::dispatchers::Addition;
use crate::attach::dispatcher::failure;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::epoch::EpochWord;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::host::{self, Host};
use crate::attach::places::AttachedAt;
use crate::attach::rank::{DeploymentId, Rank};
use crate::attach::reclaim::Reclaim;
use crate::load::pins::{DeploymentPins, Note, NotedDirection};
use crate::net::interface;
use crate::net::netns::Netns;
use crate::sys::object::{self, ObjectKind};

/// A deployment whose maps are not read. Its programs see packets, and their verdicts take effect.
#[derive(Debug)]
pub struct HeldDeployment {
    pub host: Arc<Host>,
    pub owner: DeploymentId,
    /// The name of the probe.
    pub probe: Arc<str>,
    pub epoch: EpochWord,
    pub note: Note,
    /// The slots of each direction that is attached.
    pub slots: Vec<Option<Arc<Slots>>>,
    pub places: Vec<AttachedAt>,
    /// True if the interfaces could not be listed: the deployment may be attached, and `places` is
    /// empty.
    is_unsure: bool,
    pub pins: DeploymentPins,
}

impl HeldDeployment {
    /// Finds the deployment of `probe` that packets meet: the one with `serial` if it is known,
    /// else one whose note names the probe. To be called before [`Kernel::settle`] and after all
    /// adoptions. Unless the deployment must be `attached`, a deployment that is attached nowhere
    /// is also found, because its maps have its counts. A deployment whose interfaces can't be
    /// listed counts as attached. `None` if there is no such deployment.
    pub fn find(
        host: &Arc<Host>,
        probe: &str,
        serial: Option<u64>,
        attached: bool,
    ) -> Option<Self> {
        let mut serials = serial.map_or_else(
            || host::serials(&host.pins).unwrap_or_default(),
            |s| vec![s],
        );
        // The younger of two deployments may be of a replacement that was never committed.
        serials.sort_unstable();
        let mut found = None;
        for serial in serials {
            match Self::of(host, probe, serial) {
                Some(held) if held.is_unsure || !held.places.is_empty() => return Some(held),
                Some(held) if !attached && found.is_none() => found = Some(held),
                _ => {}
            }
        }
        found
    }

    fn of(host: &Arc<Host>, probe: &str, serial: u64) -> Option<Self> {
        let pins = DeploymentPins::new(&host.pins, serial);
        let (note, _) = pins.note().ok().filter(|(note, _)| note.probe == probe)?;
        let epoch = host.epochs.claim(note.epoch)?;
        let host = Arc::clone(host);
        let owner = DeploymentId(serial);
        let slots = vec![None; note.directions.len()];
        let probe_name = Arc::from(probe);
        let mut held = Self {
            host,
            owner,
            probe: probe_name,
            epoch,
            note,
            slots,
            places: Vec::new(),
            is_unsure: false,
            pins,
        };
        if let Err(error) = held.claim() {
            // The deployment may run, and this daemon will not look for it again: all unclaimed
            // attachments stay until the next daemon. The pins stay for a daemon that can adopt the
            // deployment, and the epoch keeps its place because the programs follow it.
            tracing::error!(probe, %error, "a probe's attachments can't be found; unclaimed ones stay");
            held.host.dispatchers.keep_unclaimed();
            held.is_unsure = true;
        }
        Some(held)
    }

    /// Claims the slots of the deployment at every place that has some.
    fn claim(&mut self) -> std::io::Result<()> {
        let netns = match self
            .note
            .netns
            .as_deref()
            .map_or_else(Netns::own, Netns::open)
        {
            Err(error) if Netns::is_not_there(&error) => return Ok(()),
            netns => netns?,
        };
        for (name, ifindex) in interface::list(&netns)?.by_name {
            for (direction, noted) in self.note.directions.iter().enumerate() {
                let Some(hook) = Hook::from_name(&noted.hook) else {
                    continue;
                };
                let position = if noted.first {
                    Position::First
                } else {
                    Position::Last
                };
                let (netns, interface) = (netns.clone(), name.clone());
                let place = HookPoint {
                    netns,
                    interface,
                    ifindex,
                    hook,
                    position,
                };
                let Some(slots) = self.slots_at(&place, noted) else {
                    continue;
                };
                let slots = Arc::clone(self.slots[direction].get_or_insert(Arc::new(slots)));
                let addition = self.addition(noted, &slots);
                if let Some(health) = self.host.dispatchers.hold(&place, &addition) {
                    self.places.push(AttachedAt {
                        direction,
                        place,
                        health,
                    });
                }
            }
        }
        Ok(())
    }

    /// Opens the slots by which the dispatcher at `place` calls the deployment; `None` if the
    /// dispatcher does not call it.
    fn slots_at(&self, place: &HookPoint, noted: &NotedDirection) -> Option<Slots> {
        let pins = self.host.dispatchers.root.join(place.pin_name());
        let open = |id| self.pins.program_with_id(id);
        let left = Slots::left(&pins, self.owner, noted.programs).and_then(|left| match left {
            None => Slots::left_by_earlier_version(&pins, noted.programs, open),
            left => Ok(left),
        });
        if left.as_ref().is_err_and(failure::is_passing) {
            self.host.dispatchers.keep_unclaimed();
        }
        left.ok().flatten()
    }

    /// Puts the deployment back at `place`, in the place of `instead_of`, after a failed
    /// replacement.
    pub fn call_again(
        &self,
        direction: usize,
        place: &HookPoint,
        instead_of: DeploymentId,
    ) -> Result<(), AttachError> {
        let Some(slots) = &self.slots[direction] else {
            return Ok(());
        };
        let noted = &self.note.directions[direction];
        let addition = self.addition(noted, slots);
        self.host
            .dispatchers
            .add(place, &addition, Some(instead_of))
            .map(drop)
    }

    /// Removes the deployment and waits until the kernel has freed it.
    pub fn detach(self) {
        let mut reclaim = Reclaim::default();
        for id in self
            .note
            .directions
            .iter()
            .flat_map(|direction| direction.programs)
        {
            if let Ok(Some(program)) = object::fd_by_id(ObjectKind::Program, id) {
                reclaim.add_program(program.as_fd());
            }
        }
        self.slots
            .iter()
            .flatten()
            .for_each(|slots| reclaim.add_map(slots.map()));
        reclaim.add_pinned(&self.pins);
        self.leave(|_| false);
        self.close();
        reclaim.wait();
    }

    /// Frees the place of the epoch word, unless attachments that were not found may still call
    /// programs that read the word.
    pub fn close(self) {
        if self.is_unsure {
            std::mem::forget(self.epoch);
        }
    }

    /// Removes the deployment from its places and removes its pins. At places where a successor has
    /// replaced it, as `taken` tells, only its slots are unpinned.
    pub fn leave(&self, taken: impl Fn(&HookPoint) -> bool) {
        for AttachedAt { place, .. } in &self.places {
            let left = match taken(place) {
                true => self.host.dispatchers.retire(place, self.owner),
                false => self.host.dispatchers.remove(place, self.owner),
            };
            if let Err(error) = left {
                tracing::warn!(
                    error = with_causes(&error),
                    "a held probe could not be detached"
                );
            }
        }
        self.host.remove_pins(self.owner.0);
    }

    fn addition<'a>(&'a self, noted: &NotedDirection, slots: &'a Arc<Slots>) -> Addition<'a> {
        let is_frags = |hook| self.host.has_frags(hook, noted.frags);
        Addition {
            owner: self.owner,
            probe: &self.probe,
            rank: Rank {
                priority: noted.priority,
                order: self.note.order,
            },
            slots,
            epoch: &self.epoch,
            verdict: if noted.enforce {
                Verdict::Enforce
            } else {
                Verdict::Observe
            },
            sample: noted.sample,
            stands: noted.stands,
            kind: XdpKind::of(
                Hook::from_name(&noted.hook).is_some_and(is_frags),
                noted.joined,
            ),
            xdp_mode: XdpMode::Auto,
        }
    }
}
