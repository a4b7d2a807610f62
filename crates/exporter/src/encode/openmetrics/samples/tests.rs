//! The samples and labels of small layouts.

use twinprobe_ebpf_common::{Layout, MapKind, Member, Shape, TableLayout};

use super::keys::MAX_LABELS;
use super::*;

/// Returns the layout of a struct of bytes with these names, and padding after them up to the
/// size.
pub fn record(size: usize, names: &[&str]) -> Layout {
    let member = |(index, name): (usize, &&str)| Member {
        name: (*name).to_owned(),
        bit_offset: 8 * index,
        bitfield: None,
        layout: Layout::unsigned(1),
    };
    let members = names.iter().enumerate().map(member).collect();
    Layout {
        size,
        shape: Shape::Struct(members),
        render: None,
    }
}

fn samples(kind: MapKind, key: Layout, value: Layout) -> Samples {
    let metric = Metric::example(
        "m",
        TableLayout {
            kind,
            key,
            value,
            slots: 1,
            inner: None,
        },
    );
    Samples::new(&metric, &metric.layout.value, ["site".to_owned()].iter())
}

#[test]
fn keys_become_labels_that_no_other_label_has() {
    let key = record(5, &["probe", "key_probe", "a$b", "a_b", "site"]);
    let labels: Vec<String> = samples(MapKind::Hash, key, Layout::unsigned(1))
        .keys
        .into_iter()
        .map(|key| key.label)
        .collect();
    let expected = [
        ",key_probe=\"",
        ",key_key_probe=\"",
        ",a_b=\"",
        ",key_a_b=\"",
        ",key_site=\"",
    ];
    assert_eq!(labels, expected);
    let many: Vec<String> = (0..=MAX_LABELS).map(|index| format!("m{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let labels = samples(
        MapKind::Hash,
        record(many.len(), &many),
        Layout::unsigned(1),
    )
    .keys;
    assert_eq!(
        (labels.len(), &*labels[0].label),
        (1, ",key=\""),
        "too many parts are one label"
    );
}

#[test]
fn each_number_of_a_value_has_a_family() {
    let list = Shape::Array {
        element: Box::new(record(2, &["x", "y"])),
        len: 3,
    };
    let value = Layout {
        size: 6,
        shape: list,
        render: None,
    };
    let samples = samples(MapKind::Hash, Layout::unsigned(4), value);
    let families: Vec<&str> = samples.values.iter().map(|value| &*value.family).collect();
    assert_eq!(families, ["m_x", "m_y"]);
    assert_eq!(samples.values[1].arrays[0].prefix, ",index=\"");
    assert_eq!((samples.fit(), samples.unfit), (6, 0));
}

#[test]
fn what_is_no_number_or_has_no_key_is_counted() {
    let blob = samples(MapKind::Hash, Layout::unsigned(4), Layout::opaque(3));
    assert_eq!((blob.fit(), blob.unfit), (0, 1));
    let queue = samples(MapKind::Queue, Layout::opaque(0), record(2, &["x", "y"]));
    assert_eq!((queue.fit(), queue.unfit), (0, 2));
}
