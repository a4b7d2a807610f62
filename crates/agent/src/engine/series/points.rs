//! The points of a chart: each window belongs to the point into which its end falls.

use std::time::Duration;

use jiff::Timestamp;
use twinprobe_ebpf_common::window::WindowEntry;

/// The most points of a chart.
pub const MOST_POINTS: usize = 2_000;

/// The points, and their windows.
#[derive(Debug, Default)]
pub struct Points {
    /// The end of each point, in nanoseconds since 1970.
    pub ends: Vec<i128>,
    /// The windows, oldest first, each with its point. The last window before the first point has
    /// `None`.
    pub windows: Vec<(WindowEntry, Option<usize>)>,
}

/// Returns a time of a window in nanoseconds since 1970.
pub fn nanoseconds(time: &str) -> Option<i128> {
    time.parse().ok().map(Timestamp::as_nanosecond)
}

impl Points {
    /// Selects the windows that end after `from` and not after `to`. Without a step, each window is
    /// a point, unless there are too many windows.
    pub fn new(
        entries: Vec<WindowEntry>,
        (from, to): (Option<i128>, Option<i128>),
        step: Option<Duration>,
    ) -> Result<Self, String> {
        let mut before = None;
        let mut within = Vec::new();
        for entry in entries {
            let Some(end) = nanoseconds(&entry.end) else {
                continue;
            };
            if from.is_some_and(|from| end <= from) {
                before = Some(entry);
            } else if to.is_none_or(|to| end <= to) {
                within.push((entry, end));
            }
        }
        let ends = || within.iter().map(|(_, end)| *end);
        // If the clock was set back, a window may end at an earlier time than the window before it.
        let (Some(first), Some(last)) = (ends().min(), ends().max()) else {
            return Ok(Self::default());
        };
        let windows = before.into_iter().map(|entry| (entry, None));
        if step.is_none() && within.len() <= MOST_POINTS {
            let ends = ends().collect();
            let within = within
                .into_iter()
                .enumerate()
                .map(|(point, (entry, _))| (entry, Some(point)));
            return Ok(Self {
                ends,
                windows: windows.chain(within).collect(),
            });
        }
        let widest = (last - first) / (MOST_POINTS as i128 - 1) + 1;
        let step = step.map_or(widest, |step| step.as_nanos().cast_signed());
        let number = |end: i128| (end + step - 1).div_euclid(step);
        let count = number(last) - number(first) + 1;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST_POINTS).ok_or_else(|| {
            let least = widest.div_euclid(1_000_000_000) + 1;
            format!("step would give {count} points, and the limit is {MOST_POINTS}; take step={least}s or a shorter time")
        })?;
        let ends = (0..count as i128)
            .map(|point| (number(first) + point) * step)
            .collect();
        let point = |end| usize::try_from(number(end) - number(first)).ok();
        let within = within.into_iter().map(|(entry, end)| (entry, point(end)));
        Ok(Self {
            ends,
            windows: windows.chain(within).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(ends: &[u64]) -> Vec<WindowEntry> {
        let time = |second| Timestamp::from_second(second).unwrap().to_string();
        let window = |(seq, end): (u64, &u64)| WindowEntry {
            seq,
            start: time(end.cast_signed() - 1),
            end: time(end.cast_signed()),
            bytes: 0,
        };
        (1..).zip(ends).map(window).collect()
    }

    fn points(points: &Points) -> Vec<(u64, Option<usize>)> {
        points
            .windows
            .iter()
            .map(|(window, point)| (window.seq, *point))
            .collect()
    }

    #[test]
    fn each_window_is_a_point_or_belongs_to_a_step() {
        let all = windows(&[10, 11, 12, 19, 20, 21]);
        let range = (Some(11_000_000_000), Some(20_000_000_000));
        let each = Points::new(all.clone(), range, None).unwrap();
        assert_eq!(
            points(&each),
            [(2, None), (3, Some(0)), (4, Some(1)), (5, Some(2))]
        );
        let steps = Points::new(all, range, Some(Duration::from_secs(4))).unwrap();
        assert_eq!(steps.ends, [12_000_000_000, 16_000_000_000, 20_000_000_000]);
        assert_eq!(
            points(&steps),
            [(2, None), (3, Some(0)), (4, Some(2)), (5, Some(2))]
        );
    }

    #[test]
    fn there_are_never_more_points_than_possible() {
        let all = windows(&(1..=5_000).collect::<Vec<_>>());
        let chart = Points::new(all.clone(), (None, None), None).unwrap();
        assert!(
            (1_000..=MOST_POINTS).contains(&chart.ends.len()),
            "{}",
            chart.ends.len()
        );
        let error =
            Points::new(all.clone(), (None, None), Some(Duration::from_secs(2))).unwrap_err();
        assert!(
            error.contains("2500 points") && error.contains("step=3s"),
            "{error}"
        );
        assert_eq!(
            Points::new(all, (None, Some(0)), None).unwrap().ends,
            [0_i128; 0]
        );
    }
}
