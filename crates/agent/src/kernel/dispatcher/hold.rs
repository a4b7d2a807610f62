//! What a probe that can't be adopted has in the dispatchers of an earlier daemon.

use std::sync::PoisonError;

use super::chain::Dispatcher;
use super::{Addition, Dispatchers, Place};

impl Dispatchers {
    /// Goes on calling what an earlier daemon has had called at `place`, before [`Self::settle`]. `None` if that does
    /// not run there.
    pub fn hold(&self, place: &Place, addition: &Addition<'_>) -> Option<&'static str> {
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_place.remove(&place.key()).map(|(_, dispatcher)| dispatcher);
        let is_known = known.is_some();
        let adopt = || Dispatcher::adopt(self.root.join(place.pin_name()), place).ok().flatten();
        let mut dispatcher = known.or_else(adopt)?;
        let usable = dispatcher.adopted && dispatcher.is_alive(place);
        let held = usable.then(|| self.add_to(&mut dispatcher, place, addition, None).ok()).flatten();
        if is_known || held.is_some() {
            by_place.insert(place.key(), (place.clone(), dispatcher));
        }
        held
    }
}
