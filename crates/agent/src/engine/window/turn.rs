//! The work on one probe: one task after the other, on a thread for blocking work. After each task,
//! the retained windows are reduced to their limits.

use std::sync::Arc;

use tokio::task::JoinError;

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;

impl Engine {
    /// Does `work` on the probe called `name`, or on its successor if the probe is replaced before
    /// the turn comes.
    pub async fn in_turn<T, F>(self: &Arc<Self>, name: &str, work: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&Probe) -> Result<T, EngineError> + Clone + Send + 'static,
    {
        loop {
            match self
                .take_turn(self.registry.get(name)?, work.clone())
                .await?
            {
                Err(EngineError::Gone) => {}
                done => return done,
            }
        }
    }

    /// Waits for the turn to read the probe, and does `work` on it. The work continues if its
    /// client hangs up.
    pub async fn take_turn<T: Send + 'static>(
        self: &Arc<Self>,
        probe: Arc<Probe>,
        work: impl FnOnce(&Probe) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<Result<T, EngineError>, JoinError> {
        let turn = Arc::clone(&probe.turn).lock_owned().await;
        let engine = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let done = work(&probe);
            engine.readings.windows.enforce();
            done
        });
        done.await
    }
}
