//! Comparisons of ways to do the same work: in turns within one run, beside a comparison of a way
//! with itself.

use anyhow::Result;
use twinprobe_tests::measure::Sample;
use twinprobe_tests::random::Random;

/// The number of resamples of a sample (bootstrap).
const DRAWN: usize = 2_000;
/// Half of the probability outside of a confidence interval of 95 %.
const TAIL: f64 = 0.025;

/// A value and its confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// Estimates the median of the population of a sample, by the bootstrap: medians of samples
    /// that are drawn again from the values, with replacement. Equal values give equal intervals.
    ///
    /// # Panics
    /// Panics if the sample is empty.
    pub fn of(sample: &Sample) -> Self {
        let values = sample.values();
        let mut random = Random::seeded(0x5eed);
        let medians: Sample = (0..DRAWN)
            .map(|_| {
                let drawn =
                    (0..values.len()).map(|_| values[random.below(values.len() as u64) as usize]);
                drawn.collect::<Sample>().median()
            })
            .collect();
        Self {
            value: sample.median(),
            low: medians.quantile(TAIL),
            high: medians.quantile(1.0 - TAIL),
        }
    }

    /// Estimates the ratio of the median of `to` to the median of `of`. Both have values of the
    /// same rounds, and the bootstrap draws rounds as pairs. In contrast to the median of the
    /// rounds' ratios it tolerates a round in which `to` is next to 0.
    ///
    /// # Panics
    /// Panics if a sample is empty, or has fewer values than the other.
    pub fn of_ratio(of: &Sample, to: &Sample) -> Self {
        let (of_values, to_values) = (of.values(), to.values());
        assert_eq!(
            of_values.len(),
            to_values.len(),
            "values of the same rounds"
        );
        let mut random = Random::seeded(0x5eed);
        let ratios: Sample = (0..DRAWN)
            .map(|_| {
                let count = of_values.len();
                let drawn: Vec<_> = (0..count)
                    .map(|_| random.below(count as u64) as usize)
                    .collect();
                let median = |values: &[f64]| {
                    drawn
                        .iter()
                        .map(|&at| values[at])
                        .collect::<Sample>()
                        .median()
                };
                median(of_values) / median(to_values)
            })
            .collect();
        let value = of.median() / to.median();
        Self {
            value,
            low: ratios.quantile(TAIL),
            high: ratios.quantile(1.0 - TAIL),
        }
    }

    /// Returns `by` divided by this estimate, for example packets per second from the time of a
    /// packet.
    #[must_use]
    pub fn inverse(&self, by: f64) -> Self {
        Self {
            value: by / self.value,
            low: by / self.high,
            high: by / self.low,
        }
    }

    /// Returns `value [low, high]`.
    pub fn show(&self, decimals: usize) -> String {
        let Self { value, low, high } = self;
        format!("{value:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
    }

    /// Tells whether the goal of at most `limit` is met (`yes`) or missed (`**no**`), or is open
    /// because the interval contains `limit`.
    pub fn at_most(&self, limit: f64) -> &'static str {
        if self.high <= limit {
            "yes"
        } else if self.low > limit {
            "**no**"
        } else {
            "not resolved"
        }
    }

    /// Tells whether the goal of at least `limit` is met, in the words of [`Estimate::at_most`].
    pub fn at_least(&self, limit: f64) -> &'static str {
        if self.low >= limit {
            "yes"
        } else if self.high < limit {
            "**no**"
        } else {
            "not resolved"
        }
    }
}

/// Returns the ratio of another way's time to the time of `way`, both without a common floor, with
/// this many decimals. If the difference to the floor is lost in noise, there is no ratio.
///
/// # Panics
/// Panics if a sample is empty, or has fewer values than the others.
pub fn show_ratio_above(of: &Sample, way: &Sample, floor: &Sample, decimals: usize) -> String {
    let least = above(way, floor);
    if Estimate::of(&least).low <= 0.0 {
        return "not resolved".to_owned();
    }
    Estimate::of_ratio(&above(of, floor), &least).show(decimals)
}

/// Returns the additional time of a way compared with a floor, in each round.
pub fn above(way: &Sample, floor: &Sample) -> Sample {
    way.values()
        .iter()
        .zip(floor.values())
        .map(|(value, floor)| value - floor)
        .collect()
}

/// Measures `WAYS` ways in turns. Each round begins with the next way. Returns the values of each
/// way.
pub fn in_turns<const WAYS: usize>(
    rounds: u64,
    mut way: impl FnMut(usize) -> Result<f64>,
) -> Result<[Sample; WAYS]> {
    let mut samples = [const { Vec::new() }; WAYS];
    for round in 0..rounds as usize {
        for turn in 0..WAYS {
            let which = (round + turn) % WAYS;
            samples[which].push(way(which)?);
        }
    }
    Ok(samples.map(|values: Vec<f64>| values.into_iter().collect()))
}

/// Two ways that are measured in turns, the first one twice in each round.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    pub base: Sample,
    pub other: Sample,
    ratio: Sample,
    null_ratio: Sample,
    difference: Sample,
    null_difference: Sample,
}

/// The variant that is measured next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Base,
    Other,
}

