//! The nodes of a fleet as a rule sees them: their daemons, the actions that daemons have taken for
//! the rule, and the actions that are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use tokio::task::JoinSet;
use twinprobe_api::{ChangeKind, ConfigDocument, RuleAction, RuleChange, RuleProbe};
use twinprobe_client::Client;
use twinprobe_rules::{FleetEvent, PeriodValues, reason, reason_back};

use super::changes::ChangedDaemon;
use super::document::NamedRule;
use super::standing::NodeFault;
use crate::run::watch::ProbeClaim;
use crate::sources::daemon::{AskError, SourceDaemon};

/// The label of probes that a rule has made.
pub const LABEL: &str = "fleet_rule";
/// The attempts at an action, and the time before the second one. It doubles each time.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// A daemon whose probe a rule watches.
#[derive(Clone, Debug)]
pub struct RuleMember {
    pub daemon: Arc<SourceDaemon>,
    pub labels: BTreeMap<String, String>,
    config: ConfigDocument,
    /// True if the rule decides about packets by a configuration of its own. Otherwise no action
    /// may do so.
    may_enforce: bool,
}

/// The daemons that have the watched probe, by their nodes.
#[derive(Debug, Default)]
pub struct RuleMembers {
    pub nodes: BTreeMap<String, RuleMember>,
    /// The other daemons by their names, with the reasons why their windows do not count.
    pub absent: BTreeMap<String, NodeFault>,
    /// The length of a period: the longest interval of windows.
    pub length: Option<Duration>,
    /// The rule's events that daemons remember.
    pub events: Vec<FleetEvent>,
    /// The nodes at which actions of the rule continue, as far as daemons remember.
    pub acting: BTreeSet<String>,
}

/// The failures of actions: the nodes, and why.
pub type ActionFaults = Vec<(String, String)>;

/// The question for daemons.
#[derive(Clone, Debug)]
pub struct RuleQuestion {
    pub rule: String,
    pub watch: String,
    /// The name under which the rule reads windows.
    pub collector: String,
    /// The time, in nanoseconds since the Unix epoch, after which events of the rule count. `None`
    /// if no events are asked for.
    pub remembered: Option<i64>,
}

/// The firing to which an action belongs.
#[derive(Clone, Copy, Debug)]
pub struct FleetFiring<'a> {
    pub rule: &'a NamedRule,
    /// The end of the period, nanoseconds since the Unix epoch.
    pub end: i64,
    pub nodes: &'a BTreeSet<String>,
    /// The values for templates; none at the end of actions.
    pub values: Option<&'a Arc<PeriodValues>>,
}

impl RuleMembers {
    /// Asks all daemons for the watched probe, and for their stored events of the rule after the
    /// time `remembered`. Without this time their long histories are not read.
    pub async fn ask(daemons: Vec<Arc<SourceDaemon>>, asked: RuleQuestion) -> Self {
        let (mut answers, asked) = (JoinSet::new(), Arc::new(asked));
        for daemon in daemons {
            answers.spawn(about(daemon, Arc::clone(&asked)));
        }
        let mut found = Self::default();
        while let Some(answer) = answers.join_next().await {
            let Ok(answer) = answer else { continue };
            match answer {
                Ok((node, member, length, events)) => {
                    if events.iter().max().is_some_and(|newest| newest.has_begun) {
                        found.acting.insert(node.clone());
                    }
                    found.nodes.insert(node, member);
                    found.length = found.length.max(length);
                    found.events.extend(events);
                }
                Err((daemon, fault)) => _ = found.absent.insert(daemon, fault),
            }
        }
        found
    }

    /// Takes an action at the nodes of a firing. A failure at one node delays no other. Returns the
    /// failures.
    pub async fn take(&self, action: &RuleAction, firing: FleetFiring<'_>) -> ActionFaults {
        match action {
            RuleAction::Apply(probe) => {
                self.at_each(
                    firing,
                    &NodeWork::Apply(probe.clone(), firing.values.cloned()),
                )
                .await
            }
            RuleAction::Change(change) => {
                self.at_each(firing, &NodeWork::Change(change.clone()))
                    .await
            }
            RuleAction::Delete(name) => {
                self.at_each(
                    firing,
                    &NodeWork::Delete {
                        name: name.clone(),
                        is_own: false,
                    },
                )
                .await
            }
            // The outbox of the rule keeps the notification.
            RuleAction::Notify(_) => Vec::new(),
            RuleAction::Mark(text) => {
                let work = NodeWork::Mark {
                    probe: firing.rule.document.watch.clone(),
                    text: text.clone(),
                };
                self.at_each(firing, &work).await
            }
        }
    }

