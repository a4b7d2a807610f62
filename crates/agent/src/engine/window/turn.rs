//! Work on one probe: one reader after the other, on a thread of its own, and what is retained stays within its limits.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, ReadError, not_read};
use crate::engine::probe::probe::Probe;

impl Engine {
    /// Works on the probe called `name`, and on its successor if it was replaced before its turn came.
    pub async fn in_turn<T, F>(self: &Arc<Self>, name: &str, work: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&Probe) -> Result<T, ReadError> + Clone + Send + 'static,
    {
        loop {
            match self.take_turn(self.get(name)?, work.clone()).await? {
                Ok(done) => return Ok(done),
                Err(error) => {
                    if let Some(error) = not_read(name.to_owned(), error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Waits until nobody else reads the probe, and works on it. The work goes on if its client goes away.
    pub async fn take_turn<T: Send + 'static>(
        self: &Arc<Self>,
        probe: Arc<Probe>,
        work: impl FnOnce(&Probe) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<Result<T, ReadError>, JoinError> {
        let turn = probe.turn().await;
        let engine = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let done = work(&probe);
            engine.windows.enforce();
            done
        });
        done.await
    }
}
