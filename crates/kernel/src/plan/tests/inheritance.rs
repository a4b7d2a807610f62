//! The maps that a replacement takes over.

use std::collections::BTreeSet;

use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::{Layout, MapKind};

use super::scene::{
    at, compiled, cumulative, defines, live, map, numbered, outer, plan, requested, window,
};
use crate::plan::inherit::Inherited::{Convert, FromActive, New, Same};
use crate::plan::inherit::{Inherited, ReplacedDirection, inherit, origins};
use crate::plan::map_spec::MapSpec;
use crate::plan::probe_plan::DirectionPlan;
use twinprobe_ebpf_common::request::MetricRequest;

/// Returns the origin of the map `m`, alone in its source, after a replacement.
fn one(old: (MapSpec, MetricRequest), new: (MapSpec, MetricRequest)) -> Inherited {
    let of = |(spec, request)| plan(&defines(&[("m", spec)], &[]), vec![request]);
    let [inherited] = all(&of(old), &of(new))[..] else {
        panic!("one map")
    };
    inherited
}

fn begins_anew(request: MetricRequest) -> MetricRequest {
    MetricRequest {
        on_replace: OnReplace::Reset,
        ..request
    }
}

fn all(old: &DirectionPlan, new: &DirectionPlan) -> Vec<Inherited> {
    replacing(old, new, &BTreeSet::new())
}

fn replacing(
    old: &DirectionPlan,
    new: &DirectionPlan,
    more_known: &BTreeSet<String>,
) -> Vec<Inherited> {
    let old = [ReplacedDirection {
        plan: old,
        more_known,
    }];
    let origins: Vec<Vec<usize>> = new
        .maps
        .iter()
        .map(|map| origins(&old, new, None, map))
        .collect();
    inherit(&old, new, &origins)
}

#[test]
fn the_same_map_goes_on() {
    let hash = || map(MapKind::Hash);
    assert_eq!(one((hash(), live("m")), (hash(), live("m"))), Same);
    assert_eq!(one((hash(), window("m")), (hash(), cumulative("m"))), Same);
    assert_eq!(
        one((hash(), live("m")), (hash(), begins_anew(live("m")))),
        New
    );
    assert_eq!(
        one((hash(), begins_anew(live("m"))), (hash(), live("m"))),
        Same,
        "the new configuration decides"
    );
}

#[test]
fn a_map_that_is_defined_in_another_way_is_converted() {
    let base = map(MapKind::Array);
    for changed in [
        map(MapKind::Hash),
        MapSpec {
            key_size: 4,
            ..base.clone()
        },
        MapSpec {
            value_size: 16,
            ..base.clone()
        },
        MapSpec {
            max_entries: 17,
            ..base.clone()
        },
        MapSpec {
            flags: 1,
            ..base.clone()
        },
        MapSpec {
            extra: 1,
            ..base.clone()
        },
        MapSpec {
            initial: vec![1],
            ..base.clone()
        },
        MapSpec {
            frozen: true,
            ..base.clone()
        },
    ] {
        assert_eq!(
            one((base.clone(), live("m")), (changed.clone(), live("m"))),
            Convert,
            "{changed:?}"
        );
    }
    // Two compilations number types differently.
    let renumbered = MapSpec {
        btf_types: (7, 8),
        ..base.clone()
    };
    assert_eq!(
        one((base.clone(), live("m")), (renumbered, live("m"))),
        Same
    );
    let source = defines(&[("m", base)], &[]);
    let (old, mut new) = (
        plan(&source, vec![live("m")]),
        plan(&source, vec![live("m")]),
    );
    new.maps[0].shape.value = Layout::unsigned(8);
    assert_eq!(all(&old, &new), [Convert], "the value means something else");
}

#[test]
fn what_is_live_becomes_the_open_window_and_the_other_way_round() {
    let hash = || map(MapKind::Hash);
    assert_eq!(one((hash(), live("m")), (hash(), window("m"))), FromActive);
    assert_eq!(one((hash(), window("m")), (hash(), live("m"))), FromActive);
    let source = defines(&[("m", hash()), ("n", hash())], &[]);
    let windows = plan(&source, vec![cumulative("m"), cumulative("n")]);
    let shared = plan(&source, vec![live("m"), live("n")]);
    let more_known = BTreeSet::from(["m".to_owned()]);
    assert_eq!(
        replacing(&windows, &shared, &more_known),
        [Convert, FromActive],
        "the sum of m goes into a new map"
    );
    assert_eq!(
        replacing(&shared, &windows, &more_known),
        [FromActive, FromActive]
    );
    assert_eq!(replacing(&windows, &windows, &more_known), [Same, Same]);
}

