//! Measurements of a process's memory and processor time, and statistics of samples.

use std::fs;

use anyhow::{Context, Result};

/// The resident memory of a process in KiB: all of it, the part outside of files, and the peak of
/// all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    pub total_kib: u64,
    pub anonymous_kib: u64,
    pub peak_kib: u64,
}

impl Resident {
    pub fn of(pid: u32) -> Result<Self> {
        let status =
            fs::read_to_string(format!("/proc/{pid}/status")).context("read a process's status")?;
        let field = |name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            number.with_context(|| format!("no {name} in a process's status"))
        };
        Ok(Self {
            total_kib: field("VmRSS")?,
            anonymous_kib: field("RssAnon")?,
            peak_kib: field("VmHWM")?,
        })
    }

    /// Sets the peak of a process to its present memory.
    pub fn reset_peak(pid: u32) -> Result<()> {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("reset a process's peak")
    }
}

/// The processor time of a process in seconds, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTime {
    pub own: f64,
    /// The time of children that have ended.
    pub children: f64,
}

impl ProcessorTime {
    pub fn of(pid: u32) -> Result<Self> {
        /// `USER_HZ`, the same on every Linux.
        const TICKS: f64 = 100.0;
        let stat =
            fs::read_to_string(format!("/proc/{pid}/stat")).context("read a process's times")?;
        // The second field, in brackets, is a name that may contain anything.
        let (_, fields) = stat
            .rsplit_once(')')
            .context("no name in a process's times")?;
        let ticks: Vec<f64> = fields
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|field| field.parse().ok())
            .collect();
        let [user, system, children_user, children_system] = ticks[..] else {
            anyhow::bail!("too few fields in a process's times");
        };
        Ok(Self {
            own: (user + system) / TICKS,
            children: (children_user + children_system) / TICKS,
        })
    }
}

/// Returns the processor time in seconds of all threads that live. It is exact to the nanosecond up
/// to the last tick of each thread.
pub fn processor_seconds(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("list a process's threads")? {
        let Ok(stat) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += stat
            .split(' ')
            .next()
            .and_then(|field| field.parse::<f64>().ok())
            .context("schedstat")?;
    }
    Ok(nanoseconds / 1e9)
}

/// Returns the processor time in seconds of this process, with that of threads that have ended.
pub fn own_processor_seconds() -> Result<f64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live structure that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } < 0 {
        return Err(std::io::Error::last_os_error()).context("ask for this process's time");
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Raises the priority of this thread, and of the threads and processes that it will start, over
/// all others of this machine, so that other work does not disturb measurements.
pub fn come_first() -> Result<()> {
    // SAFETY: takes numbers only; 0 is this thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -19) } < 0 {
        return Err(std::io::Error::last_os_error()).context("raise the priority");
    }
    Ok(())
}

/// The measured values of one quantity.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value below which this part of all values lies, interpolated.
    ///
    /// # Panics
    /// Panics if the sample is empty.
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

    /// Returns an interval that contains the median with a confidence of at least 95 %, by order
    /// statistics, for any distribution. `None` for fewer than six values, which are too few for
    /// any interval.
    pub fn median_interval(&self) -> Option<(f64, f64)> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let len = sorted.len();
        let rank = if len > 500 {
            (len as f64 / 2.0 - 0.98 * (len as f64).sqrt()) as usize
        } else {
            // The probability that the median is below the `rank`th value is that of fewer than
            // `rank` heads in `len` tosses of a coin.
            let (mut rank, mut heads, mut fewer) = (0, 0.5_f64.powi(len as i32), 0.0);
            while fewer + heads <= 0.025 && rank < len {
                fewer += heads;
                heads *= (len - rank) as f64 / (rank + 1) as f64;
                rank += 1;
            }
            rank
        };
        let lower = rank.checked_sub(1)?;
        Some((*sorted.get(lower)?, sorted[len - 1 - lower]))
    }

    /// Returns `median [confidence interval of 95 %]`.
    pub fn median_with_interval(&self, decimals: usize) -> String {
        let median = self.median();
        match self.median_interval() {
            Some((lower, upper)) => {
                format!("{median:.decimals$} [{lower:.decimals$}, {upper:.decimals$}]")
            }
            None => format!("{median:.decimals$} (too few)"),
        }
    }

    /// Returns `median [lower quartile, upper quartile]`.
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
        assert_eq!(
            (sample.quantile(0.0), sample.median(), sample.quantile(1.0)),
            (1.0, 2.5, 4.0)
        );
        assert_eq!(sample.summary(2), "2.50 [1.75, 3.25]");
    }

    #[test]
    fn confidence_intervals_of_the_median() {
        let first = |len: u32| {
            (1..=len)
                .map(f64::from)
                .collect::<Sample>()
                .median_interval()
        };
        assert_eq!(first(5), None);
        // The ranks are those in tables of the sign test.
        assert_eq!(first(6), Some((1.0, 6.0)));
        assert_eq!(first(10), Some((2.0, 9.0)));
        assert_eq!(first(20), Some((6.0, 15.0)));
        assert_eq!(first(100), Some((40.0, 61.0)));
    }

    #[test]
    fn this_process_has_memory_and_has_used_time() {
        let resident = Resident::of(std::process::id()).unwrap();
        assert!(
            resident.total_kib > resident.anonymous_kib && resident.anonymous_kib > 0,
            "{resident:?}"
        );
        assert!(ProcessorTime::of(std::process::id()).unwrap().own < 3600.0);
    }
}
