//! `avg`: the mean over all possible CPUs, truncated towards zero.

use super::operation::Operation;

/// CPUs that have counted nothing count as zero; a boolean is true if it is true on all CPUs.
pub struct Avg;

impl Operation for Avg {
    /// Sums in 128 bits, which values of up to 64 bits can't overflow; if wider ones overflow, quotients and remainders
    /// are summed apart.
    fn numbers(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128 {
        let count = values.clone().count().max(1);
        if signed {
            let values = values.map(u128::cast_signed);
            let count = count as i128;
            match values.clone().try_fold(0_i128, i128::checked_add) {
                Some(sum) => (sum / count).cast_unsigned(),
                None => wide_signed(values, count).cast_unsigned(),
            }
        } else {
            let count = count as u128;
            match values.clone().try_fold(0, u128::checked_add) {
                Some(sum) => sum / count,
                None => {
                    let (quotients, remainders) =
                        values.fold((0, 0), |(q, r), value| (q + value / count, r + value % count));
                    quotients + remainders / count
                }
            }
        }
    }

    fn floats(values: impl Iterator<Item = f64> + Clone) -> f64 {
        let count = values.clone().count().max(1);
        values.sum::<f64>() / count as f64
    }

    fn booleans(values: impl Iterator<Item = u128> + Clone) -> u128 {
        values.min().unwrap_or_default()
    }
}

/// Returns the mean of 128-bit values whose sum fits into no type.
fn wide_signed(values: impl Iterator<Item = i128>, count: i128) -> i128 {
    let (quotients, remainders) = values.fold((0, 0), |(q, r), value| (q + value / count, r + value % count));
    let (mean, rest) = (quotients + remainders / count, remainders % count);
    // The result is `mean + rest / count`, truncated: a rest of the other sign moves the mean by one towards zero.
    if mean > 0 && rest < 0 {
        mean - 1
    } else if mean < 0 && rest > 0 {
        mean + 1
    } else {
        mean
    }
}
