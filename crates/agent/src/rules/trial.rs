//! A trial of a rule over the packets of captures. The trial changes nothing.

use std::io;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, RuleAction, RuleDecision, RuleDocument, RuleTrial};
use twinprobe_rules::{Decision, RuleState};

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::replay::replay::UploadedCaptures;
use crate::engine::window::delivery::Delivery;
use crate::rules::judge::{self, JudgedPair, ReadWindow, ShapedRule};

/// A rule, and the probe whose windows the trial judges.
pub struct TriedRule {
    pub rule: RuleDocument,
    pub probe: String,
    /// The configuration of the probe, including the length of windows.
    pub config: ConfigDocument,
}

/// The position of a trial.
#[derive(Default)]
struct Progress {
    shaped: ShapedRule,
    state: RuleState,
    previous: Option<Result<Arc<serde_json::Value>, String>>,
}

impl TriedRule {
    /// Replays the captures, and judges the windows one after the other. The work keeps `place`
    /// until it has ended.
    pub async fn run(
        self,
        engine: &Arc<Engine>,
        by: &Principal,
        captures: UploadedCaptures,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Result<RuleTrial, EngineError> {
        let Self {
            rule,
            probe,
            config,
        } = self;
        let mut windows = engine
            .replay_windows(&probe, config, by, captures, place)
            .await?;
        let mut trial = RuleTrial {
            probe,
            windows: 0,
            decisions: Vec::new(),
            stopped: None,
        };
        let mut progress = Progress::default();
        // The sender is dropped if the thread of the replay panics.
        let died = || EngineError::Replay(io::Error::other("the replay ended early"));
        while let Some(delivery) = windows.recv().await.ok_or_else(died)?? {
            trial.windows += 1;
            trial
                .decisions
                .extend(progress.step(engine, &rule, delivery).await?);
        }
        trial.stopped = progress.state.stopped;
        Ok(trial)
    }
}

impl Progress {
    /// Judges the next window.
    async fn step(
        &mut self,
        engine: &Arc<Engine>,
        document: &RuleDocument,
        delivery: Delivery,
    ) -> Result<Option<RuleDecision>, EngineError> {
        let Some(window) = delivery.window().cloned() else {
            return Ok(None);
        };
        let ReadWindow {
            seq,
            shape,
            document: read,
        } = judge::rendered(engine, delivery, window.seq).await?;
        let rule = self.shaped.of(document, shape).await??;
        let before = self.previous.replace(read.clone()).and_then(Result::ok);
        let pair = JudgedPair {
            rule,
            window: read,
            before,
        };
        let end = judge::nanoseconds(&window.end);
        let (decision, actions) = match self.state.step(&pair.rule, seq, end, pair.judge().await?) {
            Some(Decision::Fire { .. }) => ("fire", pair.actions(engine).await?),
            Some(Decision::End { .. }) => ("end", Ok(Vec::new())),
            None => return Ok(None),
        };
        let (actions, error) = match actions {
            Ok(actions) => (actions.into_iter().map(RuleAction::masked).collect(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Ok(Some(RuleDecision {
            window: seq,
            time: window.end,
            decision: decision.into(),
            actions,
            error,
        }))
    }
}
