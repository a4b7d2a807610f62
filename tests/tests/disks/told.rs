//! The answers that a client got about a probe's windows, compared with later answers of the
//! daemon.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::scene::{Scene, packets, seq, total};

/// The windows of a probe in the answers to a client.
#[derive(Debug, Default)]
pub struct Told {
    pub probe: String,
    /// The answer to the POST of each window that is retained.
    windows: BTreeMap<u64, Vec<u8>>,
    /// The number and the sum of the newest window.
    pub newest: u64,
    pub total: u64,
}

impl Told {
    pub fn of(probe: &str) -> Self {
        Self {
            probe: probe.to_owned(),
            ..Self::default()
        }
    }

    /// Sends packets and closes the window that counts them.
    pub fn close(&mut self, scene: &mut Scene, count: u64) -> Result<Value> {
        scene.send(count)?;
        let answer = scene.windows(&self.probe).try_close()?.expect(201);
        let document = answer.json();
        let probe = &self.probe;
        ensure!(
            packets(&document) >= count,
            "{probe}: {} of {count} packets",
            packets(&document)
        );
        ensure!(
            seq(&document) > self.newest,
            "{probe}: window {} after {} of the same instance",
            seq(&document),
            self.newest
        );
        let expected = self.total + packets(&document);
        ensure!(
            total(&document) == expected,
            "{probe}: the sum of window {} is {}, not {expected}",
            seq(&document),
            total(&document)
        );
        (self.newest, self.total) = (seq(&document), total(&document));
        self.windows.insert(self.newest, answer.body);
        Ok(document)
    }

    /// Notes a window without packets, and earlier windows that an unsuccessful request has closed.
    pub fn note(&mut self, scene: &Scene, document: &Value) -> Result<()> {
        ensure!(
            total(document) == self.total,
            "{}: the sum is {}, not {}",
            self.probe,
            total(document),
            self.total
        );
        for number in self.newest + 1..=seq(document) {
            self.windows.insert(
                number,
                scene.windows(&self.probe).try_get(number)?.expect(200).body,
            );
        }
        self.newest = seq(document);
        Ok(())
    }

    /// Notes the window that the end of a lease has closed.
    pub fn note_last(&mut self, scene: &Scene) -> Result<()> {
        let windows = scene.windows(&self.probe);
        let last = windows
            .seqs()
            .last()
            .copied()
            .context("the last window of a lease")?;
        ensure!(
            last == self.newest + 1,
            "{}: window {last} after {}",
            self.probe,
            self.newest
        );
        self.newest = last;
        self.windows
            .insert(last, windows.try_get(last)?.expect(200).body);
        Ok(())
    }

    /// Returns the answers about a successor that continues the numbers of windows.
    pub fn successor(self) -> Self {
        Self { total: 0, ..self }
    }

    /// Compares retained windows with earlier answers.
    pub fn check(&self, scene: &Scene) -> Result<()> {
        let (probe, windows) = (&self.probe, scene.windows(&self.probe));
        let told: Vec<u64> = self.windows.keys().copied().collect();
        let list = windows.list("");
        for (seq, body) in &self.windows {
            let answer = windows.try_get(*seq)?;
            ensure!(
                answer.status == 200,
                "{probe}: window {seq} was answered with 201 and is {}: {}; listed {:?}, {} lost",
                answer.status,
                answer.text(),
                list.seqs(),
                list.lost
            );
            ensure!(
                answer.body == *body,
                "{probe}: window {seq} is another than it was"
            );
        }
        ensure!(
            list.seqs() == told,
            "{probe}: listed are {:?}, told were {told:?}",
            list.seqs()
        );
        ensure!(list.lost == 0, "{probe}: {} are said to be lost", list.lost);
        let status = scene.status(probe);
        let lost = status["windows"]["lost"]
            .as_u64()
            .context("a number of lost windows")?;
        ensure!(lost == 0, "{probe}: the status says that {lost} are lost");
        Ok(())
    }
}
