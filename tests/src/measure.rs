//! What a process costs, and samples of measurements.

use std::fs;

use anyhow::{Context, Result};

/// Resident memory of a process in KiB: all of it, what is not backed by files, and the most there ever was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    pub total_kib: u64,
    pub anonymous_kib: u64,
    pub peak_kib: u64,
}

impl Resident {
    pub fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read a process's status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            number.with_context(|| format!("no {name} in a process's status"))
        };
        Ok(Self { total_kib: field("VmRSS")?, anonymous_kib: field("RssAnon")?, peak_kib: field("VmHWM")? })
    }

    /// Forgets the peak of a process: from now on it is what there is.
    pub fn reset_peak(pid: u32) -> Result<()> {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("reset a process's peak")
    }
}

/// Processor time in seconds, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTime {
    pub own: f64,
    /// Of children that have ended.
    pub children: f64,
}

impl ProcessorTime {
    pub fn of(pid: u32) -> Result<Self> {
        /// `USER_HZ`, the same on every Linux.
        const TICKS: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read a process's times")?;
        // The second field, in brackets, is a name that may contain anything.
        let (_, fields) = stat.rsplit_once(')').context("no name in a process's times")?;
        let ticks: Vec<f64> =
            fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
        let [user, system, children_user, children_system] = ticks[..] else {
            anyhow::bail!("too few fields in a process's times");
        };
        Ok(Self { own: (user + system) / TICKS, children: (children_user + children_system) / TICKS })
    }
}

/// Measurements of one thing.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value below which this part of all values lies; interpolated.
    ///
    /// # Panics
    /// If nothing was measured.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = part * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        below + (above - below) * at.fract()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// `median [lower quartile, upper quartile]`.
    pub fn summary(&self, decimals: usize) -> String {
        let [lower, median, upper] = [0.25, 0.5, 0.75].map(|part| self.quantile(part));
        format!("{median:.decimals$} [{lower:.decimals$}, {upper:.decimals$}]")
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let sample: Sample = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        assert_eq!((sample.quantile(0.0), sample.median(), sample.quantile(1.0)), (1.0, 2.5, 4.0));
        assert_eq!(sample.summary(2), "2.50 [1.75, 3.25]");
    }

    #[test]
    fn this_process_has_memory_and_has_used_time() {
        let resident = Resident::of(std::process::id()).unwrap();
        assert!(resident.total_kib > resident.anonymous_kib && resident.anonymous_kib > 0, "{resident:?}");
        assert!(ProcessorTime::of(std::process::id()).unwrap().own < 3600.0);
    }
}
