//! The sums of histograms. A histogram does not tell the sum of the counted values. A program may
//! keep the sum beside the histogram (`TP_HISTOGRAM_SUM` of `twinprobe.h`). That sum is a metric
//! with one number; its name is the histogram's name with the ending `_sum`.

use std::collections::HashMap;

use twinprobe_ebpf_common::MapFamily;

use crate::encode::openmetrics::series::MetricSeries;

/// The ending of the name of a sum.
const SUM: &str = "_sum";

/// Returns the place of each histogram's sum, by the place of the histogram. Histograms without a
/// sum are left out.
pub fn sums(all: &[&MetricSeries]) -> HashMap<usize, usize> {
    let place = |series: &MetricSeries, name: &str| (series.labels.clone(), name.to_owned());
    let candidates: HashMap<_, _> = all
        .iter()
        .enumerate()
        .filter(|(_, series)| is_number(series))
        .map(|(at, series)| (place(series, &series.original.name), at))
        .collect();
    let histograms = all
        .iter()
        .enumerate()
        .filter(|(_, series)| series.samples.is_histogram);
    histograms
        .filter_map(|(at, series)| {
            let sum = *candidates.get(&place(series, &format!("{}{SUM}", series.original.name)))?;
            let other = all[sum];
            let is_alike = series.cpus() == 1
                && series.original.temporality == other.original.temporality
                && series.samples.values.first()?.scale == other.samples.values.first()?.scale;
            is_alike.then_some((at, sum))
        })
        .collect()
}

/// Tells whether the metric is one number without a sign, or an array whose values add up to such a
/// number.
fn is_number(series: &MetricSeries) -> bool {
    let [value] = &series.samples.values[..] else {
        return false;
    };
    let family = series.metric.layout.kind.family();
    let is_flat = matches!(family, MapFamily::Array | MapFamily::Global) && value.arrays.is_empty();
    is_flat
        && value.counts
        && !series.samples.is_histogram
        && !series.is_limited()
        && series.cpus() == 1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Aggregation, Layout, MapKind, Render, TableLayout, Temporality};

    use super::*;
    use crate::metric::Metric;

    fn series(
        probe: &str,
        name: &str,
        render: Option<Render>,
        temporality: Temporality,
    ) -> MetricSeries {
        let (key, value) = (
            Layout::unsigned(4),
            Layout {
                render,
                ..Layout::unsigned(8)
            },
        );
        let layout = TableLayout {
            kind: MapKind::PercpuArray,
            key,
            value,
            slots: 2,
            inner: None,
        };
        let metric = Metric::example(name, layout).with(|head| {
            (head.agg, head.temporality) = (Some(Aggregation::Sum), temporality);
        });
        MetricSeries::new(
            probe,
            &Default::default(),
            &[],
            &Arc::new(metric),
            Arc::default(),
        )
    }

    #[test]
    fn the_number_with_the_name_of_a_histogram_is_its_sum() {
        use Temporality::{Cumulative, Window};
        let slots = Some(Render::Histogram);
        let all = [
            series("p", "a_nanoseconds_sum", None, Cumulative),
            series("p", "a_nanoseconds", slots, Cumulative),
            series("q", "a_nanoseconds", slots, Cumulative),
            series("p", "b", slots, Cumulative),
            series("p", "b_sum", None, Window),
            series("p", "c", None, Cumulative),
            series("p", "c_sum", None, Cumulative),
        ];
        let all: Vec<&MetricSeries> = all.iter().collect();
        assert_eq!(sums(&all), HashMap::from([(1, 0)]));
    }
}
