//! The effect of a reading on each metric's map, and the layout of the map's rows.

use twinprobe_ebpf_common::metric::{Counting, MapCopy, Visibility};
use twinprobe_ebpf_common::{EventKind, MapKind, Shape};

use super::scene::{compiled, cumulative, defines, live, map, numbered, outer, plan, window};
use crate::plan::probe_plan::{Extraction, MetricSource};
use twinprobe_ebpf_common::request::MetricRequest;

fn hidden(request: MetricRequest) -> MetricRequest {
    MetricRequest {
        visibility: Visibility::Hidden,
        ..request
    }
}

fn reset(request: MetricRequest) -> MetricRequest {
    let copy = if request.is_snapshot() {
        MapCopy::Snapshot
    } else {
        MapCopy::Live
    };
    MetricRequest {
        counting: Counting::Window(copy),
        ..request
    }
}

#[test]
fn what_is_asked_for_and_the_kind_of_the_map_decide() {
    use Extraction::{Clear, Copy, Discard, Drain};
    for (kind, kept) in [
        (MapKind::Hash, Copy),
        (MapKind::Array, Copy),
        (MapKind::Queue, Drain),
        (MapKind::Stack, Drain),
    ] {
        let source = defines(&[("m", map(kind))], &[]);
        for (request, expected) in [
            (live("m"), kept),
            (hidden(live("m")), Copy),
            (reset(live("m")), Drain),
            (hidden(reset(live("m"))), Discard),
            (cumulative("m"), Clear),
            (window("m"), Clear),
            (hidden(window("m")), Clear),
        ] {
            let text = format!("{kind:?} {request:?}");
            assert_eq!(
                plan(&source, vec![request]).metrics[0].extraction,
                expected,
                "{text}"
            );
        }
    }
}

#[test]
fn rows_are_as_the_map_has_them() {
    let maps = [
        ("nested", outer(MapKind::HashOfMaps, MapKind::PercpuArray)),
        ("percpu", map(MapKind::PercpuHash)),
        ("stack", map(MapKind::Stack)),
    ];
    let plan = plan(
        &defines(&maps, &[]),
        vec![live("percpu"), live("stack"), live("nested")],
    );
    let layouts: Vec<_> = plan
        .metrics
        .iter()
        .map(|metric| metric.layout().unwrap())
        .collect();
    assert_eq!(
        (layouts[0].kind, layouts[0].slots, layouts[0].key.size),
        (MapKind::PercpuHash, 3, 8)
    );
    assert_eq!(
        (layouts[1].kind, layouts[1].slots, layouts[1].key.size),
        (MapKind::Stack, 1, 0)
    );
    let inner = layouts[2].inner.as_ref().unwrap();
    assert_eq!(
        (layouts[2].slots, inner.kind, inner.slots),
        (1, MapKind::PercpuArray, 3)
    );
    let names: Vec<_> = plan
        .metrics
        .iter()
        .map(|metric| metric.kind_name())
        .collect();
    assert_eq!(names, ["percpu_hash", "stack", "hash_of_maps"]);
}

#[test]
fn variables_are_at_their_place_and_begin_with_their_value() {
    let source = "u32 before = 1; u32 counter = 7; struct { u64 a; u32 b[3]; } zeros;";
    let metrics = vec![live(".bss:zeros"), reset(live(".data:counter"))];
    let (plan, findings) = compiled(source, metrics);
    assert_eq!(findings, []);
    let [zeros, counter] = &plan.directions[0].metrics[..] else {
        panic!("two metrics")
    };
    let (MetricSource::Variable(zeros), MetricSource::Variable(value)) =
        (&zeros.source, &counter.source)
    else {
        panic!("both are variables")
    };
    assert_eq!(
        (&zeros.initial[..], zeros.layout.value.size),
        (&[0; 24][..], 24)
    );
    assert!(matches!(&zeros.layout.value.shape, Shape::Struct(members) if members.len() == 2));
    assert_eq!(
        (&value.initial[..], value.offset),
        (&7_u32.to_le_bytes()[..], 4)
    );
    assert_eq!(
        (counter.extraction, counter.kind_name()),
        (Extraction::Drain, "global")
    );
    let section = &plan.directions[0].maps[counter.map];
    assert_eq!(
        (section.name.as_str(), section.spec.flags),
        (".data", 1 << 10),
        "its memory can be mapped"
    );
}

#[test]
fn events_are_streamed_with_the_layout_of_their_type() {
    let source = r#"
        struct event { u32 number; u64 time; } *unused;
        struct { __uint(type, 27); __uint(max_entries, 5000); } ring SEC(".maps");
        struct { __uint(type, 4); __uint(key_size, 4); __uint(value_size, 4); } perf SEC(".maps");"#;
    let typed = MetricRequest {
        event_type: Some("struct event".into()),
        ..live("ring")
    };
    let (plan, findings) = compiled(source, vec![typed, live("perf")]);
    assert_eq!(findings, []);
    let direction = &plan.directions[0];
    let [ring, perf] = &direction.metrics[..] else {
        panic!("two metrics")
    };
    assert!(
        matches!(&ring.source, MetricSource::Events(EventKind::Ringbuf, Some(layout)) if layout.size == 16)
    );
    assert!(matches!(
        perf.source,
        MetricSource::Events(EventKind::PerfEventArray, None)
    ));
    assert_eq!(
        (ring.extraction, perf.extraction),
        (Extraction::Stream, Extraction::Stream)
    );
    assert!(ring.layout().is_none());
    // A ring buffer has a power of two of whole pages, and a perf event array has an entry for each
    // CPU.
    assert_eq!(
        (
            direction.maps[ring.map].spec.max_entries,
            direction.maps[perf.map].spec.max_entries
        ),
        (8192, 3)
    );
    let [warning] = &plan.warnings[..] else {
        panic!("{:?}", plan.warnings)
    };
    assert_eq!(
        warning.message,
        "map perf: no type is given, its events are shown in hex"
    );
}

#[test]
fn maps_that_no_metric_names_need_no_kind() {
    let source = defines(
        &[("programs", numbered(3)), ("unknown", numbered(999))],
        &[],
    );
    assert_eq!(plan(&source, Vec::new()).maps.len(), 2);
}
