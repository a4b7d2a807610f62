//! A lane that ends at a rule: it judges the windows of all nodes, period by period, and acts on daemons. The daemons
//! hold the memory of the rule: windows that are not acknowledged, and the reasons of changes in their histories.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{Decision, FleetRule, NodeWindow, PeriodDecision, end_of, period_of, state_before};

use super::document::NamedRule;
use super::members::{ActionFaults, FleetFiring, RuleMembers, RuleQuestion};
use super::periods::Periods;
use super::standing::{RuleStanding, change};
use crate::receiver::StreamItem;
use crate::run::acks::Outstanding;
use crate::run::gather::Parcel;
use crate::run::stopping::Stopping;
use crate::sources::roster::DaemonRoster;
use crate::telemetry::meter::LaneMeter;
use crate::telemetry::rules::FleetRuleMeter;

/// The time between two looks at the daemons.
const LOOK: Duration = Duration::from_secs(5);
/// The time between two looks while no daemon is known.
const SOON: Duration = Duration::from_millis(200);
/// The pause if a look is due immediately.
const LEAST: Duration = Duration::from_millis(1);
const NO_WINDOWS: &str = "no daemon has the watched probe with a window.interval";

/// A rule with its queue.
pub struct RuleLane {
    pub rule: NamedRule,
    /// The name under which windows are read.
    pub collector: String,
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
    /// Windows of periods that were judged and that the next process needs, oldest first: their places and tickets. Their
    /// documents are gone, so that they take no memory.
    held: VecDeque<(u64, Arc<Outstanding>, u64)>,
    judged: Option<u64>,
}

