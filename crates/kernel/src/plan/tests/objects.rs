//! Plans of whole probes, from objects that clang writes.

use std::time::{Duration, Instant};

use twinprobe_ebpf_common::finding::Stage;
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_test_attributes::timed;

use super::scene::{FACTS, HEADER, at, compile, compiled, live, private, window};
use crate::plan::probe_plan::ProbePlan;
use crate::plan::request::KernelFacts;

const NESTED: &str = r#"
    struct inner { __uint(type, 1); __uint(max_entries, 4); __type(key, u32); __type(value, u64); };
    struct inner one SEC(".maps"), two SEC(".maps");
    static struct inner hidden SEC(".maps");
    struct { __uint(type, 12); __uint(max_entries, 8); __type(key, u32); __array(values, struct inner); }
        outer SEC(".maps") = { .values = { [1] = &one, [4] = &two, [6] = &hidden } };"#;

#[test]
fn maps_are_in_the_slots_that_the_source_gives_them() {
    let (plan, findings) = compiled(NESTED, vec![window("outer")]);
    assert_eq!(findings, []);
    let direction = &plan.directions[0];
    let outer = direction.map("outer").unwrap();
    assert_eq!(
        direction.inner_names(outer).collect::<Vec<_>>(),
        [(1, "one"), (4, "two"), (6, "hidden")]
    );
    assert_eq!(private(direction), ["hidden", "one", "outer", "two"]);
    let inner = outer.spec.inner.as_ref().unwrap();
    assert_eq!(
        (
            inner.map_type,
            inner.key_size,
            inner.value_size,
            inner.max_entries
        ),
        (1, 4, 8, 4)
    );
}

/// gcc writes such sections.
#[test]
fn a_section_without_variables_makes_no_map() {
    let elf =
        compile("asm(\".data\\n.bss\\n.text\"); SEC(\"xdp\") int see(void *ctx) { return 2; }");
    let (plan, _, findings) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
    assert_eq!(findings, []);
    assert!(
        plan.directions[0].maps.is_empty(),
        "{:?}",
        plan.directions[0].maps
    );
}

#[test]
fn each_direction_is_planned_and_the_mistakes_of_both_are_found() {
    let xdp = compile("u64 packets; SEC(\"xdp\") int see(void *ctx) { packets++; return 2; }");
    let tc = compile("u64 packets; SEC(\"tc\") int watch(void *ctx) { packets++; return 0; }");
    let good = || vec![live(".bss:packets")];
    let build = |ingress, egress| {
        ProbePlan::build(
            [
                (at(Hook::Xdp, ingress), &xdp[..]),
                (at(Hook::TcEgress, egress), &tc[..]),
            ],
            &[],
            FACTS,
        )
    };
    let (plan, objects, findings) = build(good(), good());
    assert_eq!((objects.len(), findings), (2, Vec::new()));
    let entries: Vec<_> = plan
        .directions
        .iter()
        .map(|plan| (plan.direction(), plan.entry.as_str()))
        .collect();
    assert_eq!(entries, [("ingress", "see"), ("egress", "watch")]);

    let (plan, objects, findings) = build(vec![live("a")], vec![live("b")]);
    assert_eq!((plan.directions.len(), objects.len()), (0, 0));
    let fields: Vec<_> = findings
        .iter()
        .filter_map(|finding| finding.field.as_deref())
        .collect();
    assert_eq!(fields, ["ingress.metrics[0].map", "egress.metrics[0].map"]);

    // The plan of the directions without mistakes is usable, so that the kernel's findings about
    // them are reported as well.
    let (plan, objects, findings) = build(vec![live("a")], good());
    assert_eq!(
        (
            plan.directions[0].entry.as_str(),
            objects.len(),
            findings.len()
        ),
        ("watch", 1, 1)
    );
}

/// clang puts each table into a section by its size, and notes that it is in `.rodata`.
#[test]
fn tables_of_all_sizes_are_in_one_section() {
    let table = |bytes: usize| {
        let values: Vec<String> = (0..bytes)
            .map(|index| (bytes + index).to_string())
            .collect();
        format!(
            "static const unsigned char of{bytes}[{bytes}] = {{ {} }};\n",
            values.join(", ")
        )
    };
    let sizes = [32_usize, 4, 64, 8, 16];
    let tables: String = sizes.map(table).concat();
    let sum = sizes
        .map(|bytes| format!("of{bytes}[*i & {}]", bytes - 1))
        .join(" + ");
    for limit in ["", "const volatile u32 limit = 3;"] {
        let elf = compile(&format!(
            "{limit}{tables}SEC(\"xdp\") int see(u32 *i) {{ return {sum}; }}"
        ));
        let (plan, objects, findings) =
            ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
        assert_eq!(findings, [], "{limit}");
        let [map] = &plan.directions[0].maps[..] else {
            panic!("{:?}", plan.directions[0].maps)
        };
        assert_eq!((map.name.as_str(), map.spec.frozen), (".rodata", true));
        let variables = objects[0].defined.btf.section_variables(".rodata");
        assert!(
            variables.is_sorted_by_key(|variable| variable.offset),
            "{variables:?}"
        );
        for bytes in sizes {
            let name = format!("of{bytes}");
            let variable = variables
                .iter()
                .find(|variable| variable.name == name)
                .unwrap();
            let expected: Vec<u8> = (0..bytes).map(|index| (bytes + index) as u8).collect();
            assert_eq!(
                map.spec.initial[variable.offset..][..bytes],
                expected,
                "{name}: {variables:?}"
            );
        }
    }
}

