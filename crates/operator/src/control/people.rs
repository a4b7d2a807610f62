//! Commands of people for a rollout, beside changes of its object: stop it, let it continue,
//! declare a step good.

use anyhow::{Context as _, bail};
use clap::Args;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use twinprobe_fleet::{COMPLETE, ROLLED_BACK};

use crate::control::reconcile::{PAUSED, PROMOTE};
use crate::objects::probe::MonitoringProbe;

/// The object that a command is about.
#[derive(Debug, Args)]
pub struct ProbeArgument {
    /// Name of the MonitoringProbe
    name: String,
}

/// Stops a rollout where it is, or lets it continue.
pub async fn pause(probe: &ProbeArgument, is_paused: bool) -> anyhow::Result<()> {
    let probes = probes().await?;
    let value = if is_paused {
        json!("true")
    } else {
        Value::Null
    };
    annotate(&probes, &probe.name, PAUSED, &value).await?;
    println!(
        "{}: {}",
        probe.name,
        if is_paused { "paused" } else { "continues" }
    );
    Ok(())
}

/// Declares the present step of a rollout good.
pub async fn promote(probe: &ProbeArgument) -> anyhow::Result<()> {
    let probes = probes().await?;
    let object = probes
        .get(&probe.name)
        .await
        .with_context(|| probe.name.clone())?;
    let status = object.status.unwrap_or_default();
    let step = status
        .step
        .filter(|step| ![COMPLETE, ROLLED_BACK].contains(&step.as_str()));
    let Some((revision, step)) = status.revision.zip(step) else {
        bail!(
            "{}: no step is running; `kubectl get mp {}` shows its state",
            probe.name,
            probe.name
        );
    };
    let value = format!("{revision}/{step}");
    annotate(&probes, &probe.name, PROMOTE, &json!(value)).await?;
    println!("{}: {value} is good", probe.name);
    Ok(())
}

async fn probes() -> anyhow::Result<Api<MonitoringProbe>> {
    // An error means that the process already has a cryptographic provider, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Api::all(
        Client::try_default().await.context("the API server")?,
    ))
}

async fn annotate(
    probes: &Api<MonitoringProbe>,
    name: &str,
    key: &str,
    value: &Value,
) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
    probes
        .patch(name, &PatchParams::default(), &patch)
        .await
        .with_context(|| name.to_owned())?;
    Ok(())
}
