//! The points of a chart of history. Their times are multiples of a step since 1970.

use std::time::Duration;

use crate::engine::series::query::ChartQuery;

/// The most points of a chart, and the number of points if the request has no `step`.
const MOST: i64 = 1_000;
const USUAL: i64 = 300;
/// The range in seconds if the request has no `from`.
const DAY: i64 = 86_400;
/// The possible steps if the request has no `step`, in seconds; multiples of a day follow.
const STEPS: [i64; 12] = [
    15, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 43_200,
];
/// The time in seconds by which a query is later than its point. Aligned windows end some
/// milliseconds late, and some servers count a sample at the edge of two ranges in both ranges.
/// With this delay, no window ends at an edge.
pub const LATE: f64 = 0.437;

/// The points of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySteps {
    /// The end of the first point, in seconds since 1970.
    pub first: i64,
    /// The seconds from one point to the next.
    pub step: i64,
    pub count: i64,
}

impl HistorySteps {
    /// Finds the whole steps between the ends of a query. No step is shorter than `interval`, the
    /// time between two windows. An error names the possible steps.
    pub fn new(query: &ChartQuery, now: i128, interval: Option<Duration>) -> Result<Self, String> {
        let seconds =
            |time: i128| i64::try_from(time.div_euclid(1_000_000_000)).unwrap_or_default();
        // No server has samples outside of these bounds, and some servers refuse longer ranges.
        let to = query
            .to
            .map_or(seconds(now), seconds)
            .min(seconds(now).saturating_add(DAY));
        let from = query.from.map_or(to.saturating_sub(DAY), seconds).max(0);
        let step = match query.step {
            Some(step) if step.subsec_nanos() > 0 => {
                return Err("step: points of history are whole seconds apart".to_owned());
            }
            Some(step) => i64::try_from(step.as_secs()).unwrap_or(i64::MAX),
            None => {
                let interval = interval.map_or(0, |interval| interval.as_secs_f64().ceil() as i64);
                usual((to.saturating_sub(from) / USUAL).max(interval))
            }
        };
        let (first, last) = (from.div_euclid(step) + 1, to.div_euclid(step));
        let count = last - first + 1;
        if count > MOST {
            let least = (to - from) / MOST + 1;
            return Err(format!(
                "step would give {count} points, and the limit is {MOST}; take step={least}s or a shorter time"
            ));
        }
        if count < 1 {
            return Err(format!(
                "from and to have no whole step of {step} s between them; take a longer time"
            ));
        }
        Ok(Self {
            first: first * step,
            step,
            count,
        })
    }

    /// Returns the ends of the points, in seconds since 1970.
    pub fn ends(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |point| self.first + point * self.step)
    }

    /// Returns the whole range in seconds.
    pub const fn range(self) -> i64 {
        self.count * self.step
    }

    /// Returns the index of the point to which this time belongs.
    pub fn point(self, time: f64) -> Option<usize> {
        let place = ((time - self.first as f64) / self.step as f64).round();
        (0.0..self.count as f64)
            .contains(&place)
            .then_some(place as usize)
    }
}

/// Returns the shortest usual step that is at least `least`.
fn usual(least: i64) -> i64 {
    let known = STEPS.into_iter().find(|step| *step >= least);
    known.unwrap_or_else(|| (least + DAY - 1) / DAY * DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(hours: i64, step: Option<u64>, interval: u64) -> Result<HistorySteps, String> {
        let at = |second: i64| Some(i128::from(second) * 1_000_000_000);
        let query = ChartQuery {
            from: at(1_000_003_600 - 3_600 * hours),
            to: at(1_000_003_600),
            step: step.map(Duration::from_secs),
            ..ChartQuery::default()
        };
        HistorySteps::new(
            &query,
            1_000_003_600_000_000_000,
            Some(Duration::from_secs(interval)),
        )
    }

    #[test]
    fn points_are_multiples_of_a_step() {
        let day = steps(24, None, 1).unwrap();
        assert_eq!((day.step, day.count, day.first % 300), (300, 288, 0));
        assert_eq!(
            steps(1, None, 60).unwrap().step,
            60,
            "a point has at least a window"
        );
        assert_eq!(steps(24 * 365, None, 1).unwrap().step, 2 * DAY);
        let hour = steps(1, Some(600), 1).unwrap();
        assert_eq!(
            (hour.count, hour.range(), hour.ends().last()),
            (6, 3_600, Some(1_000_003_200))
        );
        assert_eq!(hour.point(hour.first as f64 + 600.0 + LATE), Some(1));
        assert_eq!(
            (hour.point(hour.first as f64 - 600.0), hour.point(2e9)),
            (None, None)
        );
    }

    #[test]
    fn too_many_and_too_few_points_are_refused() {
        let error = steps(24, Some(10), 1).unwrap_err();
        assert!(
            error.contains("8640 points") && error.contains("step=87s"),
            "{error}"
        );
        let longest = Some(i64::MAX.cast_unsigned());
        assert!(
            steps(1_000_000, longest, 1)
                .unwrap_err()
                .contains("take a longer time")
        );
    }
}
