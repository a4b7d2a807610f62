//! The refusal of each mistake, with the field that the finding names.

use twinprobe_ebpf_common::metric::{Counting, MapCopy, Visibility};
use twinprobe_ebpf_common::{Aggregation, MapKind, MergeRule, MergeRules};

use super::scene::{
    compiled, cumulative, defines, live, map, numbered, outer, refused, texts, window,
};
use crate::plan::map_spec::MapSpec;
use twinprobe_ebpf_common::request::MetricRequest;

fn summed(request: MetricRequest) -> MetricRequest {
    MetricRequest {
        aggregation: Some(Aggregation::Sum),
        ..request
    }
}

fn typed(request: MetricRequest, name: &str) -> MetricRequest {
    MetricRequest {
        event_type: Some(name.to_owned()),
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

/// Asserts that there is one finding, in this field of the first metric, with these words.
fn expect(findings: &[(String, String)], field: &str, words: &str) {
    let [(found, message)] = findings else {
        panic!("{field} {words}: {findings:?}")
    };
    assert_eq!(*found, format!("ingress.metrics[0].{field}"), "{message}");
    assert!(message.contains(words), "{message}");
}

#[test]
fn of_maps() {
    let read_only = MapSpec {
        flags: 1 << 3,
        ..map(MapKind::Hash)
    };
    let write_only = MapSpec {
        flags: 1 << 4,
        ..map(MapKind::Hash)
    };
    let maps = [
        ("hash", map(MapKind::Hash)),
        ("percpu", map(MapKind::PercpuHash)),
        ("programs", numbered(3)),
        ("read_only", read_only),
        ("write_only", write_only),
        ("of_hashes", outer(MapKind::HashOfMaps, MapKind::Hash)),
        ("of_something", map(MapKind::ArrayOfMaps)),
        (
            "of_programs",
            MapSpec {
                inner: Some(Box::new(numbered(3))),
                ..map(MapKind::ArrayOfMaps)
            },
        ),
        (".rodata", map(MapKind::Array)),
    ];
    let source = defines(&maps, &[]);
    for (request, field, words) in [
        (
            live("nosuch"),
            "map",
            "the source defines no map nosuch; it defines hash, of_hashes,",
        ),
        (
            live("programs"),
            "map",
            "map programs is of BPF map type 3, which can't be read as a metric",
        ),
        (
            summed(live("hash")),
            "agg",
            "map hash is of type hash, which has one value per entry",
        ),
        (
            typed(live("hash"), "u64"),
            "type",
            "the types of hash are known from its definition",
        ),
        (
            window("read_only"),
            "init",
            "map read_only has BPF_F_RDONLY",
        ),
        (
            cumulative("read_only"),
            "snapshot",
            "leave the flag or snapshot out",
        ),
        (live("write_only"), "map", "map write_only has BPF_F_WRONLY"),
        (
            cumulative("of_hashes"),
            "init",
            "the windows of map of_hashes can't be added up",
        ),
        (
            summed(live("of_hashes")),
            "agg",
            "map of_hashes is of type hash, which",
        ),
        (
            live("of_something"),
            "map",
            "does not say what its maps are",
        ),
        (
            live("of_programs"),
            "map",
            "the maps in map of_programs are of BPF map type 3",
        ),
    ] {
        expect(&refused(&source, vec![request]), field, words);
    }
    assert!(
        !refused(&source, vec![live("nosuch")])[0]
            .1
            .contains(".rodata"),
        "sections are not maps to name"
    );
    let none = refused(&defines(&[], &[]), vec![live("nosuch")]);
    expect(
        &none,
        "map",
        "the source defines no map nosuch; it defines none",
    );
}

#[test]
fn of_variables() {
    let source = "u64 counter = 5; const volatile u64 limit = 9; u64 zero;";
    for (request, field, words) in [
        (
            live(".bss:nosuch"),
            "map",
            "the source has no variable nosuch in .bss; it has zero",
        ),
        (
            live(".data:zero"),
            "map",
            "the source has no variable zero in .data; it has counter",
        ),
        (
            summed(live(".bss:zero")),
            "agg",
            ".bss:zero has one value: agg is for PERCPU maps",
        ),
        (
            typed(live(".bss:zero"), "u64"),
            "type",
            "the types of .bss:zero are known",
        ),
        (
            reset(live(".rodata:limit")),
            "init",
            ".rodata:limit is constant; leave init out",
        ),
        (
            cumulative(".rodata:limit"),
            "snapshot",
            ".rodata:limit is constant; leave snapshot out",
        ),
        (
            cumulative(".data:counter"),
            "init",
            "the windows of .data:counter can't be added up",
        ),
    ] {
        expect(&texts(&compiled(source, vec![request]).1), field, words);
    }
    let (plan, findings) = compiled(
        source,
        vec![window(".data:counter"), cumulative(".bss:zero")],
    );
    assert_eq!((plan.directions.len(), findings), (1, Vec::new()));
}

#[test]
fn of_events() {
    let source = r#"struct event { u32 number; } *unused; struct later { u32 x; } *unused2;
        struct { __uint(type, 27); __uint(max_entries, 4096); } ring SEC(".maps");"#;
    for (request, field, words) in [
        (
            cumulative("ring"),
            "snapshot",
            "there is no state to take a snapshot of",
        ),
        (
            reset(live("ring")),
            "init",
            "reading takes an event out anyway",
        ),
        (summed(live("ring")), "agg", "there is nothing to aggregate"),
        (
            MetricRequest {
                visibility: Visibility::Hidden,
                ..live("ring")
            },
            "export",
            "a client has to ask for them anyway",
        ),
        (
            typed(live("ring"), "struct nosuch"),
            "type",
            "the object knows no type struct nosuch; it knows struct event, struct later",
        ),
    ] {
        expect(&texts(&compiled(source, vec![request]).1), field, words);
    }
    let other = MergeRules {
        default: MergeRule::Max,
        ..MergeRules::default()
    };
    let request = MetricRequest {
        counting: Counting::Sum(other),
        ..live("ring")
    };
    let findings = texts(&compiled(source, vec![request]).1);
    let fields: Vec<&str> = findings.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        ["ingress.metrics[0].snapshot", "ingress.metrics[0].merge"]
    );
}

#[test]
fn all_mistakes_are_found_at_once() {
    let source = defines(&[("hash", map(MapKind::Hash)), ("ring", numbered(27))], &[]);
    let metrics = vec![
        live("nosuch"),
        typed(summed(live("hash")), "u64"),
        summed(window("ring")),
    ];
    let findings = refused(&source, metrics);
    let fields: Vec<&str> = findings.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "ingress.metrics[0].map",
            "ingress.metrics[1].agg",
            "ingress.metrics[1].type",
            "ingress.metrics[2].snapshot",
            "ingress.metrics[2].init",
            "ingress.metrics[2].agg",
        ]
    );
}

#[test]
fn a_slot_needs_a_map_of_the_source() {
    let maps = [("outer", outer(MapKind::ArrayOfMaps, MapKind::Hash))];
    let findings = refused(&defines(&maps, &[("outer", 2, "elsewhere")]), Vec::new());
    let message = "map outer, slot 2: the source defines no map elsewhere";
    assert_eq!(
        findings,
        [("ingress.source".to_owned(), message.to_owned())]
    );
}
