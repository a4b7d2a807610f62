//! Maps that both directions use.

use std::num::NonZeroU32;

use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::metric::OnReplace;
use twinprobe_ebpf_common::{Layout, MapKind};

use super::scene::{
    FACTS, at, cumulative, defines, live, map, numbered, outer, private, texts, window,
};
use crate::plan::build::directions;
use crate::plan::footprint::Footprint;
use crate::plan::inherit::Inherited::{Convert, FromActive, New, Same};
use crate::plan::inherit::{Inherited, ReplacedDirection, inherit, origins};
use crate::plan::map_spec::MapSpec;
use crate::plan::object::Definitions;
use crate::plan::probe_plan::{DirectionPlan, ProbePlan};
use crate::plan::request::DirectionRequest;
use twinprobe_ebpf_common::request::{AttachRequest, MetricRequest};

type Side = (Definitions, Vec<MetricRequest>);

/// Plans both directions. Returns the plans, or the findings: field and message.
fn both(
    ingress: Side,
    egress: Side,
    shared: &[&str],
) -> Result<[DirectionPlan; 2], Vec<(String, String)>> {
    let shared: Vec<String> = shared.iter().map(|name| (*name).to_owned()).collect();
    let wanted = [
        (at(Hook::Xdp, ingress.1), &ingress.0),
        (at(Hook::TcEgress, egress.1), &egress.0),
    ];
    let (mut plans, mut findings) = (Vec::new(), Vec::new());
    for planned in directions(wanted, &shared, FACTS) {
        match planned {
            Ok((plan, _)) => plans.push(plan),
            Err(refused) => findings.extend(texts(&refused)),
        }
    }
    plans.try_into().map_err(|_| findings)
}

fn hash() -> Definitions {
    defines(&[("m", map(MapKind::Hash)), ("n", map(MapKind::Hash))], &[])
}

#[track_caller]
fn refused(ingress: Side, egress: Side, shared: &[&str], field: &str, words: &str) {
    let findings = both(ingress, egress, shared).unwrap_err();
    let [(found, message)] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!(
        (found.as_str(), message.contains(words)),
        (field, true),
        "{message}"
    );
}

#[test]
fn a_snapshot_in_one_direction_makes_twins_in_both() {
    let [ingress, egress] = both(
        (hash(), vec![]),
        (hash(), vec![window("m"), live("n")]),
        &["m"],
    )
    .unwrap();
    assert_eq!(
        (private(&ingress), private(&egress)),
        (vec!["m"], vec!["m"])
    );
    assert!(
        ingress.has_twins()
            && ingress.map("m").unwrap().common
            && !ingress.map("n").unwrap().common
    );
    let apart = both(
        (hash(), vec![]),
        (hash(), vec![window("m"), live("n")]),
        &[],
    )
    .unwrap();
    assert!(!apart[0].has_twins());
}

#[test]
fn a_shared_map_takes_its_share_of_the_kernel_once() {
    let footprint = |shared: &[&str]| {
        let plans = both(
            (hash(), vec![window("m")]),
            (hash(), vec![window("m")]),
            shared,
        )
        .unwrap();
        let plan = ProbePlan {
            directions: plans.map(Into::into).into(),
            ..ProbePlan::default()
        };
        let share = Footprint::of(&plan, &[], FACTS);
        (share.maps, share.map_bytes)
    };
    let (maps, bytes) = footprint(&[]);
    assert_eq!(
        (maps, footprint(&["m"]).0, footprint(&["m", "n"]).0),
        (6, 4, 3)
    );
    assert_eq!(footprint(&["m", "n"]).1, bytes / 2);
}

