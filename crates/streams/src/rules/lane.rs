//! A lane that ends at a rule: it judges the windows of all nodes, period by period, and acts on daemons. The daemons
//! hold the memory of the rule: windows that are not acknowledged, and the reasons of changes in their histories.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use twinprobe_rules::{Decision, FleetRule, NodeWindow, PeriodDecision, end_of, period_of, state_before};

use super::document::NamedRule;
use super::members::{FleetFiring, RuleMembers};
use super::periods::Periods;
use crate::receiver::StreamItem;
use crate::run::gather::Parcel;
use crate::run::stopping::Stopping;
use crate::sources::roster::DaemonRoster;
use crate::telemetry::meter::LaneMeter;
use crate::telemetry::rules::FleetRuleMeter;

/// The time between two looks at the daemons.
const LOOK: Duration = Duration::from_secs(5);
/// The pause if a look is due immediately.
const LEAST: Duration = Duration::from_millis(1);

/// A rule with its queue.
pub struct RuleLane {
    pub rule: NamedRule,
    pub inbox: UnboundedReceiver<Parcel>,
    pub daemons: DaemonRoster,
    pub meter: Arc<LaneMeter>,
    pub counts: FleetRuleMeter,
    pub stopping: Stopping,
    /// True if the stream ends once nothing is left.
    pub once: bool,
}

/// The windows that the lane has received so far.
struct PeriodProgress {
    members: RuleMembers,
    periods: Periods<Parcel>,
    length: Duration,
    /// The rule, once there was a window that it can judge.
    judge: Option<FleetRule>,
    /// The reason why it can't judge the windows so far.
    refused: Option<String>,
    /// Parcels of periods that were judged and that the next process needs, oldest first.
    held: VecDeque<(u64, Parcel)>,
    judged: Option<u64>,
}

impl RuleLane {
    /// Runs until nothing can come any more, or the stream stops.
    pub async fn run(mut self) -> bool {
        let Some(mut progress) = self.begin().await else { return true };
        let mut look = tokio::time::interval(LOOK);
        look.reset();
        loop {
            let stopping = self.stopping.clone();
            let pause = progress.pause();
            tokio::select! {
                parcel = self.inbox.recv() => match parcel {
                    Some(parcel) => self.add(&mut progress, parcel),
                    None => {
                        self.judge_ready(&mut progress, i64::MAX).await;
                        return true;
                    }
                },
                () = tokio::time::sleep(pause) => {}
                _ = look.tick() => self.look(&mut progress).await,
                () = stopping.stopped() => return true,
            }
            let now = if self.once { 0 } else { now() };
            self.judge_ready(&mut progress, now).await;
        }
    }

    /// Asks the daemons until one has the watched probe, with windows that the clock closes.
    async fn begin(&self) -> Option<PeriodProgress> {
        let mut told = false;
        loop {
            let members = RuleMembers::ask(&self.daemons.all(), &self.rule, true).await;
            if let Some(length) = members.length {
                let nodes = members.nodes.len();
                tracing::info!(rule = self.rule.name, nodes, period = ?length, "the rule begins");
                let (periods, held) = (Periods::new(length), VecDeque::new());
                let (judge, refused, judged) = (None, None, None);
                return Some(PeriodProgress { members, periods, length, judge, refused, held, judged });
            }
            if !told {
                told = true;
                let watch = &self.rule.document.watch;
                tracing::warn!(
                    rule = self.rule.name,
                    watch,
                    "no daemon has the watched probe with a window.interval; waiting"
                );
            }
            if self.once {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.stopping.stopped() => return None,
            }
        }
    }

    /// Looks for new and removed nodes. The rule's own events are known: this process has decided them.
    async fn look(&self, progress: &mut PeriodProgress) {
        let daemons = self.daemons.all();
        let members = RuleMembers::ask(&daemons, &self.rule, false).await;
        let nodes = &mut progress.members.nodes;
        nodes.retain(|_, member| daemons.iter().any(|daemon| Arc::ptr_eq(daemon, &member.daemon)));
        nodes.extend(members.nodes);
    }

