use twinprobe_api::{MapReport, Problem};
use twinprobe_ebpf_common::finding::Stage;

use super::*;
use crate::commands::trial::propose::names::UNNAMED;

fn report(map: &str, kind: &'static str, adds: bool, deletes: bool) -> MapReport {
    MapReport {
        map: map.into(),
        kind: kind.into(),
        max_entries: 8,
        adds,
        deletes,
    }
}

fn proposal(maps: &[MapReport]) -> ProposedDirection {
    let maps = maps.iter().map(ProposedMap::new).collect();
    ProposedDirection {
        direction: Direction::Ingress,
        hook: "xdp",
        maps,
    }
}

fn propose(program: &str) -> Propose {
    Propose {
        program: program.into(),
        interface: "eth0".into(),
        hook: None,
        entry: None,
    }
}

#[test]
fn each_map_gets_the_part_that_the_program_gives_it() {
    let all = [
        report("counts", "percpu_array", false, false),
        report("flows", "lru_hash", true, false),
        report("open", "hash", true, true),
        report("watched", "lpm_trie", false, false),
        report("events", "ringbuf", false, false),
        report(".bss:seen", "global", false, false),
        report(".data.x:counts", "global", false, false),
    ];
    let text = propose("a b/my probe.bpf.c").text(&[proposal(&all)]);
    assert_eq!(
        text,
        "name: my-probe
interface: eth0
# The program only looks up entries of these maps. Give them here, or by `twinprobe entries`:
# - { key: KEY, value: VALUE }
fill:
  watched: []  # lpm_trie
ingress:
  hook: xdp
  source_file: \"a b/my probe.bpf.c\"
  metrics:
    - { name: counts, map: counts, help: \"counts of my-probe\", snapshot: true, init: true, agg: sum }  # percpu_array of 8 entries
    - { name: flows, map: flows, help: \"flows of my-probe\", snapshot: true, init: true }  # lru_hash of 8 entries
    # The program deletes entries, so it needs them for later packets: windows leave the map alone.
    - { name: open, map: open, help: \"open of my-probe\" }  # hash of 8 entries
    # Events: `twinprobe events` shows them.
    - { name: events, map: events, help: \"events of my-probe\" }  # ringbuf
    - { name: seen, map: \".bss:seen\", help: \"seen of my-probe\", snapshot: true, init: true }  # global
    - { name: data_x_counts, map: \".data.x:counts\", help: \"counts of my-probe\", snapshot: true, init: true }  # global
"
    );
    let config: ConfigDocument = yaml_serde::from_str(&text).unwrap();
    assert_eq!(config.ingress.unwrap().metrics.unwrap().len(), 6);
}

#[test]
fn a_refused_metric_is_left_out_with_its_reason() {
    let maps = [
        report("filled", "hash", false, false),
        report("a", "array", false, false),
    ];
    let mut directions = [proposal(&maps)];
    let finding = |field: &str| Finding::new(Stage::Load, field, "its key\nis too large");
    assert!(!leave_out(&mut directions, &[finding("ingress.source")]));
    assert!(!leave_out(
        &mut directions,
        &[finding("ingress.metrics[1].map")]
    ));
    assert!(leave_out(
        &mut directions,
        &[finding("ingress.metrics[0].map")]
    ));
    let text = propose("p.o").text(&directions);
    assert!(
        text.ends_with("source_file: p.o\n    # Without a: its key is too large\n"),
        "{text}"
    );
    yaml_serde::from_str::<ConfigDocument>(&text).unwrap();
}

#[test]
fn names_are_those_of_probes() {
    for (file, expected) in [
        ("x/xdp_prog.bpf.o", "xdp_prog"),
        ("3.c", "3"),
        (".c", UNNAMED),
        ("ü.c", UNNAMED),
    ] {
        assert_eq!(name(Path::new(file)), expected, "{file}");
    }
}

/// A program whose only section is another hook's is refused for what it does there.
#[test]
fn the_refusal_of_a_hook_that_the_program_is_for_is_shown() {
    let tried = |direction, hook, message: &str| {
        let finding = Finding::new(Stage::Load, "ingress.source", message);
        let problem = Problem {
            errors: vec![finding],
            ..Problem::default()
        };
        let error = ClientError::Refused(Box::new(problem));
        let sources = Box::default();
        TriedHook {
            direction,
            hook,
            result: Err(CommandError::Probe { error, sources }),
        }
    };
    let elsewhere = "see is in SEC(\"tc\"), and the hook xdp runs other programs";
    for (xdp, tc, is_for_tc, expected) in [
        (elsewhere, "it changes packets", false, "it changes packets"),
        ("it changes packets", elsewhere, true, "it changes packets"),
        ("no xdp", "no tc", false, "no xdp"),
        ("no xdp", "no tc", true, "no tc"),
    ] {
        let both = [
            tried(Direction::Ingress, "xdp", xdp),
            tried(Direction::Ingress, "tc", tc),
        ];
        match chosen(both.into(), is_for_tc).err() {
            Some(CommandError::Probe {
                error: ClientError::Refused(problem),
                ..
            }) => {
                assert_eq!(problem.errors[0].message, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}
