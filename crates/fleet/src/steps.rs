//! The steps of a rollout, checked.

use std::time::Duration;

use jiff::SignedDuration;
use twinprobe_api::{Canary, FleetBudget, FleetRollout, OnFailure};
use twinprobe_ebpf_common::finding::Finding;

use crate::share::WHOLE;

/// The most canaries. An assignment names all of them, and must stay small.
const MOST_CANARIES: u32 = 10;
const MOST_WINDOWS: u32 = 1000;
const LONGEST: Duration = Duration::from_hours(24 * 7);

/// One step: the canaries, or a share of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStep {
    /// `canary`, or the share as in the spec.
    pub name: String,
    /// The share of nodes in addition to the canaries, in hundredths of a per cent.
    pub share: u16,
}

/// The steps of a rollout, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutPlan {
    pub canary: Option<Canary>,
    /// The steps. The first one is that of the canaries, if there are any.
    pub steps: Vec<RolloutStep>,
    pub windows: u32,
    pub timeout: Duration,
    pub budget: FleetBudget,
    pub on_failure: OnFailure,
}

impl RolloutPlan {
    /// Checks the steps of a rollout, and adds their mistakes to `findings`.
    pub fn new(rollout: &FleetRollout, findings: &mut Vec<Finding>) -> Option<Self> {
        let known = findings.len();
        let mut refuse = |field: &str, message: String| {
            findings.push(Finding::config(format!("spec.rollout.{field}"), message));
        };
        let steps = steps(rollout, &mut refuse);
        if !(1..=MOST_WINDOWS).contains(&rollout.windows) {
            let count = rollout.windows;
            refuse(
                "windows",
                format!("{count} is not a number of windows; use 1 to {MOST_WINDOWS}"),
            );
        }
        let timeout: Option<SignedDuration> = rollout.timeout.parse().ok();
        let timeout = timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let timeout =
            timeout.filter(|timeout| (Duration::from_secs(1)..=LONGEST).contains(timeout));
        if timeout.is_none() {
            let text = &rollout.timeout;
            refuse(
                "timeout",
                format!("{text:?} can't be a timeout; use 1s to 168h, such as 5m"),
            );
        }
        (findings.len() == known).then_some(())?;
        Some(Self {
            canary: rollout.canary.clone(),
            steps,
            windows: rollout.windows,
            timeout: timeout?,
            budget: rollout.budget,
            on_failure: rollout.on_failure,
        })
    }
}

/// Returns the steps, that of the canaries first.
fn steps(rollout: &FleetRollout, refuse: &mut impl FnMut(&str, String)) -> Vec<RolloutStep> {
    let mut steps = Vec::new();
    match &rollout.canary {
        Some(Canary::Nodes(count)) if !(1..=MOST_CANARIES).contains(count) => {
            refuse(
                "canary",
                format!("{count} nodes; use 1 to {MOST_CANARIES} nodes, or labels"),
            );
        }
        Some(Canary::Labels(labels)) if labels.is_empty() => {
            refuse("canary", "has no labels; it would be every node".to_owned());
        }
        Some(_) => steps.push(RolloutStep {
            name: "canary".to_owned(),
            share: 0,
        }),
        None => {}
    }
    let mut before = 0;
    for (i, text) in rollout.steps.iter().enumerate() {
        match share(text) {
            Some(share) if share > before => {
                steps.push(RolloutStep {
                    name: text.clone(),
                    share,
                });
                before = share;
            }
            Some(_) => refuse(
                &format!("steps[{i}]"),
                format!("{text} is not more than the step before it"),
            ),
            None => {
                let rule = "a step is a share of nodes, such as 1%, 12.5% or 100%";
                refuse(
                    &format!("steps[{i}]"),
                    format!("{text:?} can't be a step; {rule}"),
                );
            }
        }
    }
    if before != WHOLE {
        refuse(
            "steps",
            "do not end with 100%; the last step is every node".to_owned(),
        );
    }
    steps
}

/// Reads `10%` or `12.5%`, in hundredths of a per cent.
fn share(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 2 {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<2}").parse().ok()?;
    let share = whole
        .parse::<u16>()
        .ok()?
        .checked_mul(100)?
        .checked_add(fraction)?;
    (1..=WHOLE).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_hundredths_of_a_per_cent() {
        let shares = [
            "1%", "0.01%", "12.5%", "100%", "0%", "101%", "1.234%", "-1%", "1", "%", ".5%", "1.%",
        ]
        .map(share);
        let good = [Some(100), Some(1), Some(1250), Some(10_000)];
        assert_eq!(shares[..4], good);
        assert!(shares[4..].iter().all(Option::is_none), "{shares:?}");
    }
}