    /// Ends the rule's actions at all nodes. Returns the failures.
    pub async fn end(&self, rule: &NamedRule, end: i64) -> ActionFaults {
        let nodes = self.nodes.keys().cloned().collect();
        let firing = FleetFiring {
            rule,
            end,
            nodes: &nodes,
            values: None,
        };
        let mut failures = Vec::new();
        for action in &rule.document.actions {
            let work = match action {
                RuleAction::Apply(probe) => NodeWork::Delete {
                    name: probe.name.clone(),
                    is_own: true,
                },
                RuleAction::Change(change) => NodeWork::ChangeBack(change.name.clone()),
                RuleAction::Delete(_) | RuleAction::Notify(_) | RuleAction::Mark(_) => continue,
            };
            failures.extend(self.at_each(firing, &work).await);
        }
        failures
    }

    async fn at_each(&self, firing: FleetFiring<'_>, work: &NodeWork) -> ActionFaults {
        let (mut nodes, mut failures) = (JoinSet::new(), Vec::new());
        for node in firing.nodes {
            let Some(member) = self.nodes.get(node) else {
                failures.push((node.clone(), "no daemon of this name answers".to_owned()));
                continue;
            };
            let of = (firing.rule.name.clone(), firing.end);
            let may_enforce = firing.rule.document.may_enforce();
            let member = RuleMember {
                may_enforce,
                ..member.clone()
            };
            nodes.spawn(member.carry_out(node.clone(), of, work.clone()));
        }
        while let Some(done) = nodes.join_next().await {
            match done {
                Ok((_, Ok(()))) => {}
                Ok((node, Err(error))) => failures.push((node, error)),
                Err(error) => failures.push((String::new(), error.to_string())),
            }
        }
        failures
    }
}

/// The work that is left at a node.
#[derive(Clone, Debug)]
enum NodeWork {
    Apply(Box<RuleProbe>, Option<Arc<PeriodValues>>),
    Change(RuleChange),
    /// Gives the probe of this name the configuration from before the rule.
    ChangeBack(String),
    /// With `is_own` only a probe that the rule has made.
    Delete {
        name: String,
        is_own: bool,
    },
    /// Marks the audit log.
    Mark {
        probe: String,
        text: String,
    },
}

fn pause(attempt: u32) -> Duration {
    PAUSE * 2_u32.pow(attempt - 1)
}

/// A daemon with the watched probe: its node, its interval of windows, and its stored events of the
/// rule.
type MemberAnswer = (String, RuleMember, Option<Duration>, Vec<FleetEvent>);

/// Asks a daemon. Returns its name and the reason if its windows do not count.
async fn about(
    daemon: Arc<SourceDaemon>,
    asked: Arc<RuleQuestion>,
) -> Result<MemberAnswer, (String, NodeFault)> {
    let fault = |stage, reason: String| Err((daemon.name.clone(), NodeFault { stage, reason }));
    let RuleQuestion {
        rule,
        watch,
        collector,
        ..
    } = &*asked;
    match ask(&daemon, &asked).await {
        Ok(Some(answered)) => Ok(answered),
        Ok(None) => fault(
            "collectors",
            format!("window.collectors of {watch} does not name {collector}"),
        ),
        Err(error) if error.status() == Some(404) => fault(
            "probe",
            format!("there is no probe named {watch}; deploy it first"),
        ),
        Err(error) => {
            tracing::warn!(server = daemon.name, rule, %error, "a daemon can't be asked for a rule");
            daemon.renew();
            fault("daemon", error.to_string())
        }
    }
}

/// Returns nothing if the probe's windows are for other collectors.
async fn ask(
    daemon: &Arc<SourceDaemon>,
    RuleQuestion {
        rule,
        watch,
        collector,
        remembered,
    }: &RuleQuestion,
) -> Result<Option<MemberAnswer>, AskError> {
    let client = daemon.client();
    let status = daemon.ask(client.status(watch)).await?.read()?;
    if ProbeClaim::of(&status, collector) == ProbeClaim::Others {
        return Ok(None);
    }
    let history = match remembered {
        Some(_) => daemon.ask(client.history(None)).await?.read()?.history,
        None => Vec::new(),
    };
    let config = status.config.unwrap_or_default();
    let interval = config
        .window
        .as_ref()
        .and_then(|window| window.interval.as_deref());
    let length = interval.and_then(|text| text.parse::<SignedDuration>().ok()?.try_into().ok());
    let events = history.iter().filter_map(|entry| {
        let is_put = matches!(entry.change, ChangeKind::Created | ChangeKind::Replaced);
        let event = FleetEvent::of_reason(entry.message.as_deref()?, rule, is_put)?;
        remembered
            .is_some_and(|since| event.end > since)
            .then_some(event)
    });
    let member = RuleMember {
        daemon: Arc::clone(daemon),
        labels: status.labels,
        config,
        may_enforce: false,
    };
    Ok(Some((status.node, member, length, events.collect())))
}