#[test]
fn definitions_have_to_agree() {
    let of = |spec: MapSpec| (defines(&[("m", spec)], &[]), vec![]);
    let base = map(MapKind::Hash);
    for (other, words) in [
        (
            map(MapKind::LruHash),
            "type is 1 in ingress and 9 in egress",
        ),
        (
            MapSpec {
                key_size: 4,
                ..base.clone()
            },
            "the size of the key is 8 in ingress and 4 in egress",
        ),
        (
            MapSpec {
                value_size: 4,
                ..base.clone()
            },
            "the size of the value is 8",
        ),
        (
            MapSpec {
                max_entries: 99,
                ..base.clone()
            },
            "max_entries is 16 in ingress and 99 in egress",
        ),
        (
            MapSpec {
                flags: 1,
                ..base.clone()
            },
            "map_flags is 0 in ingress and 1",
        ),
    ] {
        refused(of(base.clone()), of(other), &["m"], "shared_maps[0]", words);
    }
    let inner = |max_entries| {
        let inner = Some(Box::new(MapSpec {
            max_entries,
            ..map(MapKind::Hash)
        }));
        of(MapSpec {
            inner,
            ..map(MapKind::HashOfMaps)
        })
    };
    refused(
        inner(3),
        inner(4),
        &["m"],
        "shared_maps[0]",
        "of the maps in it, max_entries is 3",
    );
    let none = || {
        (
            defines(
                &[("x", map(MapKind::Hash)), (".bss", map(MapKind::Array))],
                &[],
            ),
            vec![],
        )
    };
    refused(
        none(),
        of(base.clone()),
        &["m"],
        "shared_maps[0]",
        "the ingress source defines no map m, but x;",
    );
    refused(
        of(base),
        none(),
        &["m"],
        "shared_maps[0]",
        "the egress source defines no map m, but x;",
    );
    let mut plans = both((hash(), vec![]), (hash(), vec![]), &["m"]).unwrap();
    plans[1].maps[0].shape.value = Layout::unsigned(8);
    assert!(plans[0].maps[0].shape != plans[1].maps[0].shape);
}

#[test]
fn maps_of_maps_are_shared_with_the_maps_in_them() {
    let of = |slot| {
        let maps = [
            ("inner", map(MapKind::Hash)),
            ("outer", outer(MapKind::ArrayOfMaps, MapKind::Hash)),
        ];
        (defines(&maps, &[("outer", slot, "inner")]), vec![])
    };
    let words = "map outer holds map inner: share both, or neither; inner is not in shared_maps";
    refused(of(1), of(1), &["outer"], "shared_maps[0]", words);
    refused(
        of(1),
        of(1),
        &["inner"],
        "shared_maps[0]",
        "outer is not in shared_maps",
    );
    let findings = both(of(1), of(2), &["inner", "outer"]).unwrap_err();
    assert_eq!(findings[0].0, "shared_maps[1]");
    assert!(
        findings[0]
            .1
            .contains("other maps are in it from the start"),
        "{findings:?}"
    );
    assert!(both(of(1), of(1), &["inner", "outer"]).is_ok());
    // A map that one direction reads through a map of maps can't be read directly by the other.
    let read = |metric: MetricRequest| (of(1).0, vec![metric]);
    let words = "map inner is already read as part of map outer";
    refused(
        read(live("outer")),
        read(live("inner")),
        &["inner", "outer"],
        "egress.metrics[0].map",
        words,
    );
    assert!(both(read(live("outer")), read(live("inner")), &[]).is_ok());
}

#[test]
fn a_stream_of_events_has_one_metric() {
    let ring = |metrics| (defines(&[("ring", numbered(27))], &[]), metrics);
    let words = "the events of map ring are streamed by metric of_ring already";
    let two = || ring(vec![live("ring")]);
    refused(two(), two(), &["ring"], "egress.metrics[0].map", words);
    assert!(both(two(), two(), &[]).is_ok());
    refused(
        ring(vec![live("ring"), live("ring")]),
        ring(vec![]),
        &[],
        "ingress.metrics[1].map",
        words,
    );
}

