//! Steps that send requests, with the result that each must have.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http;
use crate::model::plan::PROBES;
use crate::model::probe::{ProbeModel, Turn};
use crate::model::spec::{Broken, ProbeSpec};
use crate::model::time::now;
use crate::model::world::{Sent, World};
use crate::random::Random;
use crate::windows::Windows;

/// The outcome of a request that may have been cut off.
enum Outcome {
    Done(http::Response),
    /// The daemon ended during the request, and the next daemon runs.
    Broken,
    /// The request failed because room or descriptors were missing, and nothing has changed.
    Failed,
}

fn ask(
    world: &mut World,
    traffic: bool,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<(Outcome, Option<Sent>)> {
    let (answer, sent) = world.during(traffic, |world| world.request(method, path, body))?;
    if answer.is_none() || world.doomed {
        world.recover()?;
    }
    let outcome = match answer {
        Some(answer) if world.trouble && answer.status >= 400 => Outcome::Failed,
        Some(answer) => Outcome::Done(answer),
        None => Outcome::Broken,
    };
    Ok((outcome, sent))
}

/// Creates or replaces a probe and updates its model.
pub fn put(world: &mut World, index: usize, spec: ProbeSpec, traffic: bool) -> Result<()> {
    let path = format!("/v1/probes/{}", PROBES[index]);
    let config = spec.config();
    replace(world, index, spec, traffic, "PUT", &path, &config)
}

fn replace(
    world: &mut World,
    index: usize,
    spec: ProbeSpec,
    traffic: bool,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<()> {
    crate::model::tell(|| format!("{method} {path}: {spec:?}"));
    let since = now();
    let (outcome, sent) = ask(world, traffic, method, path, body)?;
    let probe = format!("/v1/probes/{}", PROBES[index]);
    let (done, crashed) = match outcome {
        Outcome::Done(answer) => {
            ensure!(
                matches!(answer.status, 200 | 201),
                "{method} {path}: {}",
                answer.text()
            );
            (true, false)
        }
        Outcome::Failed => (false, false),
        Outcome::Broken => {
            let revision = world
                .status(&probe)?
                .and_then(|status| status["revision"].as_u64())
                .unwrap_or(0);
            let known = world.probes.get(&index).map_or(0, |known| known.revision);
            ensure!(
                revision == known || revision == known + 1,
                "revision {revision} after {known}"
            );
            (revision > known, true)
        }
    };
    let is_new = !world.probes.contains_key(&index);
    if done && is_new {
        let order = world.next_order;
        world.next_order += 1;
        world.probes.insert(
            index,
            ProbeModel::new(PROBES[index], spec.clone(), order, Arc::clone(&world.clock)),
        );
    }
    if let Some(sent) = sent {
        world.account(sent, (done && is_new).then_some(index));
    }
    if crashed
        && !done
        && let Some(probe) = world.probes.get_mut(&index)
    {
        probe.attempted(&spec, since);
    }
    let turn = Turn::Put {
        spec: Box::new(spec),
        since,
        crashed,
    };
    world.collect((done && !is_new).then_some((index, turn)))
}

/// Sends a configuration and checks that it is refused.
pub fn refuse(world: &mut World, index: usize, how: u64, traffic: bool) -> Result<()> {
    let broken = match how {
        0 => Broken::Compile,
        1 => Broken::Verify,
        2 => Broken::Config,
        3 => Broken::Interface,
        _ => Broken::Inner,
    };
    let mut random = Random::seeded(how + 7);
    let generation = world.next_generation;
    world.next_generation += 1;
    let mut spec = match world.probes.get(&index) {
        Some(known) => known.spec.clone(),
        None => world.choose(index, generation, &mut random),
    };
    spec.broken = Some(broken);
    let path = format!("/v1/probes/{}", PROBES[index]);
    let (outcome, sent) = ask(world, traffic, "PUT", &path, &spec.config())?;
    if let Outcome::Done(answer) = outcome {
        ensure!(
            answer.status == 422,
            "{broken:?} was answered with {}: {}",
            answer.status,
            answer.text()
        );
    }
    sent.into_iter().for_each(|sent| world.account(sent, None));
    Ok(())
}

/// Rolls a probe back to the revision that is `1 + back` before the present one.
pub fn roll_back(world: &mut World, index: usize, back: u64, traffic: bool) -> Result<()> {
    let Some(probe) = world.probes.get(&index) else {
        return Ok(());
    };
    let Some(to) = probe.revision.checked_sub(1 + back).filter(|to| *to > 0) else {
        return Ok(());
    };
    let Some(spec) = probe.revisions.get(&to).cloned() else {
        return Ok(());
    };
    let path = format!("{}/rollback", probe.path());
    replace(
        world,
        index,
        spec,
        traffic,
        "POST",
        &path,
        &json!({ "revision": to }),
    )
}

/// Deletes a probe, and its model once the daemon has deleted it.
pub fn delete(world: &mut World, index: usize, traffic: bool) -> Result<()> {
    let Some(path) = world.probes.get(&index).map(ProbeModel::path) else {
        return Ok(());
    };
    let (outcome, sent) = ask(world, traffic, "DELETE", &path, &Value::Null)?;
    let gone = match outcome {
        Outcome::Done(answer) => {
            ensure!(answer.status == 204, "DELETE {path}: {}", answer.text());
            true
        }
        Outcome::Failed => false,
        Outcome::Broken => world.status(&path)?.is_none(),
    };
    if gone {
        world.probes.remove(&index);
    }
    sent.into_iter().for_each(|sent| world.account(sent, None));
    Ok(())
}

/// Reads a probe by `GET .../metrics`.
pub fn read(world: &mut World, index: usize, traffic: bool) -> Result<()> {
    let path = format!("{}/metrics", world.probes[&index].path());
    let since = now();
    let (outcome, sent) = ask(world, traffic, "GET", &path, &Value::Null)?;
    sent.into_iter().for_each(|sent| world.account(sent, None));
    world.collect(None)?;
    let probe = world.probes.get_mut(&index).context("a probe")?;
    let Outcome::Done(answer) = outcome else {
        return Ok(());
    };
    ensure!(answer.status == 200, "GET {path}: {}", answer.text());
    let document = answer.json();
    if !probe.spec.has_windows() {
        ensure!(
            document.get("window").is_none(),
            "the window of an earlier configuration: {document}"
        );
        return probe.live(&document, since);
    }
    if probe.spec.interval.is_some() {
        if document.get("window").is_some() {
            probe.again(&document, false)?;
        }
        return probe.live(&document, since);
    }
    probe.again(&document, true)
}

/// Reads a probe and hangs up after `bytes` bytes.
pub fn hang_up(world: &mut World, index: usize, bytes: usize, traffic: bool) -> Result<()> {
    let path = format!("{}/metrics", world.probes[&index].path());
    let address = world.address();
    let (_, sent) = world.during(traffic, |_| http::take(&address, "GET", &path, bytes))?;
    sent.into_iter().for_each(|sent| world.account(sent, None));
    if world.doomed {
        world.recover()?;
    }
    world.collect(None)
}

/// Closes a window of a probe and checks it.
pub fn close(world: &mut World, index: usize, traffic: bool) -> Result<()> {
    let probe = &world.probes[&index];
    let path = format!("{}/windows", probe.path());
    let (outcome, sent) = ask(world, traffic, "POST", &path, &Value::Null)?;
    sent.into_iter().for_each(|sent| world.account(sent, None));
    world.collect(None)?;
    let probe = &world.probes[&index];
    match outcome {
        Outcome::Done(answer) if probe.spec.has_windows() => {
            ensure!(answer.status == 201, "POST {path}: {}", answer.text());
            probe.again(&answer.json(), true)
        }
        Outcome::Done(answer) => {
            ensure!(answer.status == 409, "POST {path}: {}", answer.text());
            Ok(())
        }
        Outcome::Broken | Outcome::Failed => Ok(()),
    }
}

/// Acknowledges windows of a probe, except the newest `back` ones.
pub fn acknowledge(
    world: &mut World,
    index: usize,
    collector: Option<&'static str>,
    back: u64,
) -> Result<()> {
    world.collect(None)?;
    let address = world.address();
    let Some(probe) = world.probes.get_mut(&index) else {
        return Ok(());
    };
    let Some(seq) = probe.seq.checked_sub(back).filter(|seq| *seq > 0) else {
        return Ok(());
    };
    probe.acknowledge_at(&address, seq, collector)
}

/// Reads a retained window again and checks that it is the same.
pub fn reread(world: &mut World, index: usize, back: u64) -> Result<()> {
    world.collect(None)?;
    let address = world.address();
    let Some(probe) = world.probes.get(&index) else {
        return Ok(());
    };
    let Some(seq) = probe
        .seq
        .checked_sub(back)
        .filter(|seq| *seq > probe.settled())
    else {
        return Ok(());
    };
    let Some(known) = probe.documents.get(&seq) else {
        return Ok(());
    };
    let answer = Windows::at(address, &probe.name).try_get(seq)?;
    ensure!(answer.status == 200, "window {seq}: {}", answer.text());
    ensure!(
        answer.json() == *known,
        "window {seq} was {known}, it is {}",
        answer.text()
    );
    Ok(())
}
