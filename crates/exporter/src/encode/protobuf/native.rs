//! Native histograms of arrays that count values by their highest bit.
//!
//! Slot `i` counts numbers from `2^i` to `2^(i+1)-1`. The buckets of a native histogram of schema 0
//! end at powers of two of the base unit. For bytes both are the same, except for a number that is
//! a power of two itself. A thousandth, a millionth and a billionth are not powers of two. There
//! each slot becomes the bucket with the nearest end, at a distance of 2.4, 4.9 and 7.4 %. The
//! buckets with bounds, beside these, have the exact ends.

use super::message::{BucketMessage, HistogramMessage, SpanMessage};

/// The schema whose buckets end at powers of two.
const SCHEMA: i32 = 0;
/// The largest relative difference between a slot's bound and the expected bound, which follows
/// from the first slot: bounds are rounded.
const TOLERANCE: f64 = 1e-9;

/// Fills in the native part of a histogram whose bounds are those of slots. Other histograms stay
/// as they are.
pub fn fill_in(histogram: &mut HistogramMessage) {
    let bounds: Vec<&BucketMessage> = histogram
        .buckets
        .iter()
        .filter(|bucket| bucket.upper_bound().is_finite())
        .collect();
    let Some(unit) = unit(&bounds) else { return };
    // The power of two that is nearest to the unit.
    let shift = unit.log2().round() as i32;
    let counts: Vec<u64> = bounds
        .iter()
        .scan(0, |below, bucket| {
            let all = bucket.cumulative_count();
            Some(all.saturating_sub(std::mem::replace(below, all)))
        })
        .collect();
    histogram.schema = Some(SCHEMA);
    // Slot 0 also counts zeros. Slot 1 begins where the bucket of zeros ends.
    histogram.zero_threshold = Some(2_f64.powi(shift + 1));
    histogram.zero_count = counts.first().copied();
    let used = |slot: &usize| counts[*slot] > 0;
    let slots = || 1..counts.len();
    let (Some(first), Some(last)) = (slots().find(used), slots().rfind(used)) else {
        return;
    };
    let span = SpanMessage {
        offset: Some(shift + 1 + first as i32),
        length: Some((last - first + 1) as u32),
    };
    histogram.positive_spans = vec![span];
    let mut before = 0;
    histogram.positive_deltas = counts[first..=last]
        .iter()
        .map(|count| {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            count - std::mem::replace(&mut before, count)
        })
        .collect();
}

/// Returns the bound of the first slot, which is the unit of the numbers; `None` if the bounds are
/// not those of slots.
fn unit(bounds: &[&BucketMessage]) -> Option<f64> {
    let unit = bounds.first()?.upper_bound();
    let is_slot = |(slot, bucket): (usize, &&BucketMessage)| {
        let expected = unit * (2_f64.powi(slot as i32 + 1) - 1.0);
        (bucket.upper_bound() / expected - 1.0).abs() < TOLERANCE
    };
    (unit > 0.0 && bounds.len() > 1 && bounds.iter().enumerate().all(is_slot)).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(unit: f64, counts: &[u64]) -> HistogramMessage {
        let bound = |slot| unit * (2_f64.powi(slot as i32 + 1) - 1.0);
        let mut all = 0;
        let mut buckets: Vec<BucketMessage> = counts
            .iter()
            .enumerate()
            .map(|(slot, count)| {
                all += count;
                BucketMessage {
                    cumulative_count: Some(all),
                    upper_bound: Some(bound(slot)),
                }
            })
            .collect();
        buckets.push(BucketMessage {
            cumulative_count: Some(all),
            upper_bound: Some(f64::INFINITY),
        });
        let mut histogram = HistogramMessage {
            buckets,
            ..HistogramMessage::default()
        };
        fill_in(&mut histogram);
        histogram
    }

    fn native(histogram: &HistogramMessage) -> (f64, u64, Option<(i32, u32)>, Vec<i64>) {
        let span = histogram
            .positive_spans
            .first()
            .map(|span| (span.offset(), span.length()));
        (
            histogram.zero_threshold(),
            histogram.zero_count(),
            span,
            histogram.positive_deltas.clone(),
        )
    }

    #[test]
    fn slots_become_the_nearest_buckets() {
        let bytes = native(&histogram(1.0, &[4, 0, 3, 0, 5, 0]));
        // The bucket of 4 to 7 ends at 2^3, the bucket of 16 to 31 at 2^5.
        assert_eq!(bytes, (2.0, 4, Some((3, 3)), vec![3, -3, 5]));
        let seconds = native(&histogram(1e-9, &[0, 0, 0, 7]));
        // The slot of 8 to 15 ns ends at 16 ns; 2^-26 s are 14.9 ns.
        assert_eq!(seconds, (2_f64.powi(-29), 0, Some((-26, 1)), vec![7]));
        assert_eq!(native(&histogram(1.0, &[9, 0])), (2.0, 9, None, vec![]));
    }

    #[test]
    fn each_slot_has_a_bucket_whose_end_is_near() {
        for (unit, most) in [(1.0, 1e-9), (1e-3, 0.025), (1e-6, 0.05), (1e-9, 0.075)] {
            for slot in 1..63 {
                let counts: Vec<u64> = (0..=slot).map(|at| u64::from(at == slot)).collect();
                let (.., span, _) = native(&histogram(unit, &counts));
                let (offset, length) = span.expect("a bucket");
                let end = unit * 2_f64.powi(slot + 1);
                assert_eq!(length, 1);
                assert!(
                    (2_f64.powi(offset) / end - 1.0).abs() <= most,
                    "{unit} {slot}: {offset}"
                );
            }
        }
    }

    #[test]
    fn other_bounds_stay_as_they_are() {
        let mut others = HistogramMessage::default();
        for bound in [0.1, 0.25, 1.0, f64::INFINITY] {
            others.buckets.push(BucketMessage {
                cumulative_count: Some(1),
                upper_bound: Some(bound),
            });
        }
        let before = others.clone();
        fill_in(&mut others);
        assert_eq!(others, before);
    }
}
