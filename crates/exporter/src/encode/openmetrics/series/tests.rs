use twinprobe_ebpf_common::{Aggregation, Layout, MapKind, TableLayout};

use super::*;

fn series(agg: Option<Aggregation>) -> MetricSeries {
    let (key, value) = (Layout::unsigned(1), Layout::unsigned(8));
    let layout = TableLayout {
        kind: MapKind::PercpuHash,
        key,
        value,
        slots: 2,
        inner: None,
    };
    let metric = Metric::example("m", layout).with(|head| head.agg = agg);
    MetricSeries::new(
        "p\"",
        &BTreeMap::new(),
        &["eth0".to_owned()],
        &Arc::new(metric.with(|head| head.direction = twinprobe_ebpf_common::Direction::Egress)),
        Arc::default(),
    )
}

#[test]
fn values_of_cpus_are_folded_or_stand_apart() {
    let values: Vec<u8> = [1_u64, 2, 3, 4]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let rows = RawTable {
        keys: vec![7, 8],
        values,
        ..RawTable::default()
    };
    for (agg, expected) in [(None, vec![3, 4]), (Some(Aggregation::Sum), vec![7])] {
        let series = series(agg);
        assert_eq!(
            series.labels,
            r#"{probe="p\"",direction="egress",interface="eth0""#
        );
        assert_eq!(series.map_labels, r#"{probe="p\"",direction="egress""#);
        let rows = series.prepare(Cow::Borrowed(&rows));
        let slots = series.slots(&rows, 1).map(|slot| slot[0]);
        assert_eq!(
            (series.len(&rows), slots.collect::<Vec<_>>()),
            (2, expected)
        );
        assert_eq!(
            (series.key(&rows, 1), series.is_percpu()),
            (&[8][..], agg.is_none())
        );
    }
}

#[test]
fn duplicates_and_numbers_without_a_family_are_counted_for_each_cpu() {
    let series = MetricSeries {
        nameless: 1,
        ..series(None)
    };
    let count = Count {
        rows: 6,
        duplicates: 2,
        surplus: 1,
        entries: 6,
    };
    assert_eq!(series.skipped(count), 3 * 2 + 3 * 2);
}
