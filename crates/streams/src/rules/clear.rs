//! Removes everything that a rule has made or changed at daemons, also what its present document no
//! longer mentions.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::task::JoinSet;
use twinprobe_api::ProbeStatus;
use twinprobe_rules::{reason, reason_back};

use super::changes::ChangedDaemon;
use super::members::LABEL;
use crate::sources::daemon::SourceDaemon;

/// Removes the probes of a rule, and reverts its changes. Returns the daemons at which something
/// may be left, and why.
pub async fn clear(daemons: Vec<Arc<SourceDaemon>>, rule: &str) -> BTreeMap<String, String> {
    let mut cleared = JoinSet::new();
    for daemon in daemons {
        let rule = rule.to_owned();
        cleared.spawn(async move { (daemon.name.clone(), clear_one(&daemon, &rule).await) });
    }
    let mut left = BTreeMap::new();
    while let Some(done) = cleared.join_next().await {
        if let Ok((name, Err(error))) = done {
            left.insert(name, error);
        }
    }
    left
}

async fn clear_one(daemon: &SourceDaemon, rule: &str) -> Result<(), String> {
    let client = daemon.client();
    let list = daemon
        .ask(client.probes())
        .await
        .and_then(|answer| Ok(answer.read()?));
    let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
    let (why, back) = (reason(rule, now), reason_back(rule, now));
    // After a failure at one probe, the other probes still get their turn.
    let mut failed = Ok(());
    for ProbeStatus {
        name,
        labels,
        revision,
        ..
    } in list.map_err(|error| error.to_string())?.probes
    {
        let done = if labels.get(LABEL).is_some_and(|owner| owner == rule) {
            match daemon.ask(client.delete(&name, Some(why.as_str()))).await {
                Err(error) if error.status() != Some(404) => Err(error.to_string()),
                _ => Ok(()),
            }
        } else if revision > 1 {
            ChangedDaemon {
                daemon,
                client: daemon.client(),
            }
            .change_back(&name, rule, &back)
            .await
        } else {
            Ok(())
        };
        failed = failed.and(done.map_err(|error| format!("{name}: {error}")));
    }
    failed
}