#[test]
fn samples_that_differ_are_warned_of() {
    let warned = |samples: [Option<u32>; 2], shared: &[String]| {
        let hooks = [Hook::Xdp, Hook::TcEgress].into_iter().zip(samples);
        let wanted: Vec<(DirectionRequest, Definitions)> = hooks
            .map(|(hook, sample)| {
                let request = at(hook, vec![live("m")]);
                let attach = AttachRequest {
                    sample: sample.and_then(NonZeroU32::new),
                    ..request.attach
                };
                (DirectionRequest { attach, ..request }, hash())
            })
            .collect();
        let wanted = wanted
            .iter()
            .map(|(request, defined)| (request.clone(), defined));
        let warnings = directions(wanted, shared, FACTS)
            .into_iter()
            .flat_map(|planned| planned.unwrap().1);
        warnings
            .filter(|warning| warning.starts_with("both directions count"))
            .collect::<Vec<String>>()
    };
    let shared = ["m".to_owned()];
    let warnings = warned([Some(10), None], &shared);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        warning.contains("ingress sees one packet in 10 and egress all packets"),
        "{warning}"
    );
    assert_eq!(warned([Some(10), Some(10)], &shared), [""; 0]);
    assert_eq!(warned([Some(10), None], &[]), [""; 0]);
}

#[test]
fn one_metric_has_a_shared_map_begin_anew() {
    let reset = MetricRequest {
        on_replace: OnReplace::Reset,
        ..live("m")
    };
    let plans = both((hash(), vec![live("m")]), (hash(), vec![reset]), &["m"]).unwrap();
    assert_eq!(
        plans.map(|plan| plan.maps[0].on_replace),
        [OnReplace::Reset; 2]
    );
}

/// Returns the origins of map `m` in both directions, and what happens to its content.
fn replaced(old: &[DirectionPlan; 2], new: &[DirectionPlan; 2]) -> [(Vec<usize>, Inherited); 2] {
    let none = Default::default();
    let old = old.each_ref().map(|plan| ReplacedDirection {
        plan,
        more_known: &none,
    });
    [(&new[0], None), (&new[1], Some(&new[0]))].map(|(plan, earlier)| {
        let origins: Vec<Vec<usize>> = plan
            .maps
            .iter()
            .map(|map| origins(&old, plan, earlier, map))
            .collect();
        (origins[0].clone(), inherit(&old, plan, &origins)[0])
    })
}

#[test]
fn a_replacement_carries_what_is_shared_and_what_is_not() {
    let of = |metric: MetricRequest, shared: &[&str]| {
        both((hash(), vec![metric]), (hash(), vec![]), shared).unwrap()
    };
    let (apart, together) = (of(live("m"), &[]), of(live("m"), &["m"]));
    assert_eq!(replaced(&apart, &apart), [(vec![0], Same), (vec![1], Same)]);
    assert_eq!(
        replaced(&together, &together),
        [(vec![0], Same), (vec![0], Same)]
    );
    assert_eq!(
        replaced(&apart, &together),
        [(vec![0, 1], Convert), (vec![0, 1], Convert)]
    );
    let window = |common: &[&str]| of(window("m"), common);
    assert_eq!(
        replaced(&window(&[]), &window(&["m"]))[0],
        (vec![0, 1], Same),
        "counts go with the window"
    );
    assert_eq!(
        replaced(&together, &apart),
        [(vec![0], Same), (vec![], New)],
        "ingress goes on with it"
    );
    let windows = of(cumulative("m"), &["m"]);
    assert_eq!(
        replaced(&together, &windows),
        [(vec![0], FromActive), (vec![0], FromActive)]
    );
    // If only one direction still defines the map, this direction continues with the map.
    let without = || (defines(&[("n", map(MapKind::Hash))], &[]), vec![]);
    let only_egress = both(without(), (hash(), vec![live("m")]), &[]).unwrap();
    assert_eq!(replaced(&together, &only_egress)[1], (vec![1], Same));
    let larger = defines(
        &[(
            "m",
            MapSpec {
                max_entries: 99,
                ..map(MapKind::Hash)
            },
        )],
        &[],
    );
    let larger = both((larger, vec![]), without(), &[]).unwrap();
    assert_eq!(replaced(&together, &larger)[0], (vec![0], Convert));
}
