//! Damaged objects are refused or judged: nothing in them ends the daemon.

use twinprobe_ebpf_common::hook::Hook;

use crate::admit::admission;
use crate::load::bind;
use crate::plan::probe_plan::ProbePlan;
use crate::plan::tests::scene::{FACTS, at, compile, live};

const SOURCE: &str = r#"
    struct { __uint(type, 1); __uint(max_entries, 4); __type(key, u32); __type(value, u64); } counts SEC(".maps");
    u64 packets, limit = 3;
    static const u64 table[9] = { 70, 1, 900, 22, 5, 81, 2, 2, 60 };
    static __attribute__((noinline)) int weigh(u32 number) { limit += table[number & 7]; return limit; }
    static void *(*lookup)(void *, const void *) = (void *)1;
    SEC("xdp") int see(void *ctx)
    {
        u32 key = packets;
        u64 *value = lookup(&counts, &key);
        packets++;
        if (value)
            *value += weigh(key);
        return 2;
    }"#;

/// Plans an object and judges its program. Fails with the reason for a refusal.
fn admit(elf: &[u8]) -> Result<(), String> {
    let (plan, objects, findings) =
        ProbePlan::build([(at(Hook::Xdp, vec![live("counts")]), elf)], &[], FACTS);
    let (Some(plan), Some(object)) = (plan.directions.first(), objects.first()) else {
        return Err(format!("{findings:?}"));
    };
    let resolved = bind::resolve(object).map_err(|error| error.to_string())?;
    admission::references(plan, object, &resolved).map_err(|refused| format!("{refused:?}"))?;
    let function = bind::link(resolved.into_owned(), plan).map_err(|error| error.to_string())?;
    admission::program(plan, object, &function)
        .map(drop)
        .map_err(|refused| format!("{refused:?}"))
}

#[test]
fn a_damaged_object_is_refused_or_judged() {
    let object = compile(SOURCE);
    admit(&object).unwrap();
    let mut random = super::random();
    let count = super::scaled(1000, 200_000);
    let admitted = (0..count).filter(|_| {
        let mut damaged = object.clone();
        match random.below(8) {
            0 => damaged.truncate(random.below(object.len())),
            // The headers of the object, in which a changed byte has the largest effect.
            1 => damaged[random.below(64)] = random.next() as u8,
            2 => {
                let headers = damaged.len().saturating_sub(64 * 20);
                let place = headers + random.below(damaged.len() - headers);
                damaged[place] = random.next() as u8;
            }
            _ => {
                for _ in 0..1 + random.below(6) {
                    let place = random.below(object.len());
                    damaged[place] = [0, 0xff, random.next() as u8][random.below(3)];
                }
            }
        }
        admit(&damaged).is_ok()
    });
    assert!((admitted.count() as u64) < count);
}

/// Compilers sort these records by the offset of the instruction.
#[test]
fn records_of_lines_may_stand_in_any_order() {
    let (plan, objects, _) = ProbePlan::build(
        [(at(Hook::Xdp, Vec::new()), &compile(SOURCE)[..])],
        &[],
        FACTS,
    );
    let mut function = bind::link(objects[0].program.clone(), &plan.directions[0]).unwrap();
    let last = function.instructions.len() - 1;
    let first = objects[0].position(&function, 0);
    assert!(first.is_some());
    // Move all other records before the first one.
    function.line_info.line_info[0].insn_off = u32::MAX;
    assert_eq!(objects[0].position(&function, last), first);
}

/// A source that was made from another file has the lines of that file.
#[test]
fn a_refusal_names_the_file_of_its_line() {
    for (file, own) in [
        ("made.c", false),
        ("xprobe.c", false),
        ("/a/made.c", false),
        ("probe.c", true),
    ] {
        let source = format!(
            "struct xdp_md {{ u32 data, data_end; }};\n#line 30 \"{file}\"\n\
             SEC(\"xdp\") int see(struct xdp_md *ctx)\n{{\n\tu32 *at = (u32 *)(long)ctx->data;\n\
             \tif (at + 1 > (u32 *)(long)ctx->data_end)\n\t\treturn 2;\n\t*at = 1;\n\treturn 2;\n}}"
        );
        let (plan, objects, _) = ProbePlan::build(
            [(at(Hook::Xdp, Vec::new()), &compile(&source)[..])],
            &[],
            FACTS,
        );
        let function = bind::link(objects[0].program.clone(), &plan.directions[0]).unwrap();
        let refused = admission::program(&plan.directions[0], &objects[0], &function).unwrap_err();
        let [finding] = &refused.findings[..] else {
            panic!("{refused:?}")
        };
        assert_eq!(finding.line, own.then_some(35), "{finding:?}");
        let named = format!("in {file}:35: the program writes");
        assert_eq!(finding.message.starts_with(&named), !own, "{finding:?}");
    }
}
