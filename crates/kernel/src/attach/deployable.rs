//! The step from loaded to attached. The daemon pins everything before it attaches, so that a later
//! daemon finds all attachments.

use std::io;
use std::sync::Arc;

use crate::attach::attached::Attached;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::hook::error::AttachError;
use crate::attach::host::Host;
use crate::attach::places::{AttachInterface, NotAttached};
use crate::attach::rank::DeploymentId;
use crate::attach::replaced::ReplacedDeployment;
use crate::capabilities::Capabilities;
use crate::load::carry::transfer::{Loss, MoreKnown, Remains, Transfers};
use crate::load::direction::LoadedDirection;
use crate::load::pins::{Deployment, DeploymentPins, DirectionRecord, Identity, Note};
use crate::sys::call::KernelError;
use twinprobe_faults::crash;

/// A deployment that is loaded, pinned and recorded, and not attached yet.
#[derive(Debug)]
pub struct Deployable(Attached);

impl Deployable {
    /// Pins the loaded directions. The deployment continues the windows of `replaces`. If it
    /// replaces nothing, its first window has the number `first_epoch`, and `order` is its earlier
    /// position among the probes of the same priority, if there was one. `more_known` adds the
    /// counts of the replaced maps that are kept outside of the maps. After an error no pin is
    /// left.
    pub fn new(
        host: &Arc<Host>,
        identity: Identity<'_>,
        directions: Vec<LoadedDirection>,
        replaces: Option<&Attached>,
        first_epoch: u64,
        order: Option<u64>,
        more_known: &MoreKnown<'_>,
    ) -> Result<Self, AttachError> {
        let serial = host.new_serial();
        let epoch = match replaces {
            Some(old) => Arc::clone(&old.epoch),
            None => Arc::new(host.epochs.allocate(first_epoch)?),
        };
        let record = Deployment {
            boot_id: host.boot_id.clone(),
            serial,
            order: replaces
                .map(|old| old.record.order)
                .or(order)
                .unwrap_or(serial),
            epoch: epoch.place(),
            directions: directions
                .iter()
                .map(DirectionRecord::new)
                .collect::<Result<_, _>>()?,
        };
        let slots = fill_slots(&directions)?;
        let pins = DeploymentPins::new(&host.pins, serial);
        if let Err(error) = pin(&pins, identity, &record, &directions) {
            host.remove_pins(serial);
            return Err(KernelError::new("pinning", "the probe", error).into());
        }
        crash::point("pinned");
        let transfers = match replaces {
            Some(old) => begin_transfers(old, &directions, &host.capabilities, more_known),
            None => Transfers::default(),
        };
        Ok(Self(Attached {
            host: Arc::clone(host),
            owner: DeploymentId(serial),
            probe: identity.probe.into(),
            epoch,
            directions,
            slots,
            places: Vec::new(),
            pins,
            record,
            quiesced: None,
            transfers,
        }))
    }

    /// Returns the record that the daemon stores on disk, by which a later daemon finds the
    /// deployment.
    pub const fn record(&self) -> &Deployment {
        &self.0.record
    }

    /// Returns the loaded directions, ingress first.
    pub fn directions(&self) -> &[LoadedDirection] {
        &self.0.directions
    }

    /// Returns the number of the open window.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.current()
    }

    /// Returns the counts of the open window in old maps of another layout, converted to the layout
    /// of the new maps.
    pub fn open_rows(&self) -> Result<Vec<Remains>, KernelError> {
        self.0.transfers.preview()
    }

    /// Returns the content that could not be taken over.
    pub fn losses(&self) -> &[Loss] {
        self.0.transfers.losses()
    }

    /// Attaches every direction at every interface, and returns the failures. At interfaces of
    /// `replaces`, the new programs take the place of its programs between two packets. Fails if
    /// the attachment fails at a required interface, or at a place of `replaces` if that deployment
    /// is held. After an error everything is as before the call.
    pub fn attach(
        self,
        interfaces: &[AttachInterface],
        replaces: ReplacedDeployment<'_>,
    ) -> Result<(Attached, Vec<NotAttached>), AttachError> {
        let Self(mut attached) = self;
        let mut failed = Vec::new();
        let mut places = attached.places_at(interfaces);
        // New places come first: obstacles there are found before any packet meets the new
        // programs.
        places.sort_by_key(|(_, place)| replaces.owner_at(place).is_some());
        for (direction, place) in places {
            let old = replaces.owner_at(&place);
            if let Err(error) = attached.add(direction, &place, old) {
                let is_required = |interface: &AttachInterface| {
                    interface.required && interface.name == place.interface
                };
                // The held deployment would end without a successor.
                let is_held = matches!(replaces, ReplacedDeployment::Held(_)) && old.is_some();
                if is_held || interfaces.iter().any(is_required) {
                    attached.undo(replaces);
                    return Err(error);
                }
                failed.push(NotAttached {
                    interface: place.interface,
                    error,
                });
            }
            crash::point("attached");
        }
        Ok((attached, failed))
    }

    /// Removes the pins of a deployment that is not to be attached.
    pub fn discard(self) {
        self.0.undo(ReplacedDeployment::Nothing);
    }
}

/// Makes the slots of each direction, which contain its programs.
fn fill_slots(directions: &[LoadedDirection]) -> Result<Vec<Arc<Slots>>, KernelError> {
    directions
        .iter()
        .map(|loaded| Slots::fill(&loaded.programs).map(Arc::new))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|source| KernelError::new("creation", "the slots of the probe", source))
}

/// Pins the directions and the note about them. After an error some pins may be left.
fn pin(
    pins: &DeploymentPins,
    identity: Identity<'_>,
    record: &Deployment,
    directions: &[LoadedDirection],
) -> io::Result<()> {
    for (record, loaded) in record.directions.iter().zip(directions) {
        pins.pin(record, loaded)?;
    }
    pins.write_note(&Note::new(identity, record, directions)?)
}

/// Begins to take over the content of the deployment `old` into the maps of the new directions.
fn begin_transfers(
    old: &Attached,
    directions: &[LoadedDirection],
    capabilities: &Capabilities,
    more_known: &MoreKnown<'_>,
) -> Transfers {
    let replaced: Vec<_> = old.directions.iter().map(|old| &*old.own).collect();
    let mut transfers = Transfers::default();
    for loaded in directions {
        let (new, active) = (&loaded.own, old.epoch.twin());
        transfers.extend(Transfers::begin(
            &replaced,
            active,
            new,
            capabilities,
            more_known,
        ));
    }
    transfers
}
