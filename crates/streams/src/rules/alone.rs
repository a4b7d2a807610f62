//! A rule over a fleet without a stream around it, for a program that knows the daemons and shows
//! the rule's state. The rule has a thread of its own, so that neither its failures nor its
//! processor time are those of the program or of other rules.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use glob::Pattern;
use tokio::sync::watch;
use twinprobe_api::RuleDocument;
use twinprobe_rules::FleetEvent;

use super::clear::clear;
use super::document::{NamedRule, RuleOrigin};
use super::signing::KeyFile;
use super::standing::RuleStanding;
use crate::config::stream::StreamConfig;
use crate::run::stopping::Stopping;
use crate::run::stream;
use crate::sources::credentials::CredentialFiles;
use crate::sources::daemon::{DaemonAddress, SourceDaemon};
use crate::telemetry::meter::StreamMeter;

/// The longest time until a rule ends.
const LAST: Duration = Duration::from_secs(5);

/// Daemons by their names.
pub type DaemonList = BTreeMap<String, DaemonAddress>;

/// A rule over a fleet with the data for its run.
#[derive(Debug)]
pub struct FleetRuleOrder {
    pub name: String,
    /// A rule with `scope: fleet`, which [`twinprobe_rules::FleetRule::check`] accepts.
    pub document: RuleDocument,
    /// The collector under whose name the rule reads windows.
    pub collector: String,
    /// Windows that ended before this time are not judged, nanoseconds since the Unix epoch.
    pub since: i64,
    /// The events of the rule that daemons may not remember.
    pub events: Vec<FleetEvent>,
    pub credentials: CredentialFiles,
    /// The daemons whose windows the rule judges. They may change.
    pub daemons: watch::Receiver<DaemonList>,
    /// The most bytes of windows on their way to the rule.
    pub memory: usize,
    /// The keys that sign the rule's notifications.
    pub keys: Option<KeyFile>,
}

/// A rule that runs until this is dropped.
#[derive(Debug)]
pub struct RunningFleetRule {
    standing: watch::Receiver<RuleStanding>,
    stopping: Stopping,
}

impl FleetRuleOrder {
    /// Starts the rule.
    ///
    /// # Errors
    ///
    /// Fails if the system has no thread for it.
    pub fn start(self) -> io::Result<RunningFleetRule> {
        let stopping = Stopping::default();
        let (shown, standing) = watch::channel(RuleStanding::default());
        let until = stopping.clone();
        let name = format!("rule {}", self.name);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let config = self.config(shown);
        thread::Builder::new().name(name.clone()).spawn(move || {
            let run = stream::run(
                config,
                false,
                None,
                Arc::new(StreamMeter::default()),
                until.clone(),
            );
            let ended = runtime.block_on(async {
                tokio::select! {
                    ended = run => ended.map(drop),
                    () = overdue(&until) => Ok(()),
                }
            });
            if let Err(error) = ended {
                tracing::error!(rule = name, %error, "the rule has ended");
            }
            // A lookup of a name may not end.
            runtime.shutdown_background();
        })?;
        Ok(RunningFleetRule { standing, stopping })
    }

    fn config(self, standing: watch::Sender<RuleStanding>) -> StreamConfig {
        let origin = RuleOrigin {
            since: self.since,
            events: self.events,
        };
        let probes = Pattern::new(&Pattern::escape(&self.document.watch))
            .into_iter()
            .collect();
        StreamConfig {
            name: self.collector,
            servers: Vec::new(),
            kubernetes: None,
            known: Some(self.daemons),
            credentials: self.credentials,
            probes,
            destinations: Vec::new(),
            rules: vec![NamedRule {
                name: self.name,
                document: self.document,
                origin,
                standing,
                keys: self.keys,
                file: None,
            }],
            memory: self.memory,
            listen: None,
        }
    }
}

async fn overdue(stopping: &Stopping) {
    stopping.stopped().await;
    tokio::time::sleep(LAST).await;
}

impl RunningFleetRule {
    /// The state of the rule; it ends with the rule.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<RuleStanding> {
        self.standing.clone()
    }

    /// The state of the rule now.
    #[must_use]
    pub fn standing(&self) -> RuleStanding {
        self.standing.borrow().clone()
    }

    /// Tells whether the rule has ended. Only a failure of its own ends it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.standing.has_changed().is_err()
    }

    /// Stops the rule, and waits for its end. The actions of the rule stay.
    pub async fn stop(self) {
        let mut standing = self.follow();
        drop(self);
        while standing.changed().await.is_ok() {}
    }
}

impl Drop for RunningFleetRule {
    fn drop(&mut self) {
        self.stopping.stop();
    }
}

/// Ends everything that a rule has made or changed at these daemons. Returns the daemons at which
/// something may be left, with the reasons.
pub async fn clear_fleet_rule(
    daemons: &DaemonList,
    credentials: &CredentialFiles,
    rule: &str,
) -> BTreeMap<String, String> {
    let (mut found, mut left) = (Vec::new(), BTreeMap::new());
    for (name, address) in daemons {
        match SourceDaemon::new(name.clone(), address.clone(), credentials.clone()) {
            Ok(daemon) => found.push(daemon),
            Err(error) => _ = left.insert(name.clone(), error.to_string()),
        }
    }
    left.extend(clear(found, rule).await);
    left
}
