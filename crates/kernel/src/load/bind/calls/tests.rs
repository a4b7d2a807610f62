use twinprobe_ebpf_common::hook::{Hook, ProgramKind};

use super::*;
use crate::admit::admission;
use crate::admit::flow::conduct;
use crate::load::bind;
use crate::plan::probe_plan::ProbePlan;
use crate::plan::tests::scene::{FACTS, at, compile};

/// Tables with programs, and a call of a program through a table.
const TABLES: &str = r#"
    static long (*tail_call)(void *, void *, u32) = (void *)12;
    #define TABLE(NAME, ...) struct { \
        __uint(type, 3); __uint(max_entries, 8); __uint(key_size, 4); int (*values[])(void *); \
    } NAME SEC(".maps") = { .values = { __VA_ARGS__ } };
    #define PROGRAM SEC("xdp")
    u64 seen[4];
"#;

/// Returns the joined program of a source, or the reason why it can't be joined.
fn joined(source: &str) -> Result<(Vec<bpf_insn>, Vec<String>), String> {
    let elf = compile(&format!("{TABLES}{source}"));
    let (plan, objects, findings) =
        ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
    let (Some(plan), Some(object)) = (plan.directions.first(), objects.first()) else {
        return Err(format!("{findings:?}"));
    };
    let resolved = bind::resolve(object).map_err(|error| error.to_string())?;
    let function = bind::link(resolved.into_owned(), plan).map_err(|error| error.to_string())?;
    admission::program(plan, object, &function).map_err(|refused| format!("{refused:?}"))?;
    // One record for each function, and each with a line.
    let starts: Vec<u32> = function
        .func_info
        .func_info
        .iter()
        .map(|record| record.insn_off)
        .collect();
    let lines: Vec<u32> = function
        .line_info
        .line_info
        .iter()
        .map(|record| record.insn_off)
        .collect();
    assert!(
        starts.is_sorted_by(|one, other| one < other)
            && lines.is_sorted_by(|one, other| one < other)
    );
    assert!(
        starts.iter().all(|start| lines.contains(start)),
        "{starts:?} {lines:?}"
    );
    Ok((function.instructions, plan.others.clone()))
}

const TWO: &str = r#"
    int first(void *ctx); int second(void *ctx);
    TABLE(steps, [1] = first, [3] = second)
    PROGRAM int entry(void *ctx) { tail_call(ctx, &steps, seen[0] & 7); seen[0]++; return 2; }
    PROGRAM int first(void *ctx) { seen[1]++; tail_call(ctx, &steps, 3); return 2; }
    PROGRAM int second(void *ctx) { seen[2]++; tail_call(ctx, &steps, 1); return 2; }
"#;

#[test]
fn programs_of_a_table_become_functions_of_one_program() {
    let (program, left_out) = joined(TWO).unwrap();
    assert!(left_out.is_empty(), "{left_out:?}");
    assert_eq!(tail_calls(&program).count(), 0);
    // The loop calls each of the three programs.
    let calls = (0..program.len())
        .filter(|at| matches!(decode(&program, *at), Ok((Instruction::Call(_), _))))
        .count();
    assert_eq!(calls, 3);
    assert!(conduct(&program, ProgramKind::Xdp, &[]).acts.is_empty());
}

#[test]
fn what_is_called_is_judged_as_what_calls() {
    let with = |body: &str| {
        joined(&format!(
            "struct xdp {{ u32 data, data_end; }};
             int other(struct xdp *ctx); TABLE(steps, [1] = (void *)&other)
             PROGRAM int entry(struct xdp *ctx) {{ tail_call(ctx, &steps, 1); return 2; }}
             PROGRAM int other(struct xdp *ctx) {{ char *data = (void *)(long)ctx->data; u64 *all = seen; {body} return 2; }}"
        ))
    };
    with("if (data + 1 <= (char *)(long)ctx->data_end) seen[0] += *data;").unwrap();
    let refused = |body: &str, words: &str| {
        let refusal = with(body).unwrap_err();
        assert!(refusal.contains(words), "{refusal}");
    };
    refused(
        "if (data + 1 <= (char *)(long)ctx->data_end) *data = 1;",
        "writes to the packet",
    );
    refused("seen[0] = (u64)data;", "stores a pointer");
    refused("return (int)(long)data;", "returns a pointer");
}

#[test]
fn calls_that_can_not_be_told_are_refused() {
    let refused = |source: &str, words: &str| {
        let refusal = joined(source).map(drop).unwrap_err();
        assert!(refusal.contains(words), "{refusal}");
    };
    refused(
        "int other(void *ctx); TABLE(steps, [1] = other)
         static __attribute__((noinline)) int go(void *ctx) { tail_call(ctx, &steps, 1); return seen[0]; }
         PROGRAM int entry(void *ctx) { return go(ctx) ? 2 : 1; }
         PROGRAM int other(void *ctx) { return 2; }",
        "entry calls bpf_tail_call in a function of its own",
    );
    refused(
        "int other(void *ctx); TABLE(one, [1] = other) TABLE(two, [1] = other)
         PROGRAM int entry(void *ctx) {
             void *table = seen[0] ? (void *)&one : (void *)&two;
             asm volatile(\"\" : \"+r\"(table)); tail_call(ctx, table, 1); return 2;
         }
         PROGRAM int other(void *ctx) { return 2; }",
        "does not show which table",
    );
}

/// A loader may fill a table while the program runs. Here nothing does, and the program continues
/// after each call.
#[test]
fn calls_through_a_table_that_nothing_fills_do_nothing() {
    const EMPTY: &str =
        "struct { __uint(type, 3); __uint(max_entries, 8); __uint(key_size, 4); __uint(value_size, 4); } empty SEC(\".maps\");
         struct xdp { u32 data, data_end; };
         static __attribute__((noinline)) int go(struct xdp *ctx) { tail_call(ctx, &empty, seen[0]); return seen[1]; }\n";
    let with = |body: &str| {
        joined(&format!(
            "{EMPTY}PROGRAM int entry(struct xdp *ctx) {{
                 char *data = (void *)(long)ctx->data; tail_call(ctx, &empty, 1); {body} return go(ctx) ? 2 : 1; }}"
        ))
    };
    let (program, _) = with("seen[0] += 1;").unwrap();
    assert_eq!(tail_calls(&program).count(), 0);
    let refusal = with("if (data + 1 <= (char *)(long)ctx->data_end) *data = 1;")
        .map(drop)
        .unwrap_err();
    assert!(refusal.contains("writes to the packet"), "{refusal}");
}