    fn add(&self, progress: &mut PeriodProgress, parcel: Parcel) {
        let StreamItem::Window(window) = &*parcel.item else {
            tracing::warn!(
                rule = self.rule.name,
                window = parcel.item.identity(),
                "windows were removed before the rule could judge them"
            );
            return self.done(&parcel);
        };
        let series = Arc::clone(&window.name.series);
        let end = window.name.end.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond);
        let period = period_of(i64::try_from(end).unwrap_or(i64::MAX), progress.length);
        if series.probe != self.rule.document.watch {
            return self.done(&parcel);
        }
        if progress.judged.is_some_and(|judged| period <= judged) {
            tracing::warn!(
                rule = self.rule.name,
                window = parcel.item.identity(),
                "a window came after its period was judged"
            );
            self.counts.late.inc();
            return self.done(&parcel);
        }
        progress.periods.add(&series.node, period, parcel);
    }

    fn done(&self, parcel: &Parcel) {
        self.meter.stored(&parcel.item, false);
        parcel.outstanding.stored(parcel.ticket);
    }

    /// Judges the periods that are complete, or overdue at `now`.
    async fn judge_ready(&self, progress: &mut PeriodProgress, now: i64) {
        while let Some((period, parcels)) = progress.periods.take(progress.members.nodes.keys(), now) {
            if parcels.iter().any(|(node, _)| !progress.members.nodes.contains_key(node)) {
                self.look(progress).await;
            }
            let parcels: Vec<Parcel> = parcels.into_iter().map(|(_, parcel)| parcel).collect();
            self.judge(progress, period, &parcels).await;
            progress.judged = Some(period);
            progress.held.extend(parcels.into_iter().map(|parcel| (period, parcel)));
            // The next process reads the windows that this process's state comes from.
            let needed = u64::from(self.rule.document.windows.unwrap_or(1));
            while let Some((_, parcel)) = progress.held.pop_front_if(|(held, _)| *held + needed <= period) {
                self.done(&parcel);
            }
        }
    }

    async fn judge(&self, progress: &mut PeriodProgress, period: u64, parcels: &[Parcel]) {
        let windows = parcels.iter().filter_map(|parcel| match &*parcel.item {
            StreamItem::Window(window) => {
                let document: Value = serde_json::from_slice(&window.document).ok()?;
                Some((window, document))
            }
            StreamItem::Gap(_) => None,
        });
        let windows: Vec<_> = windows.collect();
        let Some((first, _)) = windows.first() else { return };
        let judge = match &mut progress.judge {
            Some(judge) => judge,
            none => {
                let actions = self.rule.document.actions.len();
                let state = state_before(&progress.members.events, period, progress.length, actions);
                let shape = (*first.shape).clone();
                match FleetRule::new(self.rule.document.clone(), shape, progress.length, state) {
                    Ok(judge) => {
                        self.counts.stopped.set(0);
                        none.insert(judge)
                    }
                    Err(rejection) => {
                        // A replacement of the probe may bring windows that fit.
                        self.counts.stopped.set(1);
                        let reason = rejection.findings.first().map(|finding| finding.message.clone());
                        if progress.refused != reason {
                            tracing::error!(rule = self.rule.name, reason, "the windows can't be judged");
                            progress.refused = reason;
                        }
                        return;
                    }
                }
            }
        };
        let none = std::collections::BTreeMap::new();
        let labels = |node: &str| progress.members.nodes.get(node).map_or(&none, |member| &member.labels);
        let views: Vec<_> = windows
            .iter()
            .map(|(window, document)| {
                let node = window.name.series.node.as_str();
                NodeWindow { node, document, labels: labels(node) }
            })
            .collect();
        let was_stopped = judge.state.stopped.is_some();
        let decided = judge.step(period, &views);
        self.counts.periods.inc();
        if let Some(reason) = judge.state.stopped.as_ref().filter(|_| !was_stopped) {
            tracing::error!(
                rule = self.rule.name,
                reason,
                "the rule has stopped; it begins anew with the stream"
            );
            self.counts.stopped.set(1);
        }
        self.act(progress, period, decided).await;
    }

    async fn act(&self, progress: &PeriodProgress, period: u64, decided: PeriodDecision) {
        let PeriodDecision { decision, actions, nodes } = decided;
        let end = end_of(period, progress.length);
        let rule = &self.rule;
        match (decision, actions) {
            (Some(Decision::Fire { .. }), Ok(actions)) => {
                tracing::info!(rule = rule.name, period, ?nodes, "fires");
                self.counts.firings.inc();
                for (index, action) in actions.iter().enumerate() {
                    let firing = FleetFiring { rule, end, nodes: &nodes };
                    self.counts.failures.inc_by(progress.members.take(index, action, firing).await);
                }
            }
            (Some(Decision::Fire { .. }), Err(error)) => {
                tracing::error!(rule = rule.name, period, error, "the actions can't be made");
            }
            (Some(Decision::End { .. }), _) => {
                tracing::info!(rule = rule.name, period, "ends");
                self.counts.failures.inc_by(progress.members.end(rule, end).await);
            }
            (None, _) => {}
        }
    }
}

impl PeriodProgress {
    /// The time until the next period is judged in any case.
    fn pause(&self) -> Duration {
        let Some(deadline) = self.periods.deadline() else { return LOOK };
        let left = Duration::from_nanos(u64::try_from(deadline.saturating_sub(now())).unwrap_or(0));
        left.clamp(LEAST, LOOK)
    }
}

fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
