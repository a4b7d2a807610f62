use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Decision, RuleState};
use crate::rule::{Judgement, Rule};
use twinprobe_ebpf_common::window::shape::WindowShape;

const SECOND: i64 = 1_000_000_000;

fn rule(windows: u32, cooldown: u32, until: bool, most: u32) -> Rule {
    let mut document = json!({
        "watch": "a", "when": "true", "for": windows, "cooldown": format!("{cooldown}s"), "max_actions_per_hour": most,
        "do": [{ "mark": "seen" }, { "mark": "twice" }],
    });
    if until {
        document["until"] = Value::from("true");
    }
    let document = serde_json::from_value(document).expect("a rule");
    Rule::new(document, WindowShape::default()).expect("a rule")
}

fn said(when: bool, until: bool) -> Result<Judgement, String> {
    Ok(Judgement {
        when,
        until,
        missing: None,
    })
}

#[test]
fn a_rule_fires_after_so_many_windows_and_ends() {
    let rule = rule(2, 10, true, 20);
    let mut state = RuleState::default();
    let mut step = |window: u64, when, until| {
        state.step(&rule, window, window as i64 * SECOND, said(when, until))
    };
    assert_eq!(step(1, true, false), None);
    assert_eq!(step(2, false, false), None);
    assert_eq!(step(3, true, false), None);
    assert_eq!(step(4, true, false), Some(Decision::Fire { window: 4 }));
    assert_eq!(step(4, true, false), None, "the same window");
    assert_eq!(step(5, false, false), None, "it goes on until `until`");
    assert_eq!(step(6, false, true), Some(Decision::End { fired_at: 4 }));
    assert_eq!(step(7, true, false), None);
    assert_eq!(step(8, true, false), None, "not within the cooldown");
    assert_eq!(step(14, true, false), Some(Decision::Fire { window: 14 }));
}

#[test]
fn a_rule_that_fires_too_often_or_fails_stops() {
    let often = rule(1, 0, false, 5);
    let mut state = RuleState::default();
    let decisions: Vec<_> = (1..10)
        .filter_map(|window| {
            state.step(
                &often,
                window,
                SECOND,
                said(window % 2 == 1, window % 2 == 0),
            )
        })
        .collect();
    assert_eq!(decisions.len(), 4, "{decisions:?}");
    assert!(
        state
            .stopped
            .as_ref()
            .is_some_and(|why| why.contains("more than 5 actions")),
        "{state:?}"
    );
    let mut state = RuleState::default();
    assert_eq!(
        state.step(&often, 1, 0, said(true, false)),
        Some(Decision::Fire { window: 1 })
    );
    let fails = || Err("no such key".to_owned());
    assert_eq!(
        [
            state.step(&often, 2, 0, fails()),
            state.step(&often, 3, 0, fails())
        ],
        [None; 2]
    );
    assert_eq!(
        state.step(&often, 4, 0, fails()),
        Some(Decision::End { fired_at: 1 })
    );
    assert!(state.stopped.is_some_and(|why| why.contains("no such key")));
}

/// A clock that was a day ahead neither keeps the rule from firing for a day nor stops it.
#[test]
fn a_clock_that_is_set_back_costs_one_cooldown() {
    const DAY: i64 = 86_400;
    let rule = rule(1, 10, true, 4);
    let mut state = RuleState::default();
    let mut step =
        |window, seconds: i64, when| state.step(&rule, window, seconds * SECOND, said(when, !when));
    for window in [1, 3] {
        let at = DAY + 3600 * window as i64;
        assert_eq!(step(window, at, true), Some(Decision::Fire { window }));
        assert_eq!(
            step(window + 1, at + 1, false),
            Some(Decision::End { fired_at: window })
        );
    }
    assert_eq!(step(5, 100, true), None, "the cooldown begins again");
    assert_eq!(step(6, 109, true), None);
    assert_eq!(
        step(7, 110 + 3600, true),
        Some(Decision::Fire { window: 7 })
    );
}

proptest! {
    /// These rules hold for all windows: firings and ends take turns, each after enough windows and
    /// the cooldown. No hour has more actions than allowed. A daemon that judges windows again,
    /// from any stored state, decides nothing anew.
    #[test]
    fn decisions_keep_their_rules(
        windows in 1_u32..4, cooldown in 0_u32..30, until: bool, most in 2_u32..12,
        judged in prop::collection::vec((any::<bool>(), any::<bool>(), 1_i64..2000), 1..80),
    ) {
        let rule = rule(windows, cooldown, until, most);
        let mut state = RuleState::default();
        let (mut end, mut row, mut firing, mut fired) = (0, 0, None, Vec::new());
        for (index, (when, until, pause)) in judged.into_iter().enumerate() {
            let window = index as u64 + 1;
            end += pause * SECOND;
            row = if when { row + 1 } else { 0 };
            let text = serde_json::to_string(&state).expect("JSON");
            let mut again: RuleState = serde_json::from_str(&text).expect("the state");
            let decision = state.step(&rule, window, end, said(when, until));
            prop_assert_eq!(again.step(&rule, window, end, said(when, until)), decision);
            prop_assert_eq!(state.step(&rule, window, end, said(true, true)), None);
            match decision {
                Some(Decision::Fire { window: at }) => {
                    prop_assert!(at == window && row >= windows && firing.is_none());
                    let cool = i64::from(cooldown) * SECOND;
                    prop_assert!(fired.last().is_none_or(|last| end - last >= cool));
                    firing = Some(window);
                    fired.push(end);
                }
                Some(Decision::End { fired_at }) => {
                    prop_assert!(until && firing == Some(fired_at));
                    firing = None;
                }
                None => {}
            }
            let of_hour = fired.iter().filter(|time| end - **time < 3600 * SECOND).count();
            prop_assert!(2 * of_hour <= most as usize);
            prop_assert_eq!(rule.max_actions_per_hour - 2 * of_hour as u32, state.actions_left(rule.document(), end));
        }
    }
}
