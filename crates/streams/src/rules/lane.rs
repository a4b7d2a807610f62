//! A lane that ends at a rule: it judges the windows of all nodes, period by period, and acts on
//! daemons. The daemons hold the memory of the rule: windows that are not acknowledged, and the
//! reasons of changes in their histories.

mod judging;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;
use twinprobe_rules::{FleetRule, MissingValue, end_of, period_of};

use super::document::NamedRule;
use super::members::{RuleMembers, RuleQuestion};
use super::outbox::FleetOutbox;
use super::periods::Periods;
use super::shapes::KnownFits;
use super::standing::change;
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
/// With `--once`, the time without a window after which the rule waits for no node any more.
const STALL: Duration = Duration::from_secs(5);
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
pub(super) struct PeriodProgress {
    pub members: RuleMembers,
    periods: Periods<Parcel>,
    pub length: Duration,
    /// The rule, after the first window that the rule can judge.
    judge: Option<FleetRule>,
    /// The shapes of windows so far, and whether the rule can judge such windows.
    fits: KnownFits,
    pub outbox: FleetOutbox,
    /// The oldest period with a notification that a stream with `--once` could not send.
    pub unsent: Option<u64>,
    /// The condition without a value in the last period.
    no_value: Option<MissingValue>,
    /// Nodes that have sent windows, and whose daemon is not known.
    unknown: BTreeSet<String>,
    /// The time of the last window.
    heard: Instant,
    /// The places and tickets of judged windows that the next process needs, oldest first. Without
    /// documents, these entries take little memory.
    held: VecDeque<(u64, Arc<Outstanding>, u64)>,
    judged: Option<u64>,
}

impl RuleLane {
    /// Runs until nothing can come any more, or the stream stops. Returns false if something is
    /// left that the stream could not end.
    pub async fn run(mut self) -> bool {
        let Some(mut progress) = self.begin().await else {
            return !self.once;
        };
        let (mut look, mut looks) = (tokio::time::interval(LOOK), JoinSet::new());
        look.reset();
        loop {
            let stopping = self.stopping.clone();
            let (pause, stalled) = (progress.pause(), progress.heard + STALL);
            let mut latest = if self.once { 0 } else { now() };
            tokio::select! {
                parcel = self.inbox.recv() => match parcel {
                    Some(parcel) => self.add(&mut progress, parcel),
                    None => {
                        tokio::select! {
                            () = self.judge_ready(&mut progress, i64::MAX) => {}
                            () = stopping.stopped() => return true,
                        }
                        return self.arrived(&mut progress).await;
                    }
                },
                () = tokio::time::sleep_until(stalled), if self.once => {
                    (progress.heard, latest) = (Instant::now(), i64::MAX);
                }
                () = tokio::time::sleep(pause), if !self.once => latest = now(),
                (period, arrived) = progress.outbox.next() => {
                    self.note_arrival(&mut progress, period, arrived);
                    self.release(&mut progress);
                }
                // A daemon that does not answer must not delay the windows of the others.
                _ = look.tick(), if looks.is_empty() => {
                    looks.spawn(self.question(None));
                }
                Some(seen) = looks.join_next() => self.seen(&mut progress, seen.unwrap_or_default()),
                () = stopping.stopped() => return true,
            }
            tokio::select! {
                () = self.judge_ready(&mut progress, latest) => {}
                // The next process takes the remaining actions, as after a kill of this process.
                () = stopping.stopped() => return true,
            }
        }
    }

    /// Asks the present daemons.
    fn question(&self, remembered: Option<i64>) -> impl Future<Output = RuleMembers> + use<> {
        let (rule, watch) = (self.rule.name.clone(), self.rule.document.watch.clone());
        let question = RuleQuestion {
            rule,
            watch,
            collector: self.collector.clone(),
            remembered,
        };
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
                change(&self.rule.standing, |standing| {
                    (standing.acting, standing.fault) = (acting, None);
                });
                let nodes = members.nodes.len();
                tracing::info!(rule = self.rule.name, nodes, period = ?length, "the rule begins");
                return Some(PeriodProgress {
                    members,
                    periods: Periods::new(length, now()),
                    length,
                    judge: None,
                    fits: KnownFits::default(),
                    outbox: FleetOutbox::default(),
                    unsent: None,
                    no_value: None,
                    unknown: BTreeSet::new(),
                    heard: Instant::now(),
                    held: VecDeque::new(),
                    judged: None,
                });
            }
            change(&self.rule.standing, |standing| {
                standing.fault = Some(NO_WINDOWS.to_owned());
            });
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

