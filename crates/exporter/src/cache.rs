//! Values that are computed once per metric, however often the metric is written.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// The values that the formats and the aggregation have computed for one metric. There is one value
/// of each type, made at its first use. A copy of the cache is empty, because the copied metric may
/// change.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Cache {
    /// Returns the value of type `T`. Calls `make` once, which must not use the same cache.
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut values = self.0.lock();
        if let Some(value) = values
            .iter()
            .find_map(|value| Arc::clone(value).downcast().ok())
        {
            return value;
        }
        let value = Arc::new(make());
        values.push(Arc::clone(&value) as _);
        value
    }
}

impl Clone for Cache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_made_once_and_a_copy_makes_its_own() {
        let cache = Cache::default();
        assert_eq!(*cache.get(|| 7_u8), 7);
        assert_eq!(*cache.get(|| 8_u8), 7, "it is there already");
        assert_eq!(*cache.get(|| 9_u16), 9, "another type");
        let copy = cache.clone();
        assert_eq!((*copy.get(|| 8_u8), *cache.get(|| 8_u8)), (8, 7));
    }
}
