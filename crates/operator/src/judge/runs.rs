//! The rules over the fleet that this operator runs, and the known daemons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::sleep;
use twinprobe_fleet::rule_key;
use twinprobe_streams::{
    DaemonList, EndpointList, FleetRuleOrder, FoundEndpoints, RuleStanding, RunningFleetRule,
    clear_fleet_rule,
};

use crate::judge::options::DaemonAccess;

/// The time between two requests for the list of daemons.
const LOOK: Duration = Duration::from_secs(5);
/// The most rules that run at once: each rule has a thread and memory of its own.
const MOST: usize = 16;
/// The pause before a rule whose task has failed begins again.
const REST: Duration = Duration::from_secs(30);
/// The endpoints that the API server returns at once.
const PAGE: usize = 500;

/// The rules that run.
pub struct Judges {
    pub access: DaemonAccess,
    state: Mutex<JudgesState>,
    /// Signals that a rule over the fleet exists.
    wanted: Notify,
    /// The assignments whose objects the operator must look at.
    news: UnboundedSender<String>,
}

#[derive(Default)]
struct JudgesState {
    /// The daemons by their nodes; `None` before the first list.
    daemons: Option<DaemonList>,
    /// The existing rules, whether they run or not.
    names: BTreeSet<String>,
    runs: BTreeMap<String, JudgedRun>,
    /// The rules whose tasks have failed, each with the time of the failure.
    failed: BTreeMap<String, Instant>,
}

struct JudgedRun {
    revision: String,
    running: RunningFleetRule,
    daemons: watch::Sender<DaemonList>,
}

/// The reason why a rule does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunFault {
    #[error(
        "the operator judges at most {MOST} rules over the fleet; delete one, or let `twinprobe stream --rules` judge this one"
    )]
    TooMany,
    #[error("the task of the rule has failed, as the operator's log says; it begins again in {} s", REST.as_secs())]
    Failed,
    #[error("the rule can't begin: {0}")]
    Start(#[from] std::io::Error),
}

impl Judges {
    pub fn new(access: DaemonAccess, news: UnboundedSender<String>) -> Self {
        Self {
            access,
            state: Mutex::default(),
            wanted: Notify::new(),
            news,
        }
    }

    /// Asks the API server for the daemons while there are rules over the fleet.
    pub async fn follow(self: Arc<Self>, client: Client, namespace: String) {
        loop {
            while self.state.lock().names.is_empty() {
                self.wanted.notified().await;
            }
            match self.listed(&client, &namespace).await {
                Ok(daemons) => self.know(daemons),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the daemons are not known; the operator tries again");
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn listed(&self, client: &Client, namespace: &str) -> kube::Result<DaemonList> {
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let service = &self.access.service;
        let (mut found, mut next) = (FoundEndpoints::default(), None::<String>);
        loop {
            let from = next
                .map(|next| format!("&continue={next}"))
                .unwrap_or_default();
            let query =
                format!("labelSelector=kubernetes.io/service-name%3D{service}&limit={PAGE}{from}");
            let request = Request::get(format!("{path}?{query}")).body(Vec::new());
            let request = request.map_err(kube::Error::HttpError)?;
            let list: EndpointList = client.request(request).await?;
            found.add(&list, &self.access.names);
            next = list.next();
            if next.is_none() {
                return Ok(found.daemons());
            }
        }
    }

    /// Takes a new list of daemons, which all rules then look at.
    fn know(&self, daemons: DaemonList) {
        let mut state = self.state.lock();
        if state.daemons.as_ref() == Some(&daemons) {
            return;
        }
        tracing::info!(
            daemons = daemons.len(),
            "the daemons for rules over the fleet"
        );
        state.daemons = Some(daemons);
        for name in &state.names {
            // The receiver ends with the operator.
            let _ = self.news.send(rule_key(name));
        }
    }

    /// Returns the daemons for a rule, and remembers the rule; `None` before the first list.
    pub fn daemons(&self, rule: &str) -> Option<DaemonList> {
        let mut state = self.state.lock();
        if state.names.insert(rule.to_owned()) {
            self.wanted.notify_one();
        }
        state.daemons.clone()
    }

    /// Lets a rule judge the windows of these daemons, and returns its state. `order` starts the
    /// rule, unless the rule runs with this revision.
    pub fn run(
        &self,
        rule: &str,
        revision: &str,
        daemons: DaemonList,
        order: impl FnOnce(watch::Receiver<DaemonList>) -> FleetRuleOrder,
    ) -> Result<RuleStanding, RunFault> {
        let mut state = self.state.lock();
        if state
            .runs
            .get(rule)
            .is_some_and(|run| run.running.has_ended())
        {
            state.runs.remove(rule);
            state.failed.insert(rule.to_owned(), Instant::now());
        }
        if state
            .failed
            .get(rule)
            .is_some_and(|failed| failed.elapsed() < REST)
        {
            return Err(RunFault::Failed);
        }
        if let Some(run) = state.runs.get(rule).filter(|run| run.revision == revision) {
            run.daemons.send_if_modified(|known| {
                let is_new = *known != daemons;
                *known = daemons;
                is_new
            });
            return Ok(run.running.standing());
        }
        if state.runs.len() >= MOST {
            return Err(RunFault::TooMany);
        }
        let (daemons, known) = watch::channel(daemons);
        let running = order(known).start()?;
        tokio::spawn(tell(running.follow(), rule_key(rule), self.news.clone()));
        let standing = running.standing();
        tracing::info!(
            rule,
            revision,
            "the operator judges windows by this revision of the rule"
        );
        state.runs.insert(
            rule.to_owned(),
            JudgedRun {
                revision: revision.to_owned(),
                running,
                daemons,
            },
        );
        Ok(standing)
    }

    /// Stops a rule. Its actions stay.
    pub async fn stop(&self, rule: &str) {
        let run = self.state.lock().runs.remove(rule);
        if let Some(run) = run {
            run.running.stop().await;
        }
    }

    /// Stops a rule, and ends its actions at all daemons. Returns the daemons that may still have
    /// such actions; `None` while the daemons are unknown.
    pub async fn withdraw(&self, rule: &str) -> Option<BTreeMap<String, String>> {
        self.stop(rule).await;
        let daemons = self.daemons(rule)?;
        let left = clear_fleet_rule(&daemons, &self.access.credentials, rule).await;
        for (node, error) in &left {
            tracing::warn!(
                rule,
                node,
                error,
                "actions of the rule may be left at the node"
            );
        }
        Some(left)
    }

    /// Forgets a rule that has been withdrawn.
    pub fn forget(&self, rule: &str) {
        let mut state = self.state.lock();
        state.names.remove(rule);
        state.failed.remove(rule);
    }
}

/// Requests a look at the rule's object after each new state of the rule, and at its end.
async fn tell(
    mut standing: watch::Receiver<RuleStanding>,
    assignment: String,
    news: UnboundedSender<String>,
) {
    while standing.changed().await.is_ok() {
        // The receiver ends with the operator.
        let _ = news.send(assignment.clone());
    }
    let _ = news.send(assignment);
}
