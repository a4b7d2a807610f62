//! A probe in the kernel, and its steps from loaded to attached to read. Each step is a type that
//! consumes the type of the previous step. Only [`Quiesced`](crate::attach::quiesced::Quiesced),
//! the guard of a finished flip, gives access to private maps.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::hook::XdpMode;

use crate::attach::dispatcher::dispatchers::Addition;
use crate::attach::dispatcher::health::Health;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::epoch::EpochWord;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::host::Host;
use crate::attach::places::{self, AttachInterface, AttachedAt, NotAttached};
use crate::attach::rank::{DeploymentId, Rank};
use crate::attach::reclaim::Reclaim;
use crate::load::carry::transfer::{Loss, Remains, Transfers};
use crate::load::direction::{LoadedDirection, program_ids};
use crate::load::maps::{Predecessor, TwinMap};
use crate::load::pins::{Deployment, DeploymentPins, Identity, Note};
use crate::net::watch::LinkChanges;
use crate::read::map::MetricMap;
use crate::sys::clock::Moment;
use twinprobe_ebpf_common::request::AttachRequest;
use twinprobe_faults::crash;

/// A deployment whose twins see packets.
#[derive(Debug)]
pub struct Attached {
    pub host: Arc<Host>,
    pub owner: DeploymentId,
    /// The name of the probe.
    pub probe: Arc<str>,
    /// The epoch word. A deployment that replaces this one shares the word, so that both always use
    /// the same twin.
    pub epoch: Arc<EpochWord>,
    pub directions: Vec<LoadedDirection>,
    /// The slots of each direction.
    pub slots: Vec<Arc<Slots>>,
    pub places: Vec<AttachedAt>,
    pub pins: DeploymentPins,
    pub record: Deployment,
    /// The epoch whose grace period has ended, and the duration of the wait.
    pub quiesced: Option<(u64, Duration)>,
    /// The content that the deployment has not yet taken over from its predecessor.
    pub transfers: Transfers,
}

impl Attached {
    /// Adopts the deployment of `record`, which an earlier daemon has attached. `directions` are
    /// the directions that its pins contain. Fails with the reason if the epoch word can't be
    /// claimed, or if the slots can't be made.
    pub fn adopt(
        host: &Arc<Host>,
        identity: Identity<'_>,
        record: Deployment,
        directions: Vec<LoadedDirection>,
        interfaces: &[AttachInterface],
    ) -> Result<(Self, Vec<NotAttached>), String> {
        let epoch = host
            .epochs
            .claim(record.epoch)
            .ok_or("its place in the epoch map is taken")?;
        if !epoch.is_adopted() {
            return Err("the epoch map is missing".into());
        }
        let mut attached = Self {
            host: Arc::clone(host),
            owner: DeploymentId(record.serial),
            probe: identity.probe.into(),
            epoch: Arc::new(epoch),
            directions,
            slots: Vec::new(),
            places: Vec::new(),
            pins: DeploymentPins::new(&host.pins, record.serial),
            record,
            quiesced: None,
            transfers: Transfers::default(),
        };
        attached.slots = attached
            .left_slots(interfaces)
            .map_err(|error| format!("its slots can't be made: {error}"))?;
        // The note is for a later daemon that can't read the stored configuration; this daemon does
        // not need it.
        let note = Note::new(identity, &attached.record, &attached.directions);
        if let Err(error) = note.and_then(|note| attached.pins.write_note(&note)) {
            tracing::warn!(probe = identity.probe, %error, "the note beside the pins could not be written");
        }
        // No step fails from here on: every direction that has claimed its slots is listed or
        // removed.
        let failed = attached.place(interfaces, &LinkChanges::default());
        Ok((attached, failed))
    }

