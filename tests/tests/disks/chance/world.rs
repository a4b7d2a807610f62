//! The daemon of the random test, and the model of each name.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use twinprobe_tests::Response;
use twinprobe_tests::disk::{Failing, FileSystem};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;

use super::kind::{COLLECTORS, Kind};
use super::ledger::{Ledger, Origin};
use super::plan::{NAMES, Step};
use crate::scene::{End, Place, Scene};

/// The lease of a probe that the test lets expire.
const LEASE: &str = "100ms";

/// The present fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    Full,
    Failing,
}

pub struct World {
    scene: Scene,
    ledgers: [Ledger; NAMES.len()],
    health: Health,
    /// The names that may have a probe or not: a request failed because of the disk.
    unsure: BTreeSet<usize>,
    /// A number that makes each configuration different.
    variant: u64,
}

impl World {
    pub fn new(kind: FileSystem, is_busy: bool) -> Result<Self> {
        let scene = Scene::new((Place::Disk(kind), is_busy))?;
        Ok(Self {
            scene,
            ledgers: NAMES.map(Ledger::new),
            health: Health::Well,
            unsure: BTreeSet::new(),
            variant: 0,
        })
    }

    /// Does a step and compares all names with earlier answers.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        self.execute(step)?;
        if self.health == Health::Well {
            self.each(Ledger::look)?;
        }
        Ok(())
    }

    /// Compares everything.
    pub fn end(&mut self) -> Result<()> {
        self.each(Ledger::check)
    }

    fn execute(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Send { packets } => self.send(*packets),
            Step::Put { name, kind, reset } => self.put(*name, *kind, *reset),
            Step::Delete { name } => self.delete(*name),
            Step::Expire { name } => self.expire(*name),
            Step::Close { name, packets } => {
                self.send(*packets)?;
                self.close(*name)
            }
            Step::Take { name, packets } => {
                self.send(*packets)?;
                self.take(*name)
            }
            Step::HangUp { name, bytes } => self.hang_up(*name, *bytes),
            Step::Acknowledge {
                name,
                which,
                collector,
            } => self.acknowledge(*name, *which, *collector),
            Step::Check => self.each(Ledger::check),
            Step::Restart => self.restart(End::Restart),
            Step::Reboot => self.restart(End::Reboot),
            Step::Kill => self.restart(End::Kill),
            Step::PowerLoss {
                name,
                seed,
                writes,
                writes_back,
            } => {
                self.close_until_power_is_off(*name, *writes, *writes_back)?;
                self.restart(End::PowerLoss(*seed))
            }
            Step::Trouble { full, steps } => self.trouble(*full, steps),
        }
    }

    fn send(&mut self, packets: u64) -> Result<()> {
        self.scene.send(packets)?;
        self.ledgers
            .iter_mut()
            .for_each(|ledger| ledger.send(packets));
        Ok(())
    }

    fn each(&mut self, mut compare: impl FnMut(&mut Ledger, &Windows) -> Result<()>) -> Result<()> {
        for ledger in &mut self.ledgers {
            // A name without a probe and without windows may be unknown.
            let client = self.scene.windows(ledger.name);
            if ledger.instance.is_some()
                || client
                    .request("GET", &client.path(0).replace("/0", ""))?
                    .status
                    != 404
            {
                compare(ledger, &client)?;
            } else {
                ensure!(
                    ledger.choose(0).is_none(),
                    "{}: windows are to be collected, and there are none",
                    ledger.name
                );
            }
        }
        Ok(())
    }

    /// Returns the expected answer, or `None` if the answer reports trouble of the disk.
    fn answer(&self, answer: Response, wanted: &[u16]) -> Result<Option<Response>> {
        match answer.status {
            status if wanted.contains(&status) => Ok(Some(answer)),
            500 | 503 | 507 if self.health != Health::Well => Ok(None),
            status => bail!("{status}, not {wanted:?}: {}", answer.text()),
        }
    }

    fn put(&mut self, name: usize, kind: u64, reset: bool) -> Result<()> {
        self.variant += 1;
        let is_left =
            self.ledgers[name].instance.is_none() && self.ledgers[name].choose(0).is_some();
        let is_unsafe = match self.health {
            Health::Well => false,
            // A settlement of a creation that failed would remove the windows that a lease has
            // left.
            Health::Full => is_left,
            // If a change can be neither synced nor taken back, the answer reports success, and the
            // log says that the change may be lost.
            Health::Failing => true,
        };
        if self.unsure.contains(&name) || is_unsafe {
            return Ok(());
        }
        let ledger = &mut self.ledgers[name];
        let existing = ledger.instance.clone();
        let kind = existing
            .as_ref()
            .map_or_else(|| Kind::of(kind), |instance| instance.kind.clone());
        let status = if existing.is_some() { 200 } else { 201 };
        let document = kind.spec(self.variant, reset, None).config_at("mon0");
        let path = Scene::path(ledger.name);
        let answer = self.answer(self.scene.daemon().put(&path, &document), &[status])?;
        let ledger = &mut self.ledgers[name];
        match (existing, answer) {
            (None, Some(answer)) => ledger.create(&answer.json(), kind),
            (Some(instance), Some(answer)) => {
                let answer = answer.json();
                ensure!(
                    answer["instance"] == *instance.id,
                    "a replacement is another instance: {answer}"
                );
                if reset {
                    ledger.reset();
                }
                Ok(())
            }
            (None, None) => {
                self.unsure.insert(name);
                Ok(())
            }
            (Some(_), None) => {
                if reset {
                    ledger.perhaps_reset();
                }
                Ok(())
            }
        }
    }

    fn delete(&mut self, name: usize) -> Result<()> {
        let path = Scene::path(NAMES[name]);
        if self.ledgers[name].instance.is_none() {
            return Ok(());
        }
        let answer = self.answer(self.scene.daemon().delete(&path), &[204])?;
        if answer.is_none() || self.health == Health::Failing {
            self.unsure.insert(name);
        }
        self.ledgers[name].delete();
        Ok(())
    }

    /// Deletes the probes that may be there or not.
    fn settle(&mut self) -> Result<()> {
        for name in std::mem::take(&mut self.unsure) {
            let answer = self.scene.daemon().delete(&Scene::path(NAMES[name]));
            ensure!(
                [204, 404].contains(&answer.status),
                "{}: {}",
                NAMES[name],
                answer.text()
            );
        }
        Ok(())
    }

    fn expire(&mut self, name: usize) -> Result<()> {
        self.variant += 1;
        let ledger = &mut self.ledgers[name];
        let Some(instance) = ledger.instance.clone() else {
            return Ok(());
        };
        let document = instance
            .kind
            .spec(self.variant, false, Some(LEASE))
            .config_at("mon0");
        self.scene
            .daemon()
            .put(&Scene::path(ledger.name), &document)
            .expect(200);
        self.scene.wait_until_gone(ledger.name)?;
        // The last window is still of this instance.
        ledger.look(&self.scene.windows(ledger.name))?;
        ledger.expire();
        Ok(())
    }

    fn close(&mut self, name: usize) -> Result<()> {
        let client = self.scene.windows(NAMES[name]);
        if self.ledgers[name].instance.is_none() {
            return Ok(());
        }
        let Some(answer) = self.answer(client.try_close()?, &[201])? else {
            return Ok(());
        };
        self.ledgers[name].answered(&client, &answer.body, Origin::Post)
    }

    fn take(&mut self, name: usize) -> Result<()> {
        let client = self.scene.windows(NAMES[name]);
        if self.ledgers[name].instance.is_none() {
            return Ok(());
        }
        let answer = client.request("GET", &(Scene::path(NAMES[name]) + "/metrics"))?;
        let Some(answer) = self.answer(answer, &[200])? else {
            return Ok(());
        };
        if answer.json()["window"].is_object() {
            self.ledgers[name].answered(&client, &answer.body, Origin::Get)?;
        }
        Ok(())
    }

    fn hang_up(&mut self, name: usize, bytes: u64) -> Result<()> {
        if self.ledgers[name].instance.is_some() {
            let path = Scene::path(NAMES[name]) + "/metrics";
            // The daemon may count the window as taken or not: the connection may have had room for
            // the whole window.
            twinprobe_tests::http::take(
                &self.scene.daemon().address(),
                "GET",
                &path,
                bytes as usize,
            )?;
            self.ledgers[name].hung_up();
        }
        Ok(())
    }

    fn acknowledge(&mut self, name: usize, which: u64, collector: u64) -> Result<()> {
        let ledger = &mut self.ledgers[name];
        let Some(seq) = ledger.choose(which) else {
            return Ok(());
        };
        let named = ledger
            .instance
            .as_ref()
            .map_or(0, |instance| instance.kind.collectors.len());
        let collector = COLLECTORS
            .get(..named)
            .and_then(|named| named.get(collector as usize))
            .copied();
        let answer = self
            .scene
            .windows(NAMES[name])
            .acknowledge(seq, collector)?;
        if self.answer(answer, &[204])?.is_some() {
            self.ledgers[name].acknowledge(seq, collector);
        } else {
            self.ledgers[name].perhaps_acknowledge(seq);
        }
        Ok(())
    }

    fn restart(&mut self, end: End) -> Result<()> {
        self.scene.end(end)?;
        self.settle()?;
        for ledger in &mut self.ledgers {
            if matches!(end, End::Reboot | End::PowerLoss(_)) {
                ledger.forget_open();
            }
            if matches!(end, End::PowerLoss(_)) {
                ledger.lose_power();
            }
            if let Some(instance) = &ledger.instance {
                let status = self.scene.status(ledger.name);
                ensure!(
                    status["instance"] == *instance.id,
                    "{}: another instance: {status}",
                    ledger.name
                );
                ensure!(status["state"] == "running", "{}: {status}", ledger.name);
                ensure!(
                    status["windows"]["damaged"] == 0,
                    "{}: damaged windows: {status}",
                    ledger.name
                );
            } else {
                // A loss of power may bring back a probe whose lease has ended; it ends again.
                self.scene.wait_until_gone(ledger.name)?;
            }
        }
        self.each(Ledger::check)
    }

    /// Closes windows of a probe until the power of the disk fails, with the write of this number,
    /// and notes those that were answered.
    fn close_until_power_is_off(
        &mut self,
        name: usize,
        writes: u64,
        writes_back: bool,
    ) -> Result<()> {
        /// The most windows that are closed: some windows share a write.
        const MOST: usize = 20;
        self.scene.disk().power_off_after(writes)?;
        let client = self.scene.windows(NAMES[name]);
        let mut answers = Vec::new();
        while self.ledgers[name].instance.is_some() && answers.len() < MOST {
            self.send(1)?;
            // An answer that ends early, since the disk can't be read, tells nothing.
            let Ok(answer) = client.try_close() else {
                break;
            };
            if answer.status != 201 {
                break;
            }
            answers.push(answer);
        }
        if writes_back {
            // The call fails if the power fails meanwhile.
            let _ = self.scene.disk().write_back();
        }
        answers
            .iter()
            .try_for_each(|answer| self.ledgers[name].note_answer(&answer.body))
    }

    fn trouble(&mut self, full: bool, steps: &[Step]) -> Result<()> {
        let disk = self.scene.disk();
        if full {
            disk.room().fill()?;
        } else {
            disk.fail(Failing::Data)?;
        }
        self.health = if full { Health::Full } else { Health::Failing };
        let done = steps.iter().try_for_each(|step| {
            self.execute(step)
                .with_context(|| format!("in trouble, {step}"))
        });
        self.scene.disk().heal()?;
        if full {
            self.scene.disk().room().free()?;
        }
        self.health = Health::Well;
        done?;
        if !self.scene.disk().is_alive() {
            // The file system has given up. Nothing but a reboot helps.
            return self.restart(End::Reboot);
        }
        self.recover()
    }

    /// Waits until windows are stored again, without any help.
    fn recover(&mut self) -> Result<()> {
        self.settle()?;
        for ledger in &mut self.ledgers {
            if ledger.instance.is_none() {
                continue;
            }
            let client = self.scene.windows(ledger.name);
            let answer = wait_for("a window after the trouble", PATIENCE, || {
                let answer = client.try_close()?;
                ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
                Ok(answer)
            })?;
            ledger.answered(&client, &answer.body, Origin::Post)?;
            let status: Value = self.scene.status(ledger.name);
            ensure!(
                status["windows"].get("error").is_none(),
                "{}: {status}",
                ledger.name
            );
        }
        self.each(Ledger::check)
    }
}
