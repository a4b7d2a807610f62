//! Checks of a probe's status.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::probe::ProbeModel;
use super::spec::Place;

/// Compares a status with the model. `extra`: the temporary interface exists, or the interface in
/// the temporary namespace.
pub fn check(probe: &mut ProbeModel, status: &Value, extra: bool) -> Result<()> {
    ensure!(
        status["state"] == "running",
        "{}: {}",
        status["state"],
        status["reason"]
    );
    ensure!(
        status["revision"] == probe.revision,
        "revision {}, not {}",
        status["revision"],
        probe.revision
    );
    // Lists have no sources.
    let [mut shown, mut known] = [status["config"].clone(), probe.spec.config()];
    for config in [&mut shown, &mut known] {
        for direction in ["ingress", "egress"] {
            if let Some(direction) = config.get_mut(direction).and_then(Value::as_object_mut) {
                direction.remove("source");
            }
        }
    }
    ensure!(shown == known, "another configuration: {shown}");
    if probe.created.is_null() {
        probe.created = status["created"].clone();
    }
    ensure!(
        status["created"] == probe.created,
        "created {}, not {}",
        status["created"],
        probe.created
    );
    attachments(probe, status, extra)?;
    let windows = &status["windows"];
    ensure!(
        windows["lost"] == 0 && windows["damaged"] == 0 && windows.get("error").is_none(),
        "{windows}"
    );
    if probe.spec.interval.is_none() {
        let kept = probe.seq - probe.settled();
        ensure!(
            windows["retained"] == kept,
            "{kept} windows must be retained: {windows}"
        );
    }
    Ok(())
}

/// Checks that the probe is attached to the right interfaces.
pub fn attachments(probe: &ProbeModel, status: &Value, extra: bool) -> Result<()> {
    let found = status["interfaces"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found: Vec<(&str, &str)> = found
        .iter()
        .map(|at| {
            (
                at["interface"].as_str().unwrap_or("?"),
                at["state"].as_str().unwrap_or("?"),
            )
        })
        .collect();
    found.sort_unstable();
    let expected: &[(&str, &str)] = match probe.spec.place {
        Place::Xdp | Place::TcIngress => &[("mon0", "attached")],
        Place::TcEgress => &[("mon1", "attached")],
        Place::Space if extra => &[("in0", "attached")],
        Place::Space => &[("in0", "pending")],
        Place::XdpPattern if extra => &[("ext0", "attached"), ("mon0", "attached")],
        Place::XdpPattern => &[("ext*", "pending"), ("mon0", "attached")],
    };
    ensure!(
        found == expected,
        "at {found:?}, it must be {expected:?}: {}",
        status["interfaces"]
    );
    Ok(())
}