    /// Opens the slots that the dispatchers of an earlier daemon call, or makes new ones.
    fn left_slots(&self, interfaces: &[AttachInterface]) -> io::Result<Vec<Arc<Slots>>> {
        let places = self.places_at(interfaces);
        let of = |(direction, loaded): (usize, &LoadedDirection)| {
            let programs = program_ids(&loaded.programs)?;
            for (_, place) in places.iter().filter(|(of, _)| *of == direction) {
                let pins = self.host.dispatchers.root.join(place.pin_name());
                // If the old slots are missing, the dispatchers get another program.
                if let Ok(Some(slots)) = Slots::left(&pins, self.owner, programs) {
                    return Ok(Arc::new(slots));
                }
            }
            Slots::fill(&loaded.programs).map(Arc::new)
        };
        self.directions.iter().enumerate().map(of).collect()
    }

    /// Attaches the probe at the interfaces where it is missing, and detaches it from all others.
    /// `changes` name the interfaces that were not there all the time. Returns the interfaces that
    /// failed.
    pub fn place(
        &mut self,
        interfaces: &[AttachInterface],
        changes: &LinkChanges,
    ) -> Vec<NotAttached> {
        let wanted = self.places_at(interfaces);
        let dispatchers = &self.host.dispatchers;
        let (keep, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.places)
            .into_iter()
            .partition(|at| {
                let now = wanted.iter().find(|(_, place)| *place == at.place);
                let was_gone = changes.may_be_gone(at.place.ifindex);
                now.is_some_and(|(_, place)| dispatchers.keep(place, self.owner, was_gone))
            });
        self.places = keep;
        for at in gone {
            self.remove(&at.place);
        }
        let mut failed = Vec::new();
        for (direction, place) in wanted {
            // A name can change while the interface stays.
            if let Some(at) = self.places.iter_mut().find(|at| at.place == place) {
                at.place = place;
            } else if let Err(error) = self.add(direction, &place, None) {
                failed.push(NotAttached {
                    interface: place.interface,
                    error,
                });
            }
        }
        failed
    }

    /// Retires the replaced deployment `old`. Call this once the replacement can't be undone any
    /// more. Returns the rows that remain in `old`, which belong to the open window, and the
    /// content that could not be taken over.
    pub fn retire(&mut self, old: &Self) -> (Vec<Remains>, Vec<Loss>) {
        let transfers = std::mem::take(&mut self.transfers);
        let taken_over = if transfers.is_empty() {
            Default::default()
        } else {
            if let Err(error) = self.host.quiescer.quiesce() {
                tracing::error!(%error, "no grace period: last counts of a replaced probe may be lost");
            }
            transfers.finish()
        };
        crash::point("transferred");
        for at in &old.places {
            crash::point("retiring");
            if self.is_at(&at.place) {
                if let Err(error) = self.host.dispatchers.retire(&at.place, old.owner) {
                    tracing::warn!(
                        error = with_causes(&error),
                        "a replaced probe's slots can't be unpinned"
                    );
                }
            } else {
                old.remove(&at.place);
            }
        }
        self.host.release(old.slots.iter().cloned());
        crash::point("retired");
        old.remove_pins();
        taken_over
    }

    /// Takes the probe out of all dispatchers and waits until the kernel has freed it.
    pub fn detach(mut self) {
        let mut reclaim = Reclaim::default();
        for direction in &self.directions {
            for parity in 0..2 {
                reclaim.add_program(direction.programs.of_twin(parity).as_fd());
            }
        }
        self.slots
            .iter()
            .for_each(|slots| reclaim.add_map(slots.map()));
        reclaim.add_pinned(&self.pins);
        for at in std::mem::take(&mut self.places) {
            crash::point("detaching");
            self.remove(&at.place);
        }
        crash::point("detached");
        self.remove_pins();
        drop(self);
        reclaim.wait();
    }