/// The daemon makes a plan before it compares the number of maps with the limit.
#[test]
fn many_maps_are_planned() {
    plan_many_maps();
}

/// A plan takes time in proportion to its maps.
#[timed("it measures how long a plan takes")]
fn many_maps_are_planned_in_time() {
    let taken = plan_many_maps();
    assert!(taken < Duration::from_secs(8), "{taken:?}");
}

/// Returns the time that the plan takes.
fn plan_many_maps() -> Duration {
    let map =
        "struct { __uint(type, 1); __uint(max_entries, 4); __type(key, u32); __type(value, u64); }";
    let maps: String = (0..4000)
        .map(|index| format!("{map} m{index} SEC(\".maps\");\n"))
        .collect();
    let elf = compile(&format!(
        "{maps}SEC(\"xdp\") int see(void *ctx) {{ return 2; }}"
    ));
    let begun = Instant::now();
    let (plan, _, findings) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
    let taken = begun.elapsed();
    assert_eq!(
        (plan.directions[0].maps.len(), findings),
        (4000, Vec::new())
    );
    taken
}

#[test]
fn objects_without_one_entry_point_are_refused() {
    let two =
        "SEC(\"xdp\") int a(void *ctx) { return 2; } SEC(\"xdp\") int b(void *ctx) { return 2; }";
    for (source, words) in [
        (two, "2 entry points: a, b; choose one by the field entry"),
        (
            "SEC(\"tc\") int a(void *ctx) { return 0; }",
            "a is in SEC(\"tc\"), and the hook xdp runs other programs; write SEC(\"xdp\")",
        ),
        (
            "SEC(\"maps\") int legacy; SEC(\"xdp\") int a(void *ctx) { return 2; }",
            "error parsing map `legacy`",
        ),
    ] {
        let elf = compile(source);
        let (plan, _, findings) =
            ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
        assert!(plan.directions.is_empty());
        let [finding] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert_eq!(
            (finding.stage, finding.field.as_deref()),
            (Stage::Load, Some("ingress.source"))
        );
        assert!(finding.message.contains(words), "{}", finding.message);
    }
    let (_, _, findings) =
        ProbePlan::build([(at(Hook::Xdp, Vec::new()), HEADER.as_bytes())], &[], FACTS);
    assert!(
        findings[0].message.contains("not an ELF file"),
        "{findings:?}"
    );
}

#[test]
fn the_section_decides_about_packets_of_several_buffers() {
    let none = KernelFacts {
        xdp_frags: false,
        ..FACTS
    };
    let build = |section: &str, facts| {
        let elf = compile(&format!(
            "SEC(\"{section}\") int see(void *ctx) {{ return 2; }}"
        ));
        let (plan, _, findings) =
            ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], facts);
        (plan.directions.first().map(|plan| plan.frags), findings)
    };
    assert_eq!(build("xdp", FACTS), (Some(false), Vec::new()));
    assert_eq!(build("xdp", none), (Some(false), Vec::new()));
    assert_eq!(build("xdp.frags", FACTS), (Some(true), Vec::new()));
    let (plan, findings) = build("xdp.frags", none);
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!(
        (plan, finding.stage, finding.field.as_deref()),
        (None, Stage::Load, Some("ingress.source"))
    );
    assert!(
        finding.message.contains("see is in SEC(\"xdp.frags\")"),
        "{}",
        finding.message
    );
    assert!(
        finding.message.contains("write SEC(\"xdp\")"),
        "{}",
        finding.message
    );

    let elf = compile("SEC(\"xdp.frags\") int see(void *ctx) { return 2; }");
    let (plan, ..) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
    assert!(!plan.without_frags().directions[0].frags);
}

#[test]
fn the_time_of_day_is_filled_in() {
    let source = "static const volatile u64 other = 5, twinprobe_epoch_base;
        u64 see(void) { return other + twinprobe_epoch_base; }";
    let (plan, findings) = compiled(source, Vec::new());
    assert_eq!(findings, []);
    let data = &plan.directions[0].map(".rodata").unwrap().spec.initial;
    let words: Vec<&[u8]> = data.chunks(8).collect();
    assert_eq!(
        words,
        [5_u64.to_le_bytes(), FACTS.monotonic_zero_ns.to_le_bytes()]
    );
}
