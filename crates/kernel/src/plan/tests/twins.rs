//! The maps that are private to each twin, and the maps that both twins share.

use twinprobe_ebpf_common::MapKind;

use super::scene::{
    compiled, cumulative, defines, live, map, outer, plan, private, refused, window,
};

#[test]
fn maps_of_snapshots_are_private_and_others_are_shared() {
    let kinds = [MapKind::Hash, MapKind::Array, MapKind::LpmTrie];
    let source = defines(
        &[
            ("a", map(kinds[0])),
            ("b", map(kinds[1])),
            ("c", map(kinds[2])),
        ],
        &[],
    );
    let shared = plan(&source, vec![live("a")]);
    assert!(private(&shared).is_empty());
    assert!(!shared.has_twins());
    let both = plan(&source, vec![cumulative("c"), live("b"), window("a")]);
    assert_eq!(private(&both), ["a", "c"]);
    assert!(both.has_twins());
    let maps = both
        .metrics
        .iter()
        .map(|metric| both.maps[metric.map].name.as_str());
    assert_eq!(
        maps.collect::<Vec<_>>(),
        ["c", "b", "a"],
        "each metric has the map it names"
    );
}

#[test]
fn maps_in_private_maps_are_private_and_so_is_what_they_are_in() {
    let of_maps = outer(MapKind::ArrayOfMaps, MapKind::Hash);
    let hash = map(MapKind::Hash);
    let maps = [
        ("in_both", hash.clone()),
        ("in_first", hash.clone()),
        ("in_none", hash.clone()),
        ("in_third", hash),
        ("outer1", of_maps.clone()),
        ("outer2", of_maps.clone()),
        ("outer3", of_maps),
    ];
    let slots = [
        ("outer1", 0, "in_first"),
        ("outer1", 5, "in_both"),
        ("outer2", 1, "in_both"),
        ("outer3", 0, "in_third"),
    ];
    let source = defines(&maps, &slots);
    let by_outer = plan(&source, vec![window("outer2")]);
    assert_eq!(
        private(&by_outer),
        ["in_both", "in_first", "outer1", "outer2"]
    );
    let outer1 = by_outer.map("outer1").unwrap();
    assert_eq!(
        by_outer.inner_names(outer1).collect::<Vec<_>>(),
        [(0, "in_first"), (5, "in_both")]
    );
    let by_inner = plan(&source, vec![window("in_first")]);
    assert_eq!(
        private(&by_inner),
        ["in_both", "in_first", "outer1", "outer2"]
    );
    assert_eq!(
        private(&plan(&source, vec![window("in_none")])),
        ["in_none"]
    );
    assert_eq!(private(&plan(&source, vec![live("outer3")])), [""; 0]);
}

#[test]
fn every_metric_of_a_private_map_is_a_snapshot() {
    let of_maps = outer(MapKind::HashOfMaps, MapKind::Array);
    let source = defines(
        &[("inner", map(MapKind::Array)), ("outer", of_maps)],
        &[("outer", 7, "inner")],
    );
    let findings = refused(&source, vec![live("inner"), window("outer")]);
    let snapshot = "map inner belongs to the snapshot of another metric; add snapshot: true";
    let twice = "map inner is already read as part of map outer";
    assert_eq!(
        findings,
        [
            (
                "ingress.metrics[0].snapshot".to_owned(),
                snapshot.to_owned()
            ),
            ("ingress.metrics[0].map".to_owned(), twice.to_owned()),
        ]
    );
}

#[test]
fn a_section_is_private_as_a_whole() {
    let source = "u64 first, second; u64 third = 3;";
    let (plan, findings) = compiled(source, vec![window(".bss:first"), live(".data:third")]);
    assert_eq!(findings, []);
    assert_eq!(private(&plan.directions[0]), [".bss"]);
    let [warning] = &plan.warnings[..] else {
        panic!("{:?}", plan.warnings)
    };
    assert_eq!(warning.field.as_deref(), Some("ingress.source"));
    assert!(
        warning.message.starts_with(".bss is private to each twin"),
        "{}",
        warning.message
    );
    assert!(
        warning.message.contains("so are second:"),
        "{}",
        warning.message
    );
    let (_, findings) = compiled(source, vec![window(".bss:first"), live(".bss:second")]);
    assert_eq!(
        findings[0].field.as_deref(),
        Some("ingress.metrics[1].snapshot")
    );
    assert!(
        findings[0]
            .message
            .starts_with("another variable of .bss is a snapshot"),
        "{findings:?}"
    );
}