impl RuleLane {
    /// Runs until nothing can come any more, or the stream stops.
    pub async fn run(mut self) -> bool {
        let Some(mut progress) = self.begin().await else { return true };
        let (mut look, mut looks) = (tokio::time::interval(LOOK), JoinSet::new());
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
                // A daemon that does not answer must not delay the windows of the others.
                _ = look.tick(), if looks.is_empty() => {
                    looks.spawn(self.question(None));
                }
                Some(seen) = looks.join_next() => self.seen(&mut progress, seen.unwrap_or_default()),
                () = stopping.stopped() => return true,
            }
            let now = if self.once { 0 } else { now() };
            tokio::select! {
                () = self.judge_ready(&mut progress, now) => {}
                // As after a kill, the next process takes the actions that are left.
                () = stopping.stopped() => return true,
            }
        }
    }

    /// Asks the daemons as they are now.
    fn question(&self, remembered: Option<i64>) -> impl Future<Output = RuleMembers> + use<> {
        let (rule, watch) = (self.rule.name.clone(), self.rule.document.watch.clone());
        let question = RuleQuestion { rule, watch, collector: self.collector.clone(), remembered };
        RuleMembers::ask(self.daemons.all(), question)
    }

    /// Asks the daemons until one has the watched probe, with windows that the clock closes.
    async fn begin(&self) -> Option<PeriodProgress> {
        let mut told = false;
        loop {
            let mut members = self.question(Some(self.rule.origin.since)).await;
            members.events.extend(&self.rule.origin.events);
            self.show(&members);
            if let Some(length) = members.length {
                let acting = std::mem::take(&mut members.acting);
                change(&self.rule.standing, |standing| (standing.acting, standing.fault) = (acting, None));
                let nodes = members.nodes.len();
                tracing::info!(rule = self.rule.name, nodes, period = ?length, "the rule begins");
                let (periods, held) = (Periods::new(length, now()), VecDeque::new());
                let (judge, refused, judged) = (None, None, None);
                return Some(PeriodProgress { members, periods, length, judge, refused, held, judged });
            }
            change(&self.rule.standing, |standing| standing.fault = Some(NO_WINDOWS.to_owned()));
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
            // Daemons of a Service become known after the start.
            let is_alone = members.nodes.is_empty() && members.absent.is_empty();
            tokio::select! {
                () = tokio::time::sleep(if is_alone { SOON } else { LOOK }) => {}
                () = self.stopping.stopped() => return None,
            }
        }
    }

    /// Takes new nodes into account, and forgets removed ones. The rule's own events are known: this process has decided them.
    fn seen(&self, progress: &mut PeriodProgress, members: RuleMembers) {
        self.show(&members);
        let (daemons, nodes) = (self.daemons.all(), &mut progress.members.nodes);
        nodes.retain(|_, member| daemons.iter().any(|daemon| Arc::ptr_eq(daemon, &member.daemon)));
        nodes.extend(members.nodes);
    }

    fn show(&self, members: &RuleMembers) {
        change(&self.rule.standing, |standing| {
            standing.nodes = members.nodes.keys().cloned().collect();
            standing.absent.clone_from(&members.absent);
        });
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
        if end_of(period, progress.length) <= self.rule.origin.since {
            return self.done(&parcel);
        }
        if progress.judged.is_some_and(|judged| period <= judged) {
            tracing::warn!(
                rule = self.rule.name,
                window = parcel.item.identity(),
                "a window came after its period was judged"
            );
            self.counts.late.inc();
            progress.periods.note_late(&series.node, period, now());
            return self.done(&parcel);
        }
        progress.periods.add(&series.node, period, parcel, now());
    }

    fn done(&self, parcel: &Parcel) {
        self.meter.stored(&parcel.item, false);
        parcel.outstanding.stored(parcel.ticket);
    }

    /// Judges the periods that are complete, or overdue at `now`.
    async fn judge_ready(&self, progress: &mut PeriodProgress, now: i64) {
        while let Some((period, parcels)) = progress.periods.take(progress.members.nodes.keys(), now) {
            if parcels.iter().any(|(node, _)| !progress.members.nodes.contains_key(node))
                && let Ok(members) = tokio::time::timeout(LOOK, self.question(None)).await
            {
                self.seen(progress, members);
            }
            let parcels: Vec<Parcel> = parcels.into_iter().map(|(_, parcel)| parcel).collect();
            self.judge(progress, period, &parcels).await;
            progress.judged = Some(period);
            for Parcel { item, outstanding, ticket, .. } in parcels {
                self.meter.stored(&item, false);
                progress.held.push_back((period, outstanding, ticket));
            }
            // The next process reads the windows that this process's state comes from.
            let needed = u64::from(self.rule.document.windows.unwrap_or(1));
            let is_over = |(held, ..): &mut (u64, _, _)| *held + needed <= period;
            while let Some((_, outstanding, ticket)) = progress.held.pop_front_if(is_over) {
                outstanding.stored(ticket);
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
        if progress.judge.is_none() && !self.fits(progress, period, (*first.shape).clone()) {
            return;
        }
        let Some(judge) = &mut progress.judge else { return };
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
                "the rule has stopped; restart the stream to start the rule again"
            );
            self.counts.stopped.set(1);
        }
        let stopped = judge.state.stopped.clone();
        self.act(progress, period, decided).await;
        // A reader who sees that the rule has stopped may rely on the end of its actions.
        change(&self.rule.standing, |standing| standing.stopped = stopped);
    }

    /// Makes the rule for windows of this shape. Returns false if it can't judge them.
    fn fits(&self, progress: &mut PeriodProgress, period: u64, shape: WindowShape) -> bool {
        let actions = self.rule.document.actions.len();
        let state = state_before(&progress.members.events, period, progress.length, actions);
        match FleetRule::new(self.rule.document.clone(), shape, progress.length, state) {
            Ok(judge) => {
                self.counts.stopped.set(0);
                change(&self.rule.standing, |standing| standing.fault = None);
                progress.judge = Some(judge);
                true
            }
            Err(rejection) => {
                // A replacement of the probe may bring windows that fit.
                self.counts.stopped.set(1);
                let reason = rejection.findings.first().map(|finding| finding.message.clone());
                if progress.refused != reason {
                    tracing::error!(rule = self.rule.name, reason, "the windows can't be judged");
                    change(&self.rule.standing, |standing| standing.fault.clone_from(&reason));
                    progress.refused = reason;
                }
                false
            }
        }
    }

    async fn act(&self, progress: &PeriodProgress, period: u64, decided: PeriodDecision) {
        let PeriodDecision { decision, actions, nodes } = decided;
        let end = end_of(period, progress.length);
        let rule = &self.rule;
        match (decision, actions) {
            (Some(Decision::Fire { .. }), Ok(actions)) => {
                tracing::info!(rule = rule.name, period, ?nodes, "fires");
                self.counts.firings.inc();
                let mut failed = ActionFaults::new();
                for (index, action) in actions.iter().enumerate() {
                    let firing = FleetFiring { rule, end, nodes: &nodes };
                    failed.extend(progress.members.take(index, action, firing).await);
                }
                self.acted(failed, |standing| (standing.fired, standing.acting) = (Some(end), nodes));
            }
            (Some(Decision::Fire { .. }), Err(error)) => {
                tracing::error!(rule = rule.name, period, error, "the actions can't be made");
                let failed = vec![(String::new(), format!("the actions can't be made: {error}"))];
                self.acted(failed, |standing| standing.fired = Some(end));
            }
            (Some(Decision::End { .. }), _) => {
                tracing::info!(rule = rule.name, period, "the condition of the rule has ended");
                let failed = progress.members.end(rule, end).await;
                self.acted(failed, |standing| {
                    standing.ended = Some(end);
                    standing.acting.clear();
                });
            }
            (None, _) => {}
        }
    }

    /// Shows the outcome of actions.
    fn acted(&self, failed: ActionFaults, with: impl FnOnce(&mut RuleStanding)) {
        self.counts.failures.inc_by(u64::try_from(failed.len()).unwrap_or(u64::MAX));
        change(&self.rule.standing, |standing| {
            standing.failed = failed.into_iter().collect();
            with(standing);
        });
    }
}

impl PeriodProgress {
    /// The time until the next period is judged in any case.
    fn pause(&self) -> Duration {
        let deadline = self.periods.deadline(self.members.nodes.keys());
        let Some(deadline) = deadline else { return LOOK };
        let left = Duration::from_nanos(u64::try_from(deadline.saturating_sub(now())).unwrap_or(0));
        left.clamp(LEAST, LOOK)
    }
}

fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