    /// Takes new nodes into account, and forgets removed ones. The rule's own events are known:
    /// this process has decided them.
    fn seen(&self, progress: &mut PeriodProgress, members: RuleMembers) {
        self.show(&members);
        let (daemons, nodes) = (self.daemons.all(), &mut progress.members.nodes);
        nodes.retain(|_, member| {
            daemons
                .iter()
                .any(|daemon| Arc::ptr_eq(daemon, &member.daemon))
        });
        nodes.extend(members.nodes);
        progress.unknown.clear();
    }

    fn show(&self, members: &RuleMembers) {
        self.counts
            .nodes
            .set(i64::try_from(members.nodes.len()).unwrap_or(i64::MAX));
        change(&self.rule.standing, |standing| {
            standing.nodes = members.nodes.keys().cloned().collect();
            standing.absent.clone_from(&members.absent);
        });
    }

    fn add(&self, progress: &mut PeriodProgress, parcel: Parcel) {
        progress.heard = Instant::now();
        let StreamItem::Window(window) = &*parcel.item else {
            tracing::warn!(
                rule = self.rule.name,
                window = parcel.item.identity(),
                "windows were removed before the rule could judge them"
            );
            return self.done(&parcel);
        };
        let series = Arc::clone(&window.name.series);
        let end = window
            .name
            .end
            .parse::<Timestamp>()
            .map_or(0, Timestamp::as_nanosecond);
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
        while let Some((period, parcels)) =
            progress.periods.take(progress.members.nodes.keys(), now)
        {
            self.know(progress, parcels.iter().map(|(node, _)| node))
                .await;
            let parcels: Vec<Parcel> = parcels.into_iter().map(|(_, parcel)| parcel).collect();
            let judged = self.judge(progress, period, &parcels).await;
            progress.judged = Some(period);
            for (
                index,
                Parcel {
                    item,
                    outstanding,
                    ticket,
                    ..
                },
            ) in parcels.into_iter().enumerate()
            {
                if judged.contains(&index) {
                    self.meter.stored(&item, false);
                } else {
                    self.counts.unjudged.inc();
                }
                progress.held.push_back((period, outstanding, ticket));
            }
            self.release(progress);
        }
    }

    /// Asks the daemons again if windows are from an unknown node, because the rule may have to act
    /// there.
    async fn know(&self, progress: &mut PeriodProgress, nodes: impl Iterator<Item = &String>) {
        let new: Vec<String> = nodes
            .filter(|node| {
                !progress.members.nodes.contains_key(*node) && !progress.unknown.contains(*node)
            })
            .cloned()
            .collect();
        if new.is_empty() {
            return;
        }
        if let Ok(members) = tokio::time::timeout(LOOK, self.question(None)).await {
            self.seen(progress, members);
        }
        let known = &progress.members.nodes;
        progress
            .unknown
            .extend(new.into_iter().filter(|node| !known.contains_key(node)));
    }

    /// Acknowledges windows that the next process does not need: neither for the state of the rule,
    /// nor for notifications that have not arrived.
    pub(super) fn release(&self, progress: &mut PeriodProgress) {
        let Some(period) = progress.judged else {
            return;
        };
        let needed = u64::from(self.rule.document.windows.unwrap_or(1));
        let told = progress
            .outbox
            .oldest()
            .into_iter()
            .chain(progress.unsent)
            .min();
        let is_over = |(held, ..): &mut (u64, _, _)| {
            *held + needed <= period && told.is_none_or(|oldest| *held < oldest)
        };
        while let Some((_, outstanding, ticket)) = progress.held.pop_front_if(is_over) {
            outstanding.stored(ticket);
        }
    }
}

impl PeriodProgress {
    /// The time until the next period is judged in any case.
    fn pause(&self) -> Duration {
        let deadline = self.periods.deadline(self.members.nodes.keys());
        let Some(deadline) = deadline else {
            return LOOK;
        };
        let left = Duration::from_nanos(u64::try_from(deadline.saturating_sub(now())).unwrap_or(0));
        left.clamp(LEAST, LOOK)
    }
}

fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