#[test]
fn events_programs_and_constants_are_no_counts() {
    for spec in [
        numbered(27),
        numbered(4),
        numbered(3),
        MapSpec {
            frozen: true,
            ..map(MapKind::Array)
        },
    ] {
        let source = defines(&[("m", spec)], &[]);
        let unnamed = || plan(&source, Vec::new());
        assert_eq!(all(&unnamed(), &unnamed()), [Convert]);
    }
}

#[test]
fn maps_that_no_metric_names_do_as_the_probe_says() {
    let source = defines(&[("m", map(MapKind::Hash)), ("n", map(MapKind::Hash))], &[]);
    let old = plan(&source, vec![live("n")]);
    let with = |on_replace, metrics| {
        let request = crate::plan::request::DirectionRequest {
            on_replace,
            ..at(Hook::Xdp, metrics)
        };
        requested(request, &source).unwrap().0
    };
    assert_eq!(
        all(&old, &with(OnReplace::Carry, vec![begins_anew(live("n"))])),
        [Same, New]
    );
    assert_eq!(
        all(&old, &with(OnReplace::Reset, vec![live("n")])),
        [New, Same]
    );
    let (other, _) = compiled("u64 a;", Vec::new());
    assert_eq!(
        all(&old, &other.directions[0]),
        [New],
        "there was no map of that name"
    );
}

#[test]
fn one_of_several_metrics_of_a_section_has_it_begin_anew() {
    let source = "u64 a, b;";
    let (old, _) = compiled(source, vec![live(".bss:a"), live(".bss:b")]);
    let (new, _) = compiled(source, vec![live(".bss:a"), begins_anew(live(".bss:b"))]);
    assert_eq!(all(&old.directions[0], &old.directions[0]), [Same]);
    assert_eq!(all(&old.directions[0], &new.directions[0]), [New]);
}

#[test]
fn maps_of_maps_go_on_together_with_the_maps_in_them() {
    let of = |inner: MapSpec, slot, request: Option<MetricRequest>| {
        let of_maps = outer(MapKind::ArrayOfMaps, MapKind::Hash);
        let maps = [
            ("inner", inner),
            ("other", map(MapKind::Hash)),
            ("outer", of_maps),
        ];
        let source = defines(&maps, &[("outer", 0, "inner"), ("outer", slot, "other")]);
        plan(&source, request.into_iter().collect())
    };
    let hash = || map(MapKind::Hash);
    let larger = || MapSpec {
        max_entries: 99,
        ..hash()
    };
    let read = || Some(live("outer"));
    let old = of(hash(), 1, read());
    assert_eq!(all(&old, &of(hash(), 1, read())), [Same, Same, Same]);
    assert_eq!(
        all(&old, &of(hash(), 1, Some(window("outer")))),
        [FromActive, FromActive, FromActive]
    );
    // A map of maps with a metric starts empty as a whole.
    assert_eq!(all(&old, &of(larger(), 1, read())), [New, New, Convert]);
    assert_eq!(all(&old, &of(hash(), 2, read())), [New, New, Convert]);
    assert_eq!(
        all(&old, &of(hash(), 1, Some(begins_anew(live("outer"))))),
        [New, New, New]
    );
    // A map of maps that no metric reads is made anew, and those of its inner maps that are
    // unchanged continue.
    assert_eq!(all(&old, &of(larger(), 1, None)), [Convert, Same, Convert]);
    assert_eq!(all(&old, &of(hash(), 2, None)), [Same, Same, Convert]);
    assert_eq!(
        all(&old, &of(hash(), 1, Some(live("inner")))),
        [Same, Same, Same]
    );
}

/// The old map with which each twin of a new map continues, for both twins that may get packets.
#[test]
fn the_twin_that_sees_packets_goes_on() {
    for active in [0, 1] {
        let twins = |inherited: Inherited, private| {
            [0, 1].map(|twin| inherited.twin(private, twin, active))
        };
        assert_eq!(
            twins(Same, true),
            [Some(0), Some(1)],
            "each twin keeps its map"
        );
        // A shared map that becomes private: the other twin begins empty.
        let mut private = [None, None];
        private[active] = Some(active);
        assert_eq!(twins(FromActive, true), private);
        // Private maps become a shared one: the map of the open window continues.
        assert_eq!(FromActive.twin(false, 0, active), Some(active));
        for new in [New, Convert] {
            assert_eq!(twins(new, true), [None, None]);
            assert_eq!(new.twin(false, 0, active), None);
        }
    }
}
