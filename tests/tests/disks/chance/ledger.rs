//! The model of one name: the daemon's answers about the windows under this name, and their
//! possible fates.

mod compare;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use twinprobe_tests::windows::{List, Windows};

use super::kind::Kind;
use crate::scene::{packets, seq, total};

/// The cause of a closed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Post,
    Get,
    /// The clock, a lease that ended, or a request whose answer did not come.
    Other,
}

/// True if a GET of the metrics has returned the whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    No,
    Yes,
    /// The window was acknowledged before a loss of power, and the disk may have lost that.
    Perhaps,
}

#[derive(Debug)]
struct Window {
    body: Vec<u8>,
    origin: Origin,
    taken: Taken,
}

/// A probe that exists.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    pub kind: Kind,
}

/// The known facts about a name.
#[derive(Debug)]
pub struct Ledger {
    pub name: &'static str,
    pub instance: Option<Instance>,
    /// The ids of all probes that the name has had.
    ids: Vec<String>,
    /// The windows that are retained as far as clients were told.
    windows: BTreeMap<u64, Window>,
    /// The newest window in answers to clients, and its sum; `None` for an unknown sum.
    newest: u64,
    total: Option<u64>,
    /// The bounds of the number of packets since the newest window.
    open: (u64, u64),
    /// True if the sum may begin anew with any window: the time of its reset is unknown.
    may_begin_anew: bool,
    /// All collectors have acknowledged the windows up to this one, and perhaps the windows up to
    /// `perhaps`.
    acknowledged: u64,
    perhaps_acknowledged: u64,
    cursors: BTreeMap<&'static str, u64>,
    /// The number of lost windows that `acknowledged` hides; `None` if unknown.
    lost: Option<u64>,
    /// True if a probe of the name has named no collectors: windows that were removed meanwhile do
    /// not count as lost.
    is_free: bool,
}

