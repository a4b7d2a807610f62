//! A deployment that is being replaced, and the steps to restore it after a failure.

use crate::attach::attached::Attached;
use crate::attach::held::HeldDeployment;
use crate::attach::hook::error::AttachError;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::places::AttachedAt;
use crate::attach::rank::DeploymentId;

/// A deployment that another deployment replaces.
#[derive(Clone, Copy, Debug)]
pub enum ReplacedDeployment<'a> {
    Nothing,
    Attached(&'a Attached),
    Held(&'a HeldDeployment),
}

impl<'a> ReplacedDeployment<'a> {
    /// Returns the replaced deployment if its successor takes over its content.
    pub const fn attached(self) -> Option<&'a Attached> {
        match self {
            Self::Attached(attached) => Some(attached),
            Self::Nothing | Self::Held(_) => None,
        }
    }

    /// Returns the owner of the slots at `place`; `None` if the deployment is not attached there.
    pub fn owner_at(self, place: &HookPoint) -> Option<DeploymentId> {
        self.at(place).map(|_| match self {
            Self::Nothing => unreachable!("nothing is nowhere"),
            Self::Attached(attached) => attached.owner,
            Self::Held(held) => held.owner,
        })
    }

    /// Puts the replaced deployment back at `place`, in the place of `instead_of`.
    pub fn put_back(self, place: &HookPoint, instead_of: DeploymentId) -> Result<(), AttachError> {
        let Some(at) = self.at(place) else {
            return Ok(());
        };
        match self {
            Self::Nothing => Ok(()),
            Self::Attached(attached) => attached
                .call(at.direction, place, Some(instead_of))
                .map(drop),
            Self::Held(held) => held.call_again(at.direction, place, instead_of),
        }
    }

    fn at(self, place: &HookPoint) -> Option<&'a AttachedAt> {
        let places = match self {
            Self::Nothing => return None,
            Self::Attached(attached) => &attached.places,
            Self::Held(held) => &held.places,
        };
        places.iter().find(|at| at.place == *place)
    }
}

impl Attached {
    /// Puts `replaced` back at all places where `self` has replaced it, and removes `self`
    /// everywhere.
    pub fn undo(mut self, replaced: ReplacedDeployment<'_>) {
        for at in std::mem::take(&mut self.places) {
            if let Err(error) = replaced.put_back(&at.place, self.owner) {
                tracing::error!(%error, "a probe could not be put back after a failed replacement");
            }
            self.remove(&at.place);
        }
        self.host.release(std::mem::take(&mut self.slots));
        self.remove_pins();
    }
}

impl HeldDeployment {
    /// Removes the deployment from all places except those where `successor` has replaced it.
    pub fn retire(self, successor: &Attached) {
        self.leave(|place| successor.is_at(place));
        self.host.release(self.slots.iter().flatten().cloned());
        self.close();
    }
}
