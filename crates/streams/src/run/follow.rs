//! Follows the daemons behind a Service of Kubernetes: begins a look at each new one, and ends that at a removed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::stopping::Stopping;
use super::watch::Watching;
use crate::sources::credentials::CredentialFiles;
use crate::sources::daemon::{DaemonAddress, SourceDaemon};
use crate::sources::kubernetes::KubernetesService;
use crate::sources::roster::DaemonRoster;

/// The time between two questions to the API server.
const LOOK: Duration = Duration::from_secs(10);

/// A Service, and the data for the looks at its daemons.
#[derive(Debug)]
pub struct ServiceFollower {
    pub service: KubernetesService,
    pub credentials: CredentialFiles,
    pub roster: DaemonRoster,
    pub watching: Watching,
}

/// The daemons that are looked at, by their names.
type FollowedDaemons = BTreeMap<String, (DaemonAddress, Stopping)>;

impl ServiceFollower {
    /// Runs until the stream stops. While the API server does not answer, the known daemons stay.
    pub async fn run(self) -> bool {
        let stopping = self.watching.stopping.clone();
        let (mut looks, mut followed) = (JoinSet::new(), FollowedDaemons::new());
        let (mut backoff, mut is_told) = (Backoff::default(), false);
        loop {
            while looks.try_join_next().is_some() {}
            match self.service.daemons().await {
                Ok(daemons) => {
                    (backoff, is_told) = (Backoff::default(), false);
                    self.compare(daemons, &mut followed, &mut looks);
                    tokio::select! {
                        () = tokio::time::sleep(LOOK) => {}
                        () = stopping.stopped() => break,
                    }
                }
                Err(error) => {
                    if !is_told {
                        let error = format!("{:#}", anyhow::Error::from(error));
                        tracing::warn!(error, "the daemons behind the Service are not known; trying again");
                        is_told = true;
                    }
                    if !backoff.wait(&stopping).await {
                        break;
                    }
                }
            }
        }
        while looks.join_next().await.is_some() {}
        true
    }

    fn compare(
        &self,
        daemons: BTreeMap<String, DaemonAddress>,
        followed: &mut FollowedDaemons,
        looks: &mut JoinSet<bool>,
    ) {
        let is_still = |name: &String, address: &DaemonAddress| daemons.get(name) == Some(address);
        let removed = followed.iter().filter(|(name, (address, _))| !is_still(name, address));
        let removed: BTreeSet<String> = removed.map(|(name, _)| name.clone()).collect();
        for name in removed {
            tracing::info!(server = name, "the daemon is no longer behind the Service at this address");
            if let Some((_, stopping)) = followed.remove(&name) {
                stopping.stop();
                self.roster.remove(&name);
            }
        }
        for (name, address) in daemons {
            if followed.contains_key(&name) {
                continue;
            }
            let daemon = match SourceDaemon::new(name.clone(), address.clone(), self.credentials.clone()) {
                Ok(daemon) => daemon,
                Err(error) => {
                    tracing::warn!(server = name, %error, "a connection can't be made");
                    continue;
                }
            };
            tracing::info!(server = name, address = ?address.at, "a daemon behind the Service");
            let stopping = self.watching.stopping.part();
            self.roster.add(Arc::clone(&daemon));
            looks.spawn(self.watching.clone().of(daemon, stopping.clone()).run());
            followed.insert(name, (address, stopping));
        }
    }
}
