//! The check of rules before they run, against the windows that daemons retain. It finds names and
//! types of fields that no window has.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::{FleetRule, RuleState};

use super::document::NamedRule;
use crate::config::mistake::StreamMistake;
use crate::config::stream::StreamConfig;
use crate::sources::daemon::SourceDaemon;

/// The longest wait for a daemon's answer. The rule itself waits for daemons that do not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the mistakes in the rules of a stream. A rule that fits the windows of a daemon has
/// none, because other nodes may have another version of the probe.
pub async fn mistakes(config: &StreamConfig) -> Vec<StreamMistake> {
    let mut daemons = Vec::new();
    for (name, address) in &config.servers {
        daemons.extend(SourceDaemon::new(
            name.clone(),
            address.clone(),
            config.credentials.clone(),
        ));
    }
    let mut mistakes = Vec::new();
    for rule in &config.rules {
        mistakes.extend(mistakes_of(rule, &daemons).await);
    }
    mistakes
}

async fn mistakes_of(rule: &NamedRule, daemons: &[Arc<SourceDaemon>]) -> Vec<StreamMistake> {
    let mut asked = JoinSet::new();
    for daemon in daemons {
        let (daemon, watch) = (Arc::clone(daemon), rule.document.watch.clone());
        asked.spawn(async move {
            timeout(PATIENCE, newest(&daemon, &watch))
                .await
                .ok()
                .flatten()
        });
    }
    let mut refused = None;
    while let Some(found) = asked.join_next().await {
        let Some(shape) = found.ok().flatten() else {
            continue;
        };
        match FleetRule::new(rule.document.clone(), shape, PATIENCE, RuleState::default()) {
            Ok(_) => return Vec::new(),
            Err(rejection) => refused = Some(rejection),
        }
    }
    let Some(Rejection { findings, .. }) = refused else {
        return Vec::new();
    };
    let Some(file) = &rule.file else {
        return Vec::new();
    };
    findings
        .into_iter()
        .map(|finding| file.mistake(finding))
        .collect()
}

/// Returns the shape of the newest retained window of a probe.
async fn newest(daemon: &SourceDaemon, probe: &str) -> Option<WindowShape> {
    let client = daemon.client();
    let newest = client
        .status(probe)
        .await
        .ok()?
        .read()
        .ok()?
        .windows
        .statistics
        .newest?;
    client.shape(probe, newest).await.ok()?.read().ok()
}