impl RuleMember {
    /// Does the work, and repeats failed steps that may succeed later. Returns the node and the
    /// last error.
    async fn carry_out(
        self,
        node: String,
        (rule, end): (String, i64),
        work: NodeWork,
    ) -> (String, Result<(), String>) {
        let why = reason(&rule, end);
        let mut attempt = 1;
        loop {
            let done = match &work {
                NodeWork::Apply(probe, values) => {
                    self.apply(probe, values.as_deref(), &rule, &why).await
                }
                NodeWork::Change(change) => self.changed().change(change, &rule, &why).await,
                NodeWork::ChangeBack(name) => {
                    self.changed()
                        .change_back(name, &rule, &reason_back(&rule, end))
                        .await
                }
                NodeWork::Delete { name, is_own } => self.delete(name, *is_own, &rule, &why).await,
                NodeWork::Mark { probe, text } => {
                    let (client, text) = (self.daemon.client(), format!("{why}: {text}"));
                    self.daemon
                        .ask(client.mark(probe, &text))
                        .await
                        .map_err(|error| error.to_string())
                }
            };
            match done {
                Ok(()) => return (node, Ok(())),
                Err(error) if attempt >= ATTEMPTS => {
                    tracing::error!(rule, node, error, "an action of a rule failed at a node");
                    return (node, Err(error));
                }
                Err(_) => tokio::time::sleep(pause(attempt)).await,
            }
            attempt += 1;
        }
    }

    /// The client for changes, with the role that the rule has at the node.
    fn client(&self) -> Client {
        let client = self.daemon.client();
        if self.may_enforce {
            client
        } else {
            client.at_most("operator")
        }
    }

    fn changed(&self) -> ChangedDaemon<'_> {
        ChangedDaemon {
            daemon: &self.daemon,
            client: self.client(),
        }
    }

    /// Deploys a probe of the rule, or renews the probe's lease.
    async fn apply(
        &self,
        probe: &RuleProbe,
        values: Option<&PeriodValues>,
        rule: &str,
        why: &str,
    ) -> Result<(), String> {
        if self
            .owner(&probe.name)
            .await?
            .is_some_and(|owner| owner.as_deref() != Some(rule))
        {
            return Err(format!(
                "there is a probe {} that this rule has not made",
                probe.name
            ));
        }
        let mut client = self.client();
        let template = match (&probe.template, values) {
            (Some(name), Some(values)) => {
                // Nothing has checked the verdicts of the node's template.
                client = client.at_most("operator");
                let template = self.daemon.ask(client.template(name)).await;
                let template = template.and_then(|answer| Ok(answer.read()?));
                Some(values.fill(&template.map_err(|error| error.to_string())?.config)?)
            }
            _ => None,
        };
        let mut config = configuration(probe, template, &self.config)?;
        config
            .labels
            .get_or_insert_default()
            .insert(LABEL.to_owned(), rule.to_owned());
        let put = self
            .daemon
            .ask(client.put(&probe.name, &config, Some(why)))
            .await;
        put.map(drop).map_err(|error| error.to_string())
    }

    async fn delete(&self, name: &str, is_own: bool, rule: &str, why: &str) -> Result<(), String> {
        if is_own && self.owner(name).await?.flatten().as_deref() != Some(rule) {
            return Ok(());
        }
        let client = self.client();
        match self.daemon.ask(client.delete(name, Some(why))).await {
            Err(error) if error.status() != Some(404) => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Returns the rule that has made a probe; `Some(None)` if no rule of a fleet has made it,
    /// `None` if the probe does not exist.
    async fn owner(&self, name: &str) -> Result<Option<Option<String>>, String> {
        let client = self.daemon.client();
        match self
            .daemon
            .ask(client.status(name))
            .await
            .and_then(|answer| Ok(answer.read()?))
        {
            Ok(status) => Ok(Some(status.labels.get(LABEL).cloned())),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Returns the configuration of a probe: that of the template, one of the library, or that of the
/// rule. A configuration without interfaces gets those of the watched probe.
fn configuration(
    probe: &RuleProbe,
    template: Option<ConfigDocument>,
    watched: &ConfigDocument,
) -> Result<ConfigDocument, String> {
    let mut config: ConfigDocument = match (template, &probe.probe, &probe.config) {
        (Some(template), ..) => template,
        (None, Some(name), _) => {
            twinprobe_library::library_probe(name).map_err(|error| error.to_string())?
        }
        (None, None, Some(config)) => serde_json::from_value(Value::Object(config.clone()))
            .map_err(|error| format!("config: {error}"))?,
        (None, None, None) => return Err("names no probe of the library".to_owned()),
    };
    config.name = Some(probe.name.clone());
    config.expires = Some(probe.expires.clone());
    let chosen = twinprobe_library::choose(&mut config, &probe.defines, &probe.variables);
    chosen.map_err(|error| error.to_string())?;
    if config.goes_nowhere() {
        config.go_where(watched);
    }
    Ok(config)
}
