//! Attachments of a probe that this daemon can't take over from an earlier one. They stay as they are until a successor
//! is attached or the probe is removed.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::{Position, Verdict, XdpMode};

use crate::attach::attached::{Attached, AttachedAt};
use crate::attach::dispatcher::chain::{Callee, Owner, Rank};
use crate::attach::dispatcher::dispatchers::Addition;
use crate::attach::dispatcher::hook_point::Place;
use crate::attach::epoch::EpochWord;
use crate::attach::hook::attachment::{AttachError, Hook};
use crate::attach::reclaim::Reclaim;
use crate::kernel::{self, Kernel};
use crate::load::pins::{Note, NotedDirection, Pins};
use crate::net::interface;
use crate::net::netns::Netns;
use crate::sys::prog;

/// A deployment whose maps nobody reads. Its programs see packets, and their verdicts count.
#[derive(Debug)]
pub struct Held {
    kernel: Arc<Kernel>,
    owner: Owner,
    epoch: EpochWord,
    note: Note,
    places: Vec<AttachedAt>,
    pins: Pins,
}

/// The deployment that another one replaces.
#[derive(Clone, Copy, Debug)]
pub enum Replaced<'a> {
    Nothing,
    Attached(&'a Attached),
    Held(&'a Held),
}

impl<'a> Replaced<'a> {
    /// Returns the replaced deployment if its successor goes on with its content.
    pub const fn attached(self) -> Option<&'a Attached> {
        match self {
            Self::Attached(attached) => Some(attached),
            Self::Nothing | Self::Held(_) => None,
        }
    }

    pub fn owner_at(self, place: &Place) -> Option<Owner> {
        self.at(place).map(|_| match self {
            Self::Nothing => unreachable!("nothing is nowhere"),
            Self::Attached(attached) => attached.owner,
            Self::Held(held) => held.owner,
        })
    }

    /// Puts the replaced deployment back at `place`, instead of `instead_of`.
    pub fn put_back(self, place: &Place, instead_of: Owner) -> Result<(), AttachError> {
        let Some(at) = self.at(place) else { return Ok(()) };
        match self {
            Self::Nothing => Ok(()),
            Self::Attached(attached) => attached.call(at.direction, place, Some(instead_of)).map(drop),
            Self::Held(held) => held.call_again(at.direction, place, instead_of),
        }
    }

    fn at(self, place: &Place) -> Option<&'a AttachedAt> {
        let places = match self {
            Self::Nothing => return None,
            Self::Attached(attached) => &attached.places,
            Self::Held(held) => &held.places,
        };
        places.iter().find(|at| at.place == *place)
    }
}

impl Held {
    /// Finds the deployment of `probe` that packets meet: the one with `serial`, where that is known, else one whose
    /// note names the probe. To be called before [`Kernel::settle`] and after all adoptions. Unless the deployment has
    /// to be `attached`, one that is attached nowhere counts, too: its maps have what it has counted. `None` if there
    /// is no such deployment.
    pub fn find(kernel: &Arc<Kernel>, probe: &str, serial: Option<u64>, attached: bool) -> Option<Self> {
        let mut serials =
            serial.map_or_else(|| kernel::serials(&kernel.pins).unwrap_or_default(), |s| vec![s]);
        // The younger of two deployments may be of a replacement that was never committed.
        serials.sort_unstable();
        let mut found = None;
        for serial in serials {
            match Self::of(kernel, probe, serial) {
                Some(held) if !held.places.is_empty() => return Some(held),
                Some(held) if !attached && found.is_none() => found = Some(held),
                _ => {}
            }
        }
        found
    }

    fn of(kernel: &Arc<Kernel>, probe: &str, serial: u64) -> Option<Self> {
        let pins = Pins::new(&kernel.pins, serial);
        let (note, _) = pins.note().ok().filter(|(note, _)| note.probe == probe)?;
        let epoch = kernel.epochs.claim(note.epoch)?;
        let kernel = Arc::clone(kernel);
        let mut held = Self { kernel, owner: Owner(serial), epoch, note, places: Vec::new(), pins };
        if let Err(error) = held.claim() {
            // The deployment may run, and nobody will look for it again: all unclaimed attachments stay until the next
            // daemon.
            tracing::error!(probe, %error, "what runs can't be found, and is left as it is");
            held.kernel.dispatchers.keep_unclaimed();
            return None;
        }
        Some(held)
    }

    /// Claims the slots of the deployment at every place that has some.
    fn claim(&mut self) -> std::io::Result<()> {
        let netns = match self.note.netns.as_deref().map_or_else(Netns::own, Netns::open) {
            Err(error) if Netns::is_not_there(&error) => return Ok(()),
            netns => netns?,
        };
        for (name, index) in interface::list(&netns)?.by_name() {
            for (direction, noted) in self.note.directions.iter().enumerate() {
                let Some(hook) = Hook::from_name(&noted.hook) else { continue };
                let position = if noted.first { Position::First } else { Position::Last };
                let (netns, interface) = (netns.clone(), name.clone());
                let place = Place { netns, interface, ifindex: *index, hook, position };
                if let Some(health) = self.kernel.dispatchers.hold(&place, &self.addition(noted)) {
                    self.places.push(AttachedAt { direction, place, health });
                }
            }
        }
        Ok(())
    }

    fn addition(&self, noted: &NotedDirection) -> Addition<'_> {
        Addition {
            owner: self.owner,
            rank: Rank { priority: noted.priority, order: self.note.order },
            callee: Callee::Slotted(noted.programs),
            epoch: &self.epoch,
            verdict: if noted.enforce { Verdict::Enforce } else { Verdict::Observe },
            xdp_mode: XdpMode::Auto,
        }
    }

    fn call_again(&self, direction: usize, place: &Place, instead_of: Owner) -> Result<(), AttachError> {
        let addition = self.addition(&self.note.directions[direction]);
        self.kernel.dispatchers.add(place, &addition, Some(instead_of)).map(drop)
    }

    pub const fn serial(&self) -> u64 {
        self.owner.0
    }

    /// The position of the probe among those of the same priority.
    pub const fn order(&self) -> u64 {
        self.note.order
    }

    pub fn places(&self) -> &[AttachedAt] {
        &self.places
    }

    /// Removes the deployment from all places but those where `successor` has replaced it.
    pub fn retire(self, successor: &Attached) {
        self.leave(|place| successor.is_at(place), &mut Reclaim::default());
    }

    /// Removes the deployment and waits until the kernel has freed it.
    pub fn detach(self) {
        let mut reclaim = Reclaim::default();
        for id in self.note.directions.iter().flat_map(|direction| direction.programs) {
            if let Ok(Some(program)) = prog::prog_fd_by_id(id) {
                reclaim.add_program(program.as_fd());
            }
        }
        reclaim.add_pinned(&self.pins);
        self.leave(|_| false, &mut reclaim);
        drop(self);
        reclaim.wait();
    }

    fn leave(&self, taken: impl Fn(&Place) -> bool, reclaim: &mut Reclaim) {
        for AttachedAt { place, .. } in &self.places {
            let left = match taken(place) {
                true => self.kernel.dispatchers.retire(place, self.owner),
                false => self.kernel.dispatchers.remove(place, self.owner, reclaim),
            };
            if let Err(error) = left {
                tracing::warn!(error = with_causes(&error), "detaching was not clean");
            }
        }
        self.kernel.remove_pins(self.owner.0);
    }
}
