use twinprobe_ebpf_common::{Layout, MapKind, Member, Render, Shape, TableLayout, Temporality};

use super::*;

fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    }
}

fn structure(size: usize, members: Vec<Member>) -> Layout {
    Layout {
        size,
        shape: Shape::Struct(members),
        render: None,
    }
}

fn flows() -> Arc<Metric> {
    let address = Layout {
        render: Some(Render::Ipv4),
        ..Layout::unsigned(4)
    };
    let key = structure(
        6,
        vec![
            member("src", 0, address),
            member("port", 4, Layout::unsigned(2)),
        ],
    );
    let value = vec![
        member("bytes", 0, Layout::unsigned(8)),
        member("time_nanoseconds", 8, Layout::unsigned(8)),
    ];
    let layout = TableLayout {
        kind: MapKind::PercpuHash,
        key,
        value: structure(16, value),
        slots: 2,
        inner: None,
    };
    Arc::new(Metric::example("flows", layout).with(|head| {
        (head.temporality, head.series.subsystem) =
            (Temporality::Cumulative, Some("net".to_owned()));
        head.series.merge = Some(Default::default());
    }))
}

fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn a_number_is_found_by_the_name_and_the_labels_of_its_samples() {
    let found = ExportedNumber::new(&flows(), "bytes", &BTreeMap::new()).unwrap();
    assert_eq!(
        (&*found.name, found.is_counter),
        ("net_flows_bytes_total", true)
    );
    assert_eq!(
        (found.by.join(" "), found.parts.join(" ")),
        ("src port padding".into(), "cpu".into())
    );
    let key = found.key(&labels(&[
        ("src", "192.0.2.1"),
        ("port", "53"),
        ("node", "a"),
    ]));
    assert_eq!(key, serde_json::json!({ "src": "192.0.2.1", "port": 53 }));
    let error = ExportedNumber::new(&flows(), "packets", &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("no samples"), "{error}");
}

#[test]
fn numbers_have_the_unit_of_the_metric_again() {
    let found = ExportedNumber::new(&flows(), "time_nanoseconds", &BTreeMap::new()).unwrap();
    assert_eq!(found.name, "net_flows_time_seconds_total");
    let original = |sample| found.original(sample).map(|number| number.to_string());
    assert_eq!(original(0.000_012_345), Some("12345".to_owned()));
    assert_eq!(
        (original(1.5), original(-2e-9)),
        (Some("1500000000".to_owned()), Some("-2".to_owned()))
    );
    assert_eq!(
        (original(f64::NAN), original(2.5e-10)),
        (None, Some("0.25".to_owned()))
    );
}

#[test]
fn all_other_keys_have_samples_together() {
    let limited = Arc::new(Metric::clone(&flows()).with(|head| head.series.max_series = Some(3)));
    let found = ExportedNumber::new(&limited, "bytes", &BTreeMap::new()).unwrap();
    assert_eq!(found.by.join(" "), "src port padding key");
    assert!(found.is_others(&labels(&[("key", "other")])));
    assert!(!found.is_others(&labels(&[("src", "192.0.2.1"), ("port", "53")])));
}

#[test]
fn slots_of_histograms_are_found_by_their_bounds() {
    let slots = Layout {
        render: Some(Render::Histogram),
        ..Layout::unsigned(8)
    };
    let layout = TableLayout {
        kind: MapKind::Array,
        key: Layout::unsigned(4),
        value: slots,
        slots: 1,
        inner: None,
    };
    let sizes = Metric::example("wait_nanoseconds", layout);
    let metric = Arc::new(sizes.with(|head| head.temporality = Temporality::Cumulative));
    let found = ExportedNumber::new(&metric, "", &BTreeMap::new()).unwrap();
    assert_eq!(
        (&*found.name, found.is_counter),
        ("wait_seconds_bucket", true)
    );
    assert_eq!(
        (found.by.join(" "), found.is_of_buckets()),
        ("le".into(), true)
    );
    for (bound, key) in [
        ("1e-9", Some(0)),
        ("3e-09", Some(1)),
        ("0.001048575", Some(19)),
        ("18446744073.709552", Some(63)),
        ("+Inf", None),
    ] {
        assert_eq!(
            found.key(&labels(&[("le", bound)])),
            serde_json::json!(key),
            "{bound}"
        );
    }
    assert_eq!(
        found.original(3.0),
        Some(3_u64.into()),
        "counts have no unit"
    );
}
