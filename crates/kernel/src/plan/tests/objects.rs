//! Plans of whole probes, from objects that clang writes.

use twinprobe_ebpf_common::finding::Stage;
use twinprobe_ebpf_common::hook::Hook;

use super::scene::{FACTS, HEADER, at, compile, compiled, live, private, window};
use crate::plan::probe_plan::ProbePlan;

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
    assert_eq!(direction.inner_names(outer).collect::<Vec<_>>(), [(1, "one"), (4, "two"), (6, "hidden")]);
    assert_eq!(private(direction), ["hidden", "one", "outer", "two"]);
    let inner = outer.spec.inner.as_ref().unwrap();
    assert_eq!((inner.map_type, inner.key_size, inner.value_size, inner.max_entries), (1, 4, 8, 4));
}

#[test]
fn each_direction_is_planned_and_the_mistakes_of_both_are_found() {
    let xdp = compile("u64 packets; SEC(\"xdp\") int see(void *ctx) { packets++; return 2; }");
    let tc = compile("u64 packets; SEC(\"tc\") int watch(void *ctx) { packets++; return 0; }");
    let good = || vec![live(".bss:packets")];
    let build = |ingress, egress| {
        ProbePlan::build(
            [(at(Hook::Xdp, ingress), &xdp[..]), (at(Hook::TcEgress, egress), &tc[..])],
            &[],
            FACTS,
        )
    };
    let (plan, objects, findings) = build(good(), good());
    assert_eq!((objects.len(), findings), (2, Vec::new()));
    let entries: Vec<_> =
        plan.directions.iter().map(|plan| (plan.direction(), plan.entry.as_str())).collect();
    assert_eq!(entries, [("ingress", "see"), ("egress", "watch")]);

    let (plan, objects, findings) = build(vec![live("a")], vec![live("b")]);
    assert_eq!((plan.directions.len(), objects.len()), (0, 0));
    let fields: Vec<_> = findings.iter().filter_map(|finding| finding.field.as_deref()).collect();
    assert_eq!(fields, ["ingress.metrics[0].map", "egress.metrics[0].map"]);

    // The plan of the directions without mistakes is usable, so that the kernel's findings about them are reported as
    // well.
    let (plan, objects, findings) = build(vec![live("a")], good());
    assert_eq!((plan.directions[0].entry.as_str(), objects.len(), findings.len()), ("watch", 1, 1));
}

#[test]
fn objects_without_one_entry_point_are_refused() {
    let two = "SEC(\"xdp\") int a(void *ctx) { return 2; } SEC(\"xdp\") int b(void *ctx) { return 2; }";
    for (source, words) in [
        (two, "2 entry points: a, b; the source needs exactly one program in SEC(\"xdp\")"),
        (
            "SEC(\"tc\") int a(void *ctx) { return 0; }",
            "no entry point: the source needs one program in SEC(\"xdp\"); a",
        ),
        ("SEC(\"maps\") int legacy; SEC(\"xdp\") int a(void *ctx) { return 2; }", "legacy map definitions"),
    ] {
        let elf = compile(source);
        let (plan, _, findings) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
        assert!(plan.directions.is_empty());
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((finding.stage, finding.field.as_deref()), (Stage::Load, Some("ingress.source")));
        assert!(finding.message.contains(words), "{}", finding.message);
    }
    let (_, _, findings) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), HEADER.as_bytes())], &[], FACTS);
    assert!(findings[0].message.contains("not an ELF object"), "{findings:?}");
}