impl Ledger {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            instance: None,
            ids: Vec::new(),
            windows: BTreeMap::new(),
            newest: 0,
            total: None,
            open: (0, 0),
            may_begin_anew: false,
            acknowledged: 0,
            perhaps_acknowledged: 0,
            cursors: BTreeMap::new(),
            lost: None,
            is_free: false,
        }
    }

    /// Notes that a probe was created.
    pub fn create(&mut self, status: &Value, kind: Kind) -> Result<()> {
        let id = status["instance"]
            .as_str()
            .context("an instance")?
            .to_owned();
        ensure!(
            !self.ids.contains(&id),
            "{}: instance {id} is used again",
            self.name
        );
        self.ids.push(id.clone());
        if self.windows.is_empty() {
            *self = Self {
                ids: std::mem::take(&mut self.ids),
                total: Some(0),
                lost: Some(0),
                ..Self::new(self.name)
            };
        } else {
            // The windows that a lease has left stay, and the successor continues with their
            // numbers.
            (self.total, self.open, self.may_begin_anew) = (Some(0), (0, 0), false);
        }
        self.is_free |= kind.collectors.is_empty();
        self.cursors.clear();
        self.instance = Some(Instance { id, kind });
        Ok(())
    }

    /// Notes that the probe was deleted, with its windows.
    pub fn delete(&mut self) {
        *self = Self {
            ids: std::mem::take(&mut self.ids),
            ..Self::new(self.name)
        };
    }

    /// Notes that the lease of the probe has ended. Its windows stay.
    pub fn expire(&mut self) {
        self.instance = None;
        self.open = (0, 0);
    }

    /// Notes packets that the probe has counted.
    pub fn send(&mut self, count: u64) {
        if self.instance.is_some() {
            self.open = (self.open.0 + count, self.open.1 + count);
        }
    }

    /// Notes a replacement with `on_replace: reset`.
    pub fn reset(&mut self) {
        if self
            .instance
            .as_ref()
            .is_some_and(|instance| instance.kind.has_interval)
        {
            // The clock may have closed a window just before.
            self.may_begin_anew = true;
            self.open.0 = 0;
        } else {
            (self.total, self.open) = (Some(0), (0, 0));
        }
    }

    /// Notes a change that may have been made or not.
    pub fn perhaps_reset(&mut self) {
        self.may_begin_anew = true;
        self.open.0 = 0;
    }

    /// Notes that the kernel has lost its counts. Only values that are stored beside windows can
    /// still appear.
    pub fn forget_open(&mut self) {
        self.open.0 = 0;
    }

    /// Notes that the store may have lost which windows clients have taken.
    pub fn lose_power(&mut self) {
        for window in self
            .windows
            .values_mut()
            .filter(|window| window.taken == Taken::Yes)
        {
            window.taken = Taken::Perhaps;
        }
    }

    /// Notes an acknowledgement that was answered with 204.
    pub fn acknowledge(&mut self, seq: u64, collector: Option<&'static str>) {
        let named = self
            .instance
            .as_ref()
            .map_or(&[][..], |instance| instance.kind.collectors);
        for name in named
            .iter()
            .filter(|name| collector.is_none_or(|collector| collector == **name))
        {
            let cursor = self.cursors.entry(name).or_default();
            *cursor = seq.max(*cursor);
        }
        let by_all = named
            .iter()
            .map(|name| self.cursors.get(name).copied().unwrap_or_default())
            .min();
        let by_all = if collector.is_none() {
            seq
        } else {
            by_all.unwrap_or_default()
        };
        if by_all > self.acknowledged {
            self.acknowledged = by_all;
            // The next list reports the losses before this window.
            self.lost = None;
            self.windows.retain(|seq, _| *seq > by_all);
        }
    }

    /// Notes an acknowledgement that may have been stored or not.
    pub fn perhaps_acknowledge(&mut self, seq: u64) {
        self.perhaps_acknowledged = self.perhaps_acknowledged.max(seq);
        self.lost = None;
    }

    /// Returns one of the windows that clients know.
    pub fn choose(&self, which: u64) -> Option<u64> {
        let count = self.windows.len() as u64;
        self.windows
            .keys()
            .nth(which.checked_rem(count)? as usize)
            .copied()
    }

    /// Notes the answer to a POST or GET that has given a window.
    pub fn answered(&mut self, client: &Windows, body: &[u8], origin: Origin) -> Result<()> {
        let document: Value = serde_json::from_slice(body)?;
        let number = seq(&document);
        let has_interval = self
            .instance
            .as_ref()
            .is_some_and(|instance| instance.kind.has_interval);
        if origin == Origin::Get {
            if has_interval {
                // This window is the newest one. No client has taken it.
                return self.look(client);
            }
            if number <= self.newest {
                return self.given_again(number, body);
            }
        }
        let (list, known) = (self.list(client)?, self.newest);
        for other in list.seqs().into_iter().filter(|other| *other < number) {
            self.learn(client, other)?;
        }
        self.note(number, body, origin)?;
        // On a busy machine, the clock may have closed more windows before this look than the
        // daemon retains.
        if has_interval && list.seqs().first().is_some_and(|first| *first > known + 1) {
            self.open.0 = 0;
        }
        ensure!(
            self.open.0 == 0,
            "{}: window {number} lacks {} packets that had come before",
            self.name,
            self.open.0
        );
        self.look(client)
    }

    /// Notes the answer to a POST without a look at the windows before it, which may be unknown.
    pub fn note_answer(&mut self, body: &[u8]) -> Result<()> {
        let document: Value = serde_json::from_slice(body)?;
        self.note(seq(&document), body, Origin::Post)
    }

    /// Notes a GET that broke off, so that the number of its window is unknown.
    pub fn hung_up(&mut self) {
        for window in self
            .windows
            .values_mut()
            .filter(|window| window.taken == Taken::No)
        {
            window.taken = Taken::Perhaps;
        }
    }

    fn given_again(&mut self, number: u64, body: &[u8]) -> Result<()> {
        let name = self.name;
        ensure!(
            number > self.acknowledged,
            "{name}: window {number} is given although it was acknowledged"
        );
        let window = self
            .windows
            .get_mut(&number)
            .with_context(|| format!("{name}: window {number} is given and not listed"))?;
        ensure!(
            window.taken != Taken::Yes,
            "{name}: window {number} is given again"
        );
        ensure!(
            window.origin != Origin::Post,
            "{name}: window {number} was closed by a POST and is given by a GET"
        );
        ensure!(
            window.body == body,
            "{name}: window {number} is given with another content"
        );
        window.taken = Taken::Yes;
        Ok(())
    }

    fn list(&self, client: &Windows) -> Result<List> {
        client
            .try_list("after=0")
            .with_context(|| format!("the windows of {}", self.name))
    }

    /// Reads the window unless the window is known, or was removed meanwhile.
    fn learn(&mut self, client: &Windows, number: u64) -> Result<()> {
        if number <= self.newest {
            return Ok(());
        }
        let answer = client.try_get(number)?;
        match answer.status {
            200 => self.note(number, &answer.body, Origin::Other),
            // The clock has closed further windows, and retention has removed this one.
            404 => Ok(()),
            status => {
                bail!(
                    "{}: window {number} is listed and is {status}: {}",
                    self.name,
                    answer.text()
                )
            }
        }
    }

    /// Notes a window that is newer than all known ones.
    fn note(&mut self, number: u64, body: &[u8], origin: Origin) -> Result<()> {
        let name = self.name;
        ensure!(
            number > self.newest,
            "{name}: window {number} is closed after window {}",
            self.newest
        );
        let document: Value = serde_json::from_slice(body)?;
        ensure!(
            seq(&document) == number,
            "{name}: window {number} says that it is {}",
            seq(&document)
        );
        if let Some(instance) = &self.instance {
            ensure!(
                document["instance"] == *instance.id,
                "{name}: window {number} is of instance {}, not {}",
                document["instance"],
                instance.id
            );
        }
        let (packets, total) = (packets(&document), total(&document));
        ensure!(
            packets <= self.open.1,
            "{name}: window {number} has {packets} packets of {}",
            self.open.1
        );
        let mut came = packets;
        if let Some(before) = self.total {
            let goes_on = if number == self.newest + 1 {
                total == before + packets
            } else {
                // The windows between the last known window and this one were removed.
                came = total.saturating_sub(before);
                total >= before + packets && came <= self.open.1
            };
            let begins_anew = self.may_begin_anew && total >= packets && total <= self.open.1;
            ensure!(
                goes_on || begins_anew,
                "{name}: the sum of window {number} is {total}, and it has {packets} packets; window {} had {before}",
                self.newest
            );
            self.may_begin_anew &= goes_on;
            if !goes_on {
                came = packets;
            }
        }
        self.open = (
            self.open.0.saturating_sub(came),
            self.open.1 - came.min(self.open.1),
        );
        (self.newest, self.total) = (number, Some(total));
        let taken = if origin == Origin::Get {
            Taken::Yes
        } else {
            Taken::No
        };
        self.windows.insert(
            number,
            Window {
                body: body.to_vec(),
                origin,
                taken,
            },
        );
        Ok(())
    }
}
