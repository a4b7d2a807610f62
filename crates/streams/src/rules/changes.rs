//! Changes of probes that are there, at one node. The revisions of a probe are the memory: a
//! revision by the rule carries the rule's reason.

use twinprobe_api::{ConfigDocument, Revision, RuleChange};
use twinprobe_client::Client;
use twinprobe_rules::FleetEvent;

use crate::sources::daemon::SourceDaemon;

/// A probe of a node with its revisions, newest first.
struct RevisedProbe {
    etag: String,
    revisions: Vec<Revision>,
}

impl RevisedProbe {
    /// The configuration from before the changes of the rule; `None` if it is not retained.
    fn before(&self, rule: &str) -> Option<&ConfigDocument> {
        let own = |revision: &&Revision| is_change(revision, rule);
        self.revisions
            .iter()
            .find(|revision| !own(revision))
            .map(|revision| &revision.config)
    }

    fn is_changed_by(&self, rule: &str) -> bool {
        self.revisions
            .first()
            .is_some_and(|revision| is_change(revision, rule))
    }
}

/// Tells whether the rule has made this revision, and not to take a change back.
fn is_change(revision: &Revision, rule: &str) -> bool {
    let event = revision
        .message
        .as_deref()
        .and_then(|message| FleetEvent::of_reason(message, rule, true));
    event.is_some_and(|event| event.has_begun)
}

/// A daemon whose probes a rule changes.
pub struct ChangedDaemon<'a> {
    pub daemon: &'a SourceDaemon,
    pub client: Client,
}

impl ChangedDaemon<'_> {
    /// Gives a probe other values. These values replace the values of the rule's earlier changes.
    pub async fn change(&self, change: &RuleChange, rule: &str, why: &str) -> Result<(), String> {
        let name = &change.name;
        let probe = self.revised(name).await?;
        let probe =
            probe.ok_or_else(|| format!("there is no probe named {name}; deploy it first"))?;
        let config = twinprobe_library::changed(Self::before(&probe, name, rule)?, change);
        self.replace(
            name,
            &probe,
            &config.map_err(|error| error.to_string())?,
            why,
        )
        .await
    }

    /// Gives a probe the configuration from before the rule. A probe that somebody has changed
    /// since then is not touched.
    pub async fn change_back(&self, name: &str, rule: &str, why: &str) -> Result<(), String> {
        match self.revised(name).await? {
            Some(probe) if probe.is_changed_by(rule) => {
                self.replace(name, &probe, Self::before(&probe, name, rule)?, why)
                    .await
            }
            _ => Ok(()),
        }
    }

    fn before<'a>(
        probe: &'a RevisedProbe,
        name: &str,
        rule: &str,
    ) -> Result<&'a ConfigDocument, String> {
        let gone = || {
            format!("the revision of probe {name} from before rule {rule} is not retained any more")
        };
        probe.before(rule).ok_or_else(gone)
    }

    /// Asks for a probe and its revisions; `None` if it does not exist.
    async fn revised(&self, name: &str) -> Result<Option<RevisedProbe>, String> {
        let Self { daemon, client } = self;
        // The tag is older than the revisions: a change in between is refused.
        let status = match daemon.ask(client.status(name)).await {
            Err(error) if error.status() == Some(404) => return Ok(None),
            answer => answer.map_err(|error| error.to_string())?,
        };
        let revisions = daemon.ask(client.revisions(name)).await;
        let revisions = revisions
            .and_then(|answer| Ok(answer.read()?))
            .map_err(|error| error.to_string())?;
        let mut revisions = revisions.revisions;
        revisions.sort_by_key(|revision| std::cmp::Reverse(revision.revision));
        let etag = status.etag.ok_or("the daemon gives no ETag")?;
        Ok(Some(RevisedProbe { etag, revisions }))
    }

    async fn replace(
        &self,
        name: &str,
        probe: &RevisedProbe,
        config: &ConfigDocument,
        why: &str,
    ) -> Result<(), String> {
        let Self { daemon, client } = self;
        let put = daemon
            .ask(client.replace(name, config, &probe.etag, Some(why)))
            .await;
        put.map(drop).map_err(|error| error.to_string())
    }
}
