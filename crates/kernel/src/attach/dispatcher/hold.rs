//! The slots of a probe that can't be adopted, in the dispatchers of an earlier daemon.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::attach::dispatcher::chain::Dispatcher;
use crate::attach::dispatcher::dispatchers::{Addition, Dispatchers};
use crate::attach::dispatcher::failure;
use crate::attach::dispatcher::health::Health;
use crate::attach::hook::hook_point::HookPoint;

impl Dispatchers {
    /// Keeps calling the programs that an earlier daemon called at `place`; use this before
    /// [`Self::settle`]. Returns `None` if the programs do not run at this place.
    pub fn hold(&self, place: &HookPoint, addition: &Addition<'_>) -> Option<Arc<Mutex<Health>>> {
        let mut by_place = self.by_place.lock();
        let known = by_place
            .remove(&place.key())
            .map(|(_, dispatcher)| dispatcher);
        let is_known = known.is_some();
        let adopt = || {
            let adopted = Dispatcher::adopt(self.root.join(place.pin_name()), place);
            if adopted.as_ref().is_err_and(failure::is_passing) {
                self.keep_unclaimed();
            }
            adopted.ok().flatten()
        };
        let mut dispatcher = known.or_else(adopt)?;
        let usable = dispatcher.adopted && dispatcher.is_alive(place).unwrap_or(true);
        let held = usable
            .then(|| self.add_to(&mut dispatcher, place, addition, None).ok())
            .flatten();
        let held = held.map(|()| Arc::clone(&dispatcher.health));
        if is_known || held.is_some() {
            by_place.insert(place.key(), (place.clone(), dispatcher));
        }
        held
    }
}
