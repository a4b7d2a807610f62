//! Keys that differ in any bit make different documents in every format, and no document leaves out
//! one of their entries.

mod layouts;
mod support;

use std::sync::Arc;

use layouts::layout;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use support::{Document, MetricTable, encoded, metric, unsigned};
use twinprobe_ebpf_common::{Context, Format, Layout, MapKind};

/// The most bytes of a key.
const MOST: usize = 64;

/// A layout, nonsense or not, and two keys of it that differ: in one bit, or in many.
fn keys() -> impl Strategy<Value = (Layout, Vec<u8>, Vec<u8>)> {
    let sized = layout().prop_filter("a size", |layout| (1..=MOST).contains(&layout.size));
    // Bytes that mean something to texts, names and floats.
    let byte = || {
        prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\0\x01\xff\x7f\x80\\x0f\"<\n\r 5#".to_vec())
        ]
    };
    let bytes = move || vec(byte(), MOST);
    (sized, bytes(), bytes(), any::<Index>(), any::<bool>()).prop_filter_map(
        "two keys",
        |(layout, mut one, mut other, bit, near)| {
            one.truncate(layout.size);
            other.truncate(layout.size);
            if near {
                other.clone_from(&one);
                let bit = bit.index(8 * layout.size);
                other[bit / 8] ^= 1 << (bit % 8);
            }
            (one != other).then_some((layout, one, other))
        },
    )
}

fn context() -> Context {
    let names = [
        "eth0", "eth0", "3", "a\u{1}", "a\\x01", "eth0#0", "", "-1", "0x05",
    ];
    let interfaces = (0..).zip(names.map(str::to_owned)).collect();
    Context {
        boot_time_ns: 1_795_255_200_000_000_000,
        interfaces,
        ..Context::default()
    }
}

fn document(key: &Layout, rows: &[&[u8]]) -> Document {
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|key| (*key, &[1][..])).collect();
    let MetricTable { metric, table } =
        metric("m", MapKind::Hash, None, [key.clone(), unsigned(1)], &rows);
    let metric = Arc::new((*metric).clone().with(|head| head.name = "m".into()));
    Document {
        ingress: vec![MetricTable { metric, table }],
        ..Document::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn keys_that_differ_are_shown_differently((layout, one, other) in keys()) {
        for format in Format::ALL {
            let shown = |key: &[u8]| encoded(&document(&layout, &[key]), &context(), format);
            prop_assert_ne!(shown(&one), shown(&other), "{:?} {:?} {:?}", format, one, other);
        }
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let page = encoded(&document(&layout, &[&one, &other]), &context(), format);
            prop_assert_eq!(page.lines().filter(|line| line.starts_with("m{")).count(), 2, "{}", page);
        }
    }
}
