//! The places of a probe: interfaces that are wanted, and those where it is attached.

use std::sync::{Arc, Mutex, PoisonError};

use crate::attach::dispatcher::health::Health;
use crate::attach::dispatcher::hook_point::Place;
use crate::attach::hook::target::AttachError;
use crate::net::netns::Netns;

/// Where a probe can be attached.
#[derive(Clone, Debug)]
pub struct Interface {
    pub netns: Netns,
    pub name: String,
    pub index: u32,
    /// Whether a probe that can't be attached here is not to be attached at all.
    pub required: bool,
}

/// Where one direction is attached.
#[derive(Clone, Debug)]
pub struct AttachedAt {
    /// Index of the direction.
    pub direction: usize,
    pub place: Place,
    pub health: Arc<Mutex<Health>>,
}

impl AttachedAt {
    /// What has become of it.
    pub fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A direction that could not be attached to an interface.
#[derive(Debug)]
pub struct NotAttached {
    pub interface: String,
    pub error: AttachError,
}
