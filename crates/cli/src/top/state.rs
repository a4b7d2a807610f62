//! The state that the live view shows. Nothing here draws or asks a daemon.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use twinprobe_api::ProbeStatus;

use crate::commands::deploy::outcome::places;
use crate::top::feed::{Look, PlaceCounts};
use crate::top::keys::{Action, action};
use crate::top::names::LiveNames;
use crate::top::page::{samples, scheduled};
use crate::top::series::{PageTimes, SeriesSet, TopSeries, push};

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);
/// The nanoseconds of a second, which a CPU has for packets.
const SECOND: f64 = 1e9;

/// The most entries of a screen.
const SHOWN: usize = 128;

/// The columns by which probes are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Packets,
    Time,
    Share,
    Name,
}

impl Column {
    const fn next(self) -> Self {
        match self {
            Self::Packets => Self::Time,
            Self::Time => Self::Share,
            Self::Share => Self::Name,
            Self::Name => Self::Packets,
        }
    }
}

/// A probe as a row.
#[derive(Clone, Debug, Default)]
pub struct ProbeRow {
    pub name: String,
    pub state: String,
    pub reason: Option<String>,
    pub places: String,
    pub packets: Option<f64>,
    /// Nanoseconds per packet, and whether the running probe was measured.
    pub time: Option<(f64, bool)>,
    /// The last numbers of packets per second.
    pub history: VecDeque<u64>,
    pub series: SeriesSet,
    /// The packets that its interfaces have seen, if they are interfaces of this machine.
    seen: Option<u64>,
    /// True if only requests close its windows.
    has_no_interval: bool,
}

impl ProbeRow {
    /// The probe's share of one CPU.
    pub fn share(&self) -> Option<f64> {
        Some(self.packets? * self.time?.0 / SECOND)
    }

