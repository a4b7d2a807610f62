//! The comparison of a daemon's present answers with its earlier ones.

use anyhow::{Result, bail, ensure};
use twinprobe_tests::windows::{List, Windows};

use super::Ledger;

impl Ledger {
    /// Compares the list with earlier answers, and notes new windows.
    pub fn look(&mut self, client: &Windows) -> Result<()> {
        let list = self.list(client)?;
        for number in list.seqs() {
            self.learn(client, number)?;
        }
        self.compare(&list)
    }

    fn compare(&mut self, list: &List) -> Result<()> {
        let (name, seqs) = (self.name, list.seqs());
        ensure!(
            seqs.is_sorted(),
            "{name}: the list is not in order: {seqs:?}"
        );
        let acknowledged = self.acknowledged;
        if let Some(back) = seqs.iter().find(|seq| **seq <= acknowledged) {
            bail!(
                "{name}: window {back} is back; windows up to {acknowledged} were acknowledged: {seqs:?}"
            );
        }
        let limit = match &self.instance {
            Some(instance) => instance.kind.retain.unwrap_or(32),
            // The limits of a deleted probe are not known here.
            None => 1,
        };
        let gone: Vec<u64> = self
            .windows
            .keys()
            .copied()
            .filter(|seq| !seqs.contains(seq))
            .collect();
        for seq in gone {
            let is_oldest = seqs.first().is_some_and(|first| seq < *first);
            ensure!(
                seq <= self.perhaps_acknowledged || (is_oldest && seqs.len() >= limit),
                "{name}: window {seq} is gone; listed are {seqs:?}, {} are said to be lost",
                list.lost
            );
            self.windows.remove(&seq);
        }
        self.compare_lost(list)
    }

    /// Compares the number of lost windows: those that are neither listed nor acknowledged.
    fn compare_lost(&mut self, list: &List) -> Result<()> {
        let (name, seqs) = (self.name, list.seqs());
        let last = seqs
            .last()
            .copied()
            .unwrap_or(self.newest.max(self.acknowledged));
        let missing = (last - self.acknowledged.min(last)).saturating_sub(seqs.len() as u64);
        let is_exact = !self.is_free
            && self
                .instance
                .as_ref()
                .is_some_and(|instance| instance.kind.retain.is_some());
        if self.perhaps_acknowledged > self.acknowledged || !is_exact {
            // Windows that were acknowledged after all, or taken by a client, are missing and not
            // lost.
            let hidden = self.lost.unwrap_or(list.lost);
            ensure!(
                list.lost <= hidden + missing,
                "{name}: {} are said to be lost of {missing}",
                list.lost
            );
            return Ok(());
        }
        match self.lost {
            Some(hidden) => ensure!(
                list.lost == hidden + missing,
                "{name}: {} are said to be lost, not {hidden} and {missing}; listed are {seqs:?}, acknowledged {}",
                list.lost,
                self.acknowledged
            ),
            None => {
                ensure!(
                    list.lost >= missing,
                    "{name}: {} are said to be lost, not {missing}",
                    list.lost
                );
                self.lost = Some(list.lost - missing);
            }
        }
        Ok(())
    }

    /// Compares every window with earlier answers.
    pub fn check(&mut self, client: &Windows) -> Result<()> {
        self.look(client)?;
        for (number, window) in &self.windows {
            let answer = client.try_get(*number)?;
            if answer.status == 404
                && self
                    .instance
                    .as_ref()
                    .is_some_and(|instance| instance.kind.has_interval)
            {
                // The list decides: the clock may have closed other windows meanwhile.
                continue;
            }
            ensure!(
                answer.status == 200,
                "{}: window {number} is {}: {}",
                self.name,
                answer.status,
                answer.text()
            );
            ensure!(
                answer.body == window.body,
                "{}: window {number} has another content",
                self.name
            );
        }
        if self.acknowledged > 0 {
            let answer = client.try_get(self.acknowledged)?;
            ensure!(
                answer.status == 404,
                "{}: window {} was acknowledged and is {}",
                self.name,
                self.acknowledged,
                answer.status
            );
        }
        self.look(client)
    }
}