impl Comparison {
    /// Measures `rounds` times three values, the second way once and the first way twice, in an
    /// order that changes.
    pub fn measure(rounds: u64, mut way: impl FnMut(Way) -> Result<f64>) -> Result<Self> {
        const ORDERS: [[usize; 3]; 3] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
        const WAYS: [Way; 3] = [Way::Base, Way::Other, Way::Base];
        let mut all = Self::default();
        for round in 0..rounds {
            let mut values = [0.0; 3];
            for which in ORDERS[round as usize % ORDERS.len()] {
                values[which] = way(WAYS[which])?;
            }
            let [base, other, again] = values;
            all.add(base, other, again);
        }
        Ok(all)
    }

    fn add(&mut self, base: f64, other: f64, again: f64) {
        self.base.add(base);
        self.other.add(other);
        self.ratio.add(other / base);
        self.null_ratio.add(again / base);
        self.difference.add(other - base);
        self.null_difference.add(again - base);
    }

    /// Returns the ratio of the second way's value to the first way's.
    pub fn ratio(&self) -> Estimate {
        Estimate::of(&self.ratio)
    }

    /// Returns the ratio of the first way to itself. Only noise of the machine moves this ratio
    /// away from 1. A difference between two ways below this noise is invisible.
    pub fn null_ratio(&self) -> Estimate {
        Estimate::of(&self.null_ratio)
    }

    /// Returns the second way's value less the first way's.
    pub fn difference(&self) -> Estimate {
        Estimate::of(&self.difference)
    }

    /// Returns the difference of the first way to itself, as [`Comparison::null_ratio`].
    pub fn null_difference(&self) -> Estimate {
        Estimate::of(&self.null_difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_median_and_narrows_with_more_values() {
        let spread = |count: u32| -> Sample { (0..count).map(|n| f64::from(n % 10)).collect() };
        let (few, many) = (Estimate::of(&spread(10)), Estimate::of(&spread(1_000)));
        for estimate in [few, many] {
            assert!(
                estimate.low <= estimate.value && estimate.value <= estimate.high,
                "{estimate:?}"
            );
        }
        assert!(
            many.high - many.low < few.high - few.low,
            "{few:?} {many:?}"
        );
        assert_eq!(Estimate::of(&spread(10)), few);
    }

    #[test]
    fn a_goal_inside_of_the_interval_is_open() {
        let estimate = Estimate {
            value: 1.0,
            low: 0.9,
            high: 1.1,
        };
        assert_eq!(
            [0.8, 1.0, 1.2].map(|limit| estimate.at_most(limit)),
            ["**no**", "not resolved", "yes"]
        );
        assert_eq!(
            [0.8, 1.0, 1.2].map(|limit| estimate.at_least(limit)),
            ["yes", "not resolved", "**no**"]
        );
    }

    #[test]
    fn a_ratio_is_that_of_medians_of_the_same_rounds() {
        let sample = |values: &[f64]| values.iter().copied().collect::<Sample>();
        // Noise doubles all values of a round, and the ratio does not contain it.
        let ratio = Estimate::of_ratio(&sample(&[20.0, 40.0, 20.0]), &sample(&[2.0, 4.0, 2.0]));
        assert_eq!(
            ratio,
            Estimate {
                value: 10.0,
                low: 10.0,
                high: 10.0
            }
        );
        assert_eq!(
            Estimate {
                value: 50.0,
                low: 40.0,
                high: 100.0
            }
            .inverse(1e3),
            Estimate {
                value: 20.0,
                low: 10.0,
                high: 25.0
            }
        );
    }

    #[test]
    fn a_ratio_above_a_floor_is_of_what_is_above_it_and_above_the_noise() {
        let sample = |values: &[f64]| values.iter().copied().collect::<Sample>();
        let (floor, of) = (sample(&[10.0, 20.0, 10.0]), sample(&[40.0, 50.0, 40.0]));
        assert_eq!(above(&of, &floor).values(), [30.0; 3]);
        assert_eq!(
            show_ratio_above(&of, &sample(&[13.0, 23.0, 13.0]), &floor, 1),
            "10.0 [10.0, 10.0]"
        );
        assert_eq!(
            show_ratio_above(&of, &sample(&[9.0, 23.0, 13.0]), &floor, 1),
            "not resolved"
        );
    }

    #[test]
    fn ways_take_turns_and_none_is_always_the_first() -> Result<()> {
        let mut calls = Vec::new();
        let [one, two, three] = in_turns(3, |which| {
            calls.push(which);
            Ok(which as f64)
        })?;
        assert_eq!(calls, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(
            [one, two, three].map(|sample| sample.values().to_vec()),
            [[0.0; 3], [1.0; 3], [2.0; 3]]
        );
        Ok(())
    }

    #[test]
    fn a_way_is_compared_with_the_other_and_with_itself() -> Result<()> {
        let mut calls = Vec::new();
        let compared = Comparison::measure(6, |way| {
            calls.push(way);
            Ok(if way == Way::Base { 2.0 } else { 3.0 })
        })?;
        assert_eq!(
            (compared.ratio().value, compared.null_ratio().value),
            (1.5, 1.0)
        );
        assert_eq!(
            (
                compared.difference().value,
                compared.null_difference().value
            ),
            (1.0, 0.0)
        );
        assert_eq!(calls.iter().filter(|way| **way == Way::Other).count(), 6);
        // The order within rounds varies.
        assert!(calls.chunks(3).any(|round| round[0] == Way::Other));
        Ok(())
    }
}