    /// Tells whether nothing is counted per second, since only requests close the probe's windows.
    pub fn waits(&self) -> bool {
        self.has_no_interval
            && self.series.packets().is_none()
            && self.series.iter().next().is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopView {
    Probes,
    /// All entries of the selected probe.
    Entries,
}

/// The state of the view.
#[derive(Debug)]
pub struct TopState {
    pub server: String,
    probes: BTreeMap<String, ProbeRow>,
    pub view: TopView,
    pub sort: Column,
    pub reversed: bool,
    pub filter: String,
    /// True while letters go into the filter.
    pub typing: bool,
    pub paused: bool,
    pub help: bool,
    pub interval: Duration,
    /// The names of addresses; `None` unless they were asked for.
    pub names: Option<LiveNames>,
    /// The name of the selected probe.
    selected: Option<String>,
    /// The first visible line of the entries.
    pub scroll: usize,
    /// The reason why the last look failed.
    pub error: Option<String>,
    /// The packets that passed each place with a probe, at the last look.
    places: Option<PlaceCounts>,
    /// The packets per second at these places.
    passed: Option<f64>,
}

impl TopState {
    pub fn new(server: String, interval: Duration) -> Self {
        Self {
            server,
            probes: BTreeMap::new(),
            view: TopView::Probes,
            sort: Column::Packets,
            reversed: false,
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            interval,
            names: None,
            selected: None,
            scroll: 0,
            error: None,
            places: None,
            passed: None,
        }
    }

    /// Takes the answer of a daemon. A paused view stays unchanged.
    pub fn look(&mut self, look: Result<Look, String>) {
        let look = match look {
            Ok(look) => look,
            Err(error) => return self.error = Some(error),
        };
        self.error = None;
        if self.paused {
            return;
        }
        let mut by_probe: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        let all: Vec<_> = samples(&look.page).collect();
        for sample in &all {
            if let Some(probe) = sample.labels.get("probe") {
                by_probe.entry(probe).or_default().push(sample.clone());
            }
        }
        let now = look.places();
        self.passed = match (&self.places, &now, look.elapsed) {
            (Some(before), Some(now), Some(elapsed)) => {
                Some(grown(before, now) / elapsed.as_secs_f64().max(0.001))
            }
            _ => None,
        };
        self.places = now;
        self.probes
            .retain(|name, _| look.probes.iter().any(|probe| probe.name == *name));
        let ends = scheduled(&look.page);
        for status in &look.probes {
            let row = self.probes.entry(status.name.clone()).or_default();
            let samples = by_probe.remove(status.name.as_str()).unwrap_or_default();
            let times = PageTimes {
                elapsed: look.elapsed,
                ends: ends.get(&status.name).copied(),
            };
            row.series.update(&samples, status.config.as_ref(), times);
            row.update(status, &look);
        }
        if self
            .selected
            .as_ref()
            .is_none_or(|name| !self.probes.contains_key(name))
        {
            self.selected = self.rows().first().map(|row| row.name.clone());
            self.view = TopView::Probes;
        }
    }

    /// Returns the addresses on the screen that need a name now.
    pub fn unnamed(&mut self) -> Vec<String> {
        let Some(mut names) = self.names.take() else {
            return Vec::new();
        };
        let shown = self
            .entries()
            .into_iter()
            .skip(self.scroll)
            .take(SHOWN)
            .map(|series| &*series.name);
        let wanted = names.wanted(shown, Instant::now());
        self.names = Some(names);
        wanted
    }

    /// Carries out the action of a key. Returns false if the view must end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => _ = self.filter.pop(),
                KeyCode::Char(letter) if action(key) != Some(Action::Quit) || letter == 'q' => {
                    self.filter.push(letter);
                }
                KeyCode::Char(_) => return false,
                _ => {}
            }
            self.scroll = 0;
            return true;
        }
        let Some(action) = action(key) else {
            return true;
        };
        // Any key closes the help.
        if std::mem::take(&mut self.help) && action != Action::Quit {
            return true;
        }
        match action {
            Action::Quit => return false,
            Action::Help => self.help = true,
            Action::Pause => self.paused = !self.paused,
            Action::Filter => (self.typing, self.filter) = (true, String::new()),
            Action::Reverse => self.reversed = !self.reversed,
            Action::Sort => self.sort = self.sort.next(),
            Action::Faster => self.interval = (self.interval / 2).max(SHORTEST),
            Action::Slower => self.interval = (self.interval * 2).min(LONGEST),
            Action::Open => {
                (self.view, self.scroll, self.filter) = (TopView::Entries, 0, String::new());
            }
            Action::Back if self.view == TopView::Probes => self.filter.clear(),
            Action::Back => (self.view, self.filter) = (TopView::Probes, String::new()),
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
        }
        true
    }

    fn step(&mut self, by: isize) {
        if self.view == TopView::Entries {
            let last = self.entries().len().saturating_sub(1);
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
            return;
        }
        let names: Vec<String> = self.rows().iter().map(|row| row.name.clone()).collect();
        let at = names
            .iter()
            .position(|name| Some(name) == self.selected.as_ref());
        let next = at.map_or(0, |at| {
            at.saturating_add_signed(by)
                .min(names.len().saturating_sub(1))
        });
        self.selected = names.get(next).cloned();
    }

    /// The probes that are shown, in their order.
    pub fn rows(&self) -> Vec<&ProbeRow> {
        let filter = if self.view == TopView::Probes {
            self.filter.as_str()
        } else {
            ""
        };
        let mut rows: Vec<&ProbeRow> = self
            .probes
            .values()
            .filter(|row| row.name.contains(filter))
            .collect();
        let number = |row: &ProbeRow| match self.sort {
            Column::Packets => row.packets,
            Column::Time => row.time.map(|(time, _)| time),
            Column::Share => row.share(),
            Column::Name => None,
        };
        rows.sort_by(|a, b| {
            let by_number = number(b)
                .unwrap_or(-1.0)
                .total_cmp(&number(a).unwrap_or(-1.0));
            by_number.then_with(|| a.name.cmp(&b.name))
        });
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    pub fn selected(&self) -> Option<&ProbeRow> {
        self.probes.get(self.selected.as_ref()?)
    }

    /// The entries of the selected probe, the largest rates first.
    pub fn entries(&self) -> Vec<&TopSeries> {
        let filter = if self.view == TopView::Entries {
            self.filter.as_str()
        } else {
            ""
        };
        let all = self
            .selected()
            .into_iter()
            .flat_map(|row| row.series.iter());
        let mut entries: Vec<&TopSeries> =
            all.filter(|series| series.name.contains(filter)).collect();
        entries.sort_by(|a, b| {
            let ((rate, value), (other, its)) = (b.rank(), a.rank());
            rate.total_cmp(&other)
                .then(value.total_cmp(&its))
                .then_with(|| a.name.cmp(&b.name))
        });
        if self.sort == Column::Name {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if self.reversed {
            entries.reverse();
        }
        entries
    }

    /// The packets per second, and the share of a CPU that all probes take. A packet counts once at
    /// each interface and direction, for any number of probes and hooks that see it. The counters
    /// of the interfaces give this number. For another machine they are not known, and the probe
    /// with the highest count represents all.
    pub fn total(&self) -> (f64, f64) {
        let most = || {
            self.probes
                .values()
                .filter_map(|row| row.packets)
                .max_by(f64::total_cmp)
        };
        let packets = self.passed.or_else(most).unwrap_or_default();
        (
            packets,
            self.probes
                .values()
                .filter_map(ProbeRow::share)
                .fold(0.0, |sum, share| sum + share),
        )
    }
}

/// The packets by which places have grown.
fn grown(before: &PlaceCounts, now: &PlaceCounts) -> f64 {
    let grown = now
        .iter()
        .filter_map(|(place, packets)| Some(packets.saturating_sub(*before.get(place)?)));
    grown.sum::<u64>() as f64
}

impl ProbeRow {
    fn update(&mut self, status: &ProbeStatus, look: &Look) {
        (self.name, self.state) = (status.name.clone(), status.state.to_string());
        (self.reason, self.places) = (status.reason.clone(), places(status));
        let live = status
            .cost
            .iter()
            .flat_map(|cost| &cost.live)
            .filter(|live| live.packets > 0);
        let (packets, time) = live.fold((0.0, 0.0), |(packets, time), live| {
            (
                packets + live.packets as f64,
                time + live.packets as f64 * live.ns_per_packet,
            )
        });
        let tried = status
            .cost
            .iter()
            .flat_map(|cost| cost.tried.directions.values());
        let tried = tried
            .filter_map(|cost| Some(cost.run.as_ref()?.ns_per_packet as f64))
            .max_by(f64::total_cmp);
        self.time = if packets > 0.0 {
            Some((time / packets, true))
        } else {
            tried.map(|tried| (tried, false))
        };
        let seen = look.seen(status);
        let grown = seen
            .zip(self.seen)
            .map(|(now, before)| now.saturating_sub(before) as f64);
        let of_interfaces = grown
            .zip(look.elapsed)
            .map(|(grown, elapsed)| grown / elapsed.as_secs_f64().max(0.001));
        self.seen = seen;
        self.packets = self.series.packets().or(of_interfaces);
        let window = status
            .config
            .as_ref()
            .and_then(|config| config.window.as_ref());
        self.has_no_interval = window.is_none_or(|window| window.interval.is_none());
        push(&mut self.history, self.packets);
    }
}

#[cfg(test)]
mod tests;
