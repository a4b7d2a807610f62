//! The judgement of a fleet rule over the windows of a period.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twinprobe_rules::{MissingValue, NoValue, NodeWindow};

use super::{PeriodProgress, RuleLane};
use crate::receiver::{StreamItem, StreamWindow};
use crate::rules::standing::change;
use crate::run::gather::Parcel;

impl RuleLane {
    /// Judges the windows of a period. Returns the places of those that the rule could judge.
    pub(super) async fn judge(
        &self,
        progress: &mut PeriodProgress,
        period: u64,
        parcels: &[Parcel],
    ) -> BTreeSet<usize> {
        let (windows, judged, fault) = self.fitting(progress, period, parcels);
        let Some(judge) = progress.judge.as_mut().filter(|_| !windows.is_empty()) else {
            change(&self.rule.standing, |standing| standing.fault = fault);
            return judged;
        };
        let none = BTreeMap::new();
        let labels = |node: &str| {
            progress
                .members
                .nodes
                .get(node)
                .map_or(&none, |member| &member.labels)
        };
        let views: Vec<_> = windows
            .iter()
            .map(|(window, document)| {
                let node = window.name.series.node.as_str();
                NodeWindow {
                    node,
                    document,
                    labels: labels(node),
                }
            })
            .collect();
        let was_stopped = judge.state.stopped.is_some();
        let decided = judge.step(period, &views);
        let no_value = self.note_missing(&mut progress.no_value, period, decided.missing);
        // Both fields change at once: each change wakes all tasks that follow the state.
        change(&self.rule.standing, |standing| {
            standing.fault = no_value.or(fault);
        });
        self.counts.periods.inc();
        if let Some(reason) = judge.state.stopped.as_ref().filter(|_| !was_stopped) {
            tracing::error!(
                rule = self.rule.name,
                reason,
                "the rule has stopped; restart the stream to start the rule again"
            );
            self.counts.stopped.set(1);
        }
        let stopped = judge.state.stopped.clone();
        self.act(progress, period, decided).await;
        // A reader who sees the stopped rule may rely on the end of its actions.
        change(&self.rule.standing, |standing| standing.stopped = stopped);
        judged
    }

    /// Notes the condition that has no value in this period, and logs it if it is another one than
    /// before. Returns the reason why the rule does not fire, if there is one.
    fn note_missing(
        &self,
        known: &mut Option<MissingValue>,
        period: u64,
        missing: Option<MissingValue>,
    ) -> Option<String> {
        let missing = missing.filter(|missing| missing.why == NoValue::Number);
        let no_value = missing.map(|missing| missing.to_string());
        if let Some(reason) = no_value.as_ref().filter(|_| *known != missing) {
            tracing::warn!(
                rule = self.rule.name,
                period,
                reason,
                "the rule does not fire"
            );
        }
        *known = missing;
        no_value
    }

    /// Returns the windows that the rule can judge, their places, and the reason if it can't judge
    /// the others.
    fn fitting<'a>(
        &self,
        progress: &mut PeriodProgress,
        period: u64,
        parcels: &'a [Parcel],
    ) -> FittingWindows<'a> {
        let (mut windows, mut judged, mut fault) = (Vec::new(), BTreeSet::new(), None);
        for (index, parcel) in parcels.iter().enumerate() {
            let StreamItem::Window(window) = &*parcel.item else {
                continue;
            };
            let place = (period, progress.length);
            let fits =
                progress
                    .fits
                    .check(&self.rule, &window.shape, place, &progress.members.events);
            let fits = fits.and_then(|judge| {
                let document =
                    serde_json::from_slice(&window.document).map_err(|error| error.to_string())?;
                Ok((judge, document))
            });
            match fits {
                Ok((judge, document)) => {
                    if let Some(judge) = judge {
                        progress.judge.get_or_insert(*judge);
                    }
                    judged.insert(index);
                    windows.push((window, document));
                }
                Err(reason) => fault = Some(reason),
            }
        }
        // A replacement of the probe may bring windows that fit, so this state ends by itself.
        let has_stopped = progress
            .judge
            .as_ref()
            .is_some_and(|judge| judge.state.stopped.is_some());
        self.counts
            .stopped
            .set((has_stopped || windows.is_empty()).into());
        (windows, judged, fault)
    }
}

/// Windows with their documents, their places among the parcels, and the reason why others are left
/// out.
type FittingWindows<'a> = (
    Vec<(&'a StreamWindow, Value)>,
    BTreeSet<usize>,
    Option<String>,
);
