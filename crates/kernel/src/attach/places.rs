//! The places of a probe: the interfaces that its configuration names, and the hooks where it is
//! attached.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::attach::dispatcher::health::Health;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::load::direction::LoadedDirection;
use crate::net::netns::Netns;
use twinprobe_ebpf_common::request::AttachRequest;

/// An interface that a probe can be attached to.
#[derive(Clone, Debug)]
pub struct AttachInterface {
    pub netns: Netns,
    pub name: String,
    pub index: u32,
    /// True if a failure at this interface makes the whole attachment fail.
    pub required: bool,
    /// The index of the name or pattern in the configuration that has selected this interface.
    pub named_by: usize,
}

/// A hook where one direction is attached.
#[derive(Clone, Debug)]
pub struct AttachedAt {
    /// The index of the direction.
    pub direction: usize,
    pub place: HookPoint,
    pub health: Arc<Mutex<Health>>,
}

impl AttachedAt {
    /// Returns the present state of the attachment.
    pub fn health(&self) -> Health {
        self.health.lock().clone()
    }
}

/// A direction that could not be attached to an interface.
#[derive(Debug)]
pub struct NotAttached {
    pub interface: String,
    pub error: AttachError,
}

/// Returns every hook that directions need on `interfaces`, each with the index of its direction.
pub fn places(
    directions: &[LoadedDirection],
    interfaces: &[AttachInterface],
) -> Vec<(usize, HookPoint)> {
    let of = |(direction, loaded): (usize, &LoadedDirection)| {
        let AttachRequest { hook, position, .. } = loaded.plan.attach;
        let own = loaded.plan.own_interface.as_ref().map(|own| own.index);
        let served = interfaces
            .iter()
            .filter(move |interface| own.is_none_or(|own| own == interface.named_by));
        served.map(
            move |AttachInterface {
                      netns, name, index, ..
                  }| {
                let (netns, interface) = (netns.clone(), name.clone());
                (
                    direction,
                    HookPoint {
                        netns,
                        interface,
                        ifindex: *index,
                        hook,
                        position,
                    },
                )
            },
        )
    };
    directions.iter().enumerate().flat_map(of).collect()
}
