//! Follows a set of daemons that changes, such as those of a Service of Kubernetes: begins a look
//! at each new daemon, and ends the look at a removed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::stopping::Stopping;
use super::watch::Watching;
use crate::config::stream::KnownDaemons;
use crate::sources::credentials::CredentialFiles;
use crate::sources::daemon::{DaemonAddress, SourceDaemon};
use crate::sources::kubernetes::KubernetesService;
use crate::sources::roster::DaemonRoster;

/// The time between two questions to the API server.
const LOOK: Duration = Duration::from_secs(10);

/// The daemons that the stream looks at, and the data for new looks.
#[derive(Debug)]
pub struct DaemonFollower {
    credentials: CredentialFiles,
    roster: DaemonRoster,
    watching: Watching,
    followed: FollowedDaemons,
    looks: JoinSet<bool>,
}

/// The daemons that the stream looks at, by their names.
type FollowedDaemons = BTreeMap<String, (DaemonAddress, Stopping)>;

impl DaemonFollower {
    pub fn new(credentials: CredentialFiles, roster: DaemonRoster, watching: Watching) -> Self {
        Self {
            credentials,
            roster,
            watching,
            followed: FollowedDaemons::new(),
            looks: JoinSet::new(),
        }
    }

    /// Follows the daemons of a Service until the stream stops. While the API server does not
    /// answer, the known daemons stay.
    pub async fn of_service(mut self, service: KubernetesService) -> bool {
        let stopping = self.watching.stopping.clone();
        let (mut backoff, mut is_told) = (Backoff::default(), false);
        loop {
            match service.daemons().await {
                Ok(daemons) => {
                    (backoff, is_told) = (Backoff::default(), false);
                    self.compare(daemons);
                    tokio::select! {
                        () = tokio::time::sleep(LOOK) => {}
                        () = stopping.stopped() => break,
                    }
                }
                Err(error) => {
                    if !is_told {
                        let error = format!("{:#}", anyhow::Error::from(error));
                        tracing::warn!(
                            error,
                            "the daemons behind the Service are not known; trying again"
                        );
                        is_told = true;
                    }
                    if !backoff.wait(&stopping).await {
                        break;
                    }
                }
            }
        }
        while self.looks.join_next().await.is_some() {}
        true
    }

    /// Follows the daemons of a list until the stream stops.
    pub async fn of_list(mut self, mut known: KnownDaemons) -> bool {
        let stopping = self.watching.stopping.clone();
        loop {
            let daemons = known.borrow_and_update().clone();
            self.compare(daemons);
            tokio::select! {
                changed = known.changed() => if changed.is_err() { break },
                () = stopping.stopped() => break,
            }
        }
        // The list does not change any more, and its daemons stay.
        stopping.stopped().await;
        while self.looks.join_next().await.is_some() {}
        true
    }

    fn compare(&mut self, daemons: BTreeMap<String, DaemonAddress>) {
        while self.looks.try_join_next().is_some() {}
        let is_still = |name: &String, address: &DaemonAddress| daemons.get(name) == Some(address);
        let removed = self
            .followed
            .iter()
            .filter(|(name, (address, _))| !is_still(name, address));
        let removed: BTreeSet<String> = removed.map(|(name, _)| name.clone()).collect();
        for name in removed {
            tracing::info!(server = name, "the daemon is no longer at this address");
            if let Some((_, stopping)) = self.followed.remove(&name) {
                stopping.stop();
                self.roster.remove(&name);
            }
        }
        for (name, address) in daemons {
            if self.followed.contains_key(&name) {
                continue;
            }
            let daemon =
                match SourceDaemon::new(name.clone(), address.clone(), self.credentials.clone()) {
                    Ok(daemon) => daemon,
                    Err(error) => {
                        tracing::warn!(server = name, %error, "a connection can't be made");
                        continue;
                    }
                };
            tracing::info!(server = name, address = ?address.at, "following a daemon");
            let stopping = self.watching.stopping.part();
            self.roster.add(Arc::clone(&daemon));
            self.looks
                .spawn(self.watching.clone().of(daemon, stopping.clone()).run());
            self.followed.insert(name, (address, stopping));
        }
    }
}
