//! The state of a rule between windows, and the consequence of the next window.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinprobe_api::RuleDocument;

use crate::rule::{DEFAULT_ACTIONS_PER_HOUR, Judgement, Rule};

/// The number of consecutive windows without a judgement after which a rule stops.
const MOST_FAILURES: u32 = 3;
const HOUR: Duration = Duration::from_hours(1);

/// The state of a rule. It is stored together with the position in the windows, so that each window
/// counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleState {
    /// The number of the last window that was judged.
    pub window: u64,
    /// The number of consecutive windows for which the condition is true.
    pub holds: u32,
    /// The number of the window at which the rule fired; `None` once the actions of the firing have
    /// ended.
    pub firing: Option<u64>,
    /// The times of the actions in the last hour, in nanoseconds since the Unix epoch, one for each
    /// action.
    pub taken: VecDeque<i64>,
    /// The time of the last firing.
    pub fired: Option<i64>,
    /// The number of consecutive windows that could not be judged.
    pub failures: u32,
    /// The reason why the rule has stopped.
    pub stopped: Option<String>,
}

/// The actions of a rule at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The rule takes its actions. The number of this window identifies them, so that repeated
    /// actions are recognized.
    Fire { window: u64 },
    /// The rule ends the actions of this window's firing.
    End { fired_at: u64 },
}

impl RuleState {
    /// Takes the judgement of the next window into account. `end` is the end of the window in
    /// nanoseconds since the Unix epoch. A window that was judged before changes nothing.
    pub fn step(
        &mut self,
        rule: &Rule,
        window: u64,
        end: i64,
        judgement: Result<Judgement, String>,
    ) -> Option<Decision> {
        if window <= self.window || self.stopped.is_some() {
            return None;
        }
        self.window = window;
        // After somebody has set the clock back, times in its future would prevent the rule from
        // firing, or stop it.
        self.fired = self.fired.map(|fired| fired.min(end));
        self.taken
            .iter_mut()
            .for_each(|time| *time = end.min(*time));
        let Judgement { when, until, .. } = match judgement {
            Ok(judgement) => judgement,
            Err(message) => return self.fail(&message),
        };
        self.failures = 0;
        self.holds = if when {
            self.holds.saturating_add(1)
        } else {
            0
        };
        if let Some(fired_at) = self.firing {
            return until.then(|| self.end(fired_at));
        }
        // The rule would end the action immediately, so the action is not worth its cost.
        let is_due = self.holds >= rule.windows && !(until && rule.document().until.is_some());
        let is_cool = self
            .fired
            .is_none_or(|fired| end - fired >= nanoseconds(rule.cooldown));
        if is_due && is_cool {
            self.fire(rule, window, end)
        } else {
            None
        }
    }

    /// Returns how many actions the rule may still take in this hour.
    pub fn actions_left(&self, document: &RuleDocument, now: i64) -> u32 {
        let most = document
            .max_actions_per_hour
            .unwrap_or(DEFAULT_ACTIONS_PER_HOUR);
        let taken = self
            .taken
            .iter()
            .filter(|time| now - **time < nanoseconds(HOUR))
            .count();
        most.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    fn fire(&mut self, rule: &Rule, window: u64, end: i64) -> Option<Decision> {
        self.taken.retain(|time| end - time < nanoseconds(HOUR));
        let actions = rule.document().actions.len();
        if self.taken.len() + actions > rule.max_actions_per_hour as usize {
            let most = rule.max_actions_per_hour;
            self.stopped = Some(format!(
                "the rule would take more than {most} actions in an hour"
            ));
            return None;
        }
        self.taken.extend(std::iter::repeat_n(end, actions));
        self.fired = Some(end);
        self.firing = Some(window);
        Some(Decision::Fire { window })
    }

    fn end(&mut self, fired_at: u64) -> Decision {
        self.firing = None;
        Decision::End { fired_at }
    }

    /// A rule that stops ends its actions.
    fn fail(&mut self, message: &str) -> Option<Decision> {
        self.holds = 0;
        self.failures += 1;
        if self.failures < MOST_FAILURES {
            return None;
        }
        self.stopped = Some(format!(
            "{MOST_FAILURES} windows in a row could not be judged: {message}"
        ));
        let fired_at = self.firing?;
        Some(self.end(fired_at))
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
