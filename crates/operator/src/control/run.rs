//! `twinprobe-operator run`: watches objects, and looks at each object that changes.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures_util::{Stream, StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use twinprobe_fleet::rule_of;

use crate::control::compile::{Compilations, CompileOptions};
use crate::control::leader::Leadership;
use crate::control::reconcile::reconcile;
use crate::control::rules::reconcile_rule;
use crate::control::webhook::{WebhookOptions, answer};
use crate::control::world::World;
use crate::control::writes::{MANAGER, ReconcileContext, Wished, again};
use crate::judge::options::{DaemonAccess, JudgeOptions};
use crate::judge::runs::Judges;
use crate::objects::nodes::{ProbeAssignment, ProbeReport};
use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;
use crate::overview::serve::{OverviewOptions, serve_overview};

/// The time for which the operator gathers reports, so that many reports cause one look.
const TOGETHER: Duration = Duration::from_millis(200);

/// Options of the operator.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Namespace of the Lease; only the operator that holds it works
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "default"
    )]
    namespace: String,
    /// Name of this operator among others, such as that of its pod
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    #[command(flatten)]
    webhook: WebhookOptions,
    #[command(flatten)]
    compile: CompileOptions,
    #[command(flatten)]
    overview: OverviewOptions,
    #[command(flatten)]
    judge: JudgeOptions,
}

/// Runs the operator until a signal ends it, or until it loses the Lease. It finds the API server
/// as kubectl does, or by its pod's account.
pub async fn run_operator(options: RunOptions) -> anyhow::Result<()> {
    // An error means that the process has a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let access = options.judge.access(&options.namespace)?;
    let judges = access.is_some();
    let client = Client::try_default().await.context("the API server")?;
    let identity = options
        .identity
        .clone()
        .unwrap_or_else(|| format!("{}-{}", hostname(), std::process::id()));
    let leadership = Leadership::new(client.clone(), &options.namespace, identity.clone());
    let mut terminated = signal(SignalKind::terminate())?;
    let overview = serve_overview(client.clone(), &options.overview);
    let works = async {
        leadership.acquire().await;
        tracing::info!(identity, "this operator has the Lease");
        tokio::select! {
            lost = leadership.keep() => lost.context("the Lease is lost"),
            () = control(client, identity.clone(), &options, access) => Ok(()),
        }
    };
    tokio::select! {
        done = works => done,
        // An operator without the Lease answers these requests as well.
        failed = answer(&options.webhook, judges) => failed,
        failed = overview => failed,
        _ = terminated.recv() => Ok(()),
    }
}

/// Looks at an object when it, its nodes or its reports change.
async fn control(
    client: Client,
    identity: String,
    options: &RunOptions,
    access: Option<DaemonAccess>,
) {
    let world = Arc::new(World::default());
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: Some(identity),
    };
    let (probes, changed_probes) = changes();
    let (rules, changed_rules) = changes();
    let judges = access.map(|access| Arc::new(Judges::new(access, rules.1.clone())));
    if let Some(judges) = &judges {
        tokio::spawn(Arc::clone(judges).follow(client.clone(), options.namespace.clone()));
    }
    let context = Arc::new(ReconcileContext {
        recorder: Recorder::new(client.clone(), reporter),
        client: client.clone(),
        world: Arc::clone(&world),
        compilations: Compilations::new(options.compile.clone()),
        judges,
    });
    let news = [probes, rules];
    // Each watch has a task of its own: the API server cuts off a watch that is read too slowly.
    tokio::spawn(watch_nodes(
        client.clone(),
        Arc::clone(&world),
        news.clone(),
    ));
    tokio::spawn(watch_reports(client, world, news));
    let probe_of = |assignment: &str| rule_of(assignment).is_none().then(|| assignment.to_owned());
    let rule_of = |assignment: &str| rule_of(assignment).map(str::to_owned);
    future::join(
        follow::<MonitoringProbe, _>(Arc::clone(&context), changed_probes, probe_of, reconcile),
        follow::<MonitoringRule, _>(context, changed_rules, rule_of, reconcile_rule),
    )
    .await;
}

/// Looks at an object of one kind when it, its assignment, its nodes or its reports change. `of`
/// names the object of an assignment.
async fn follow<K, F>(
    context: Arc<ReconcileContext>,
    changed: Changes,
    of: fn(&str) -> Option<String>,
    look: fn(Arc<K>, Arc<ReconcileContext>) -> F,
) where
    K: Wished + Send + Sync + 'static,
    F: Future<Output = kube::Result<Action>> + Send + 'static,
{
    let client = context.client.clone();
    let (all, some) = changed;
    let some = received(some)
        .filter_map(move |assignment| ready(of(&assignment).map(|name| ObjectRef::new(&name))));
    Controller::new(Api::<K>::all(client.clone()), watcher::Config::default())
        .with_config(Config::default().debounce(TOGETHER))
        .watches(
            Api::<ProbeAssignment>::all(client),
            watcher::Config::default(),
            move |assignment| {
                // If somebody else has changed an assignment, this look writes the assignment
                // again.
                assignment
                    .metadata
                    .name
                    .as_deref()
                    .and_then(of)
                    .map(|name| ObjectRef::new(&name))
            },
        )
        .reconcile_all_on(received(all))
        .reconcile_on(some)
        .run(look, again, context)
        .for_each(|done| {
            if let Err(error) = done {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a reconciliation failed"
                );
            }
            ready(())
        })
        .await;
}

/// Two senders: changes of nodes concern all objects; changes of reports come with the name of
/// their assignment.
type News = (UnboundedSender<()>, UnboundedSender<String>);
type Changes = (UnboundedReceiver<()>, UnboundedReceiver<String>);

fn changes() -> (News, Changes) {
    let (all, changed) = unbounded_channel();
    let (some, reported) = unbounded_channel();
    ((all, some), (changed, reported))
}

async fn watch_nodes(client: Client, world: Arc<World>, news: [News; 2]) {
    let nodes = watcher(
        Api::<PartialObjectMeta<Node>>::all(client),
        watcher::Config::default(),
    )
    .default_backoff();
    let taken = nodes.for_each(|event| {
        let is_news = take(event, "nodes").is_some_and(|event| world.take_node(event));
        if is_news {
            tell_all(&news);
        }
        future::ready(())
    });
    taken.await;
}

async fn watch_reports(client: Client, world: Arc<World>, news: [News; 2]) {
    let reports =
        watcher(Api::<ProbeReport>::all(client), watcher::Config::default()).default_backoff();
    let taken = reports.for_each(|event| {
        match take(event, "reports").and_then(|event| world.take_report(event)) {
            Some(Some(assignment)) => {
                for (_, some) in &news {
                    // The receivers end with the operator.
                    let _ = some.send(assignment.clone());
                }
            }
            Some(None) => tell_all(&news),
            None => {}
        }
        future::ready(())
    });
    taken.await;
}

fn tell_all(news: &[News]) {
    for (all, _) in news {
        // The receivers end with the operator.
        let _ = all.send(());
    }
}

fn take<K>(
    event: Result<watcher::Event<K>, watcher::Error>,
    what: &str,
) -> Option<watcher::Event<K>> {
    match event {
        Ok(event) => Some(event),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the watch of the {what} failed; the operator tries again"
            );
            None
        }
    }
}

fn received<T: Send>(receiver: UnboundedReceiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    })
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