    /// Returns the maps that a replacement can take over. `more_known` names the maps of a
    /// direction with counts that are kept elsewhere.
    pub fn predecessor(
        &self,
        more_known: impl Fn(&'static str) -> BTreeSet<String>,
    ) -> Predecessor {
        let of = |loaded: &LoadedDirection| {
            (Arc::clone(&loaded.own), more_known(loaded.plan.direction()))
        };
        Predecessor {
            directions: self.directions.iter().map(of).collect(),
            active: self.epoch.twin(),
        }
    }

    /// Tells whether `new` continues with the maps of the open window: a flip since the load of
    /// `new` may have changed that. Call this while no flip can happen.
    pub fn is_continued_by(&self, new: &LoadedDirection) -> bool {
        new.own
            .expected_twin
            .is_none_or(|twin| twin == self.epoch.twin())
    }

    /// Returns the end of a closed window whose maps are not empty yet; `None` if there is no such
    /// window.
    pub fn closed(&self) -> Option<Moment> {
        self.epoch.unread().map(|_| self.epoch.closed())
    }

    /// Returns the map of a metric if both twins share it; `None` if each twin has a map of its
    /// own.
    pub fn live_map(&self, direction: usize, metric: usize) -> Option<&Arc<MetricMap>> {
        match self.map(direction, metric) {
            TwinMap::Shared(map) => Some(map),
            TwinMap::Private(_) | TwinMap::Events(_) | TwinMap::Unread => None,
        }
    }

    pub fn map(&self, direction: usize, metric: usize) -> &TwinMap {
        &self.directions[direction].maps[metric]
    }

    pub fn direction(&self, name: &str) -> Option<&LoadedDirection> {
        self.directions
            .iter()
            .find(|loaded| loaded.plan.direction() == name)
    }

    /// Returns every hook that the probe needs on `interfaces`, each with the index of its
    /// direction.
    pub fn places_at(&self, interfaces: &[AttachInterface]) -> Vec<(usize, HookPoint)> {
        places::places(&self.directions, interfaces)
    }

    pub fn is_at(&self, place: &HookPoint) -> bool {
        self.places.iter().any(|at| at.place == *place)
    }

    /// Enters a direction into the dispatcher at `place`, instead of the deployment `replaces`, and
    /// lists the place.
    pub fn add(
        &mut self,
        direction: usize,
        place: &HookPoint,
        replaces: Option<DeploymentId>,
    ) -> Result<(), AttachError> {
        let health = self.call(direction, place, replaces)?;
        self.places.push(AttachedAt {
            direction,
            place: place.clone(),
            health,
        });
        Ok(())
    }

    /// Enters a direction into the dispatcher at `place`, instead of the deployment `replaces`.
    /// Returns the state of the attachment.
    pub fn call(
        &self,
        direction: usize,
        place: &HookPoint,
        replaces: Option<DeploymentId>,
    ) -> Result<Arc<Mutex<Health>>, AttachError> {
        let loaded = &self.directions[direction];
        let AttachRequest {
            verdict,
            sample,
            xdp_mode,
            priority,
            ..
        } = loaded.plan.attach;
        let addition = Addition {
            owner: self.owner,
            probe: &self.probe,
            rank: Rank {
                priority: priority.into(),
                order: self.record.order,
            },
            slots: &self.slots[direction],
            epoch: &self.epoch,
            verdict,
            sample,
            stands: loaded.stands(),
            kind: loaded.plan.kind(),
            xdp_mode,
        };
        self.host.dispatchers.add(place, &addition, replaces)
    }

    /// Takes the probe out of the dispatcher at `place`. Failures are logged.
    pub fn remove(&self, place: &HookPoint) {
        if let Err(error) = self.host.dispatchers.remove(place, self.owner) {
            tracing::warn!(error = with_causes(&error), "a probe could not be detached");
        }
    }

    /// Returns the index of the direction and the reason for each place where XDP is attached in
    /// generic mode, although the probe could be native with another program.
    pub fn fallbacks(&self) -> Vec<(usize, String)> {
        let of = |at: &AttachedAt| {
            let asks = self.directions[at.direction].plan.attach.xdp_mode == XdpMode::Auto;
            let reason = at.health().fallback.filter(|_| asks)?;
            Some((
                at.direction,
                format!("attached in generic mode, which is slower: {reason}"),
            ))
        };
        self.places.iter().filter_map(of).collect()
    }

    pub fn remove_pins(&self) {
        self.host.remove_pins(self.owner.0);
    }
}
