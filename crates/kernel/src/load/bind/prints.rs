//! Calls that print. `bpf_trace_printk` takes three numbers for its format in any case, and reads
//! as many as the format asks for. A compiler leaves old content in the other registers, perhaps an
//! address, and the analysis would treat it as a printed number. With a known format, these
//! registers become 0. The result, the length of the print, becomes 0 everywhere: it would tell the
//! program about memory that only the format reads.

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::admit::flow::formats::{self, PRINT};
use crate::admit::instruction::{Instruction, InstructionIndex, decode};
use crate::load::rewrite::{Rewriting, rewrite};
use crate::plan::elf::tables::CallError;
use crate::plan::probe_plan::MapPlan;
use crate::sys::asm::mov_imm;

/// The registers of the first and the last number for the format.
const NUMBERS: (u8, u8) = (3, 5);
/// The register of the result.
const RESULT: u8 = 0;

/// Returns a linked program that clears the registers which a format does not use, and the results
/// of printing calls.
pub fn clear(function: Function, maps: &[MapPlan]) -> Result<Function, CallError> {
    let program = &function.instructions;
    let prints: Vec<InstructionIndex> = formats::prints(program).collect();
    if prints.is_empty() {
        return Ok(function);
    }
    let known = formats::formats(program, maps);
    let change = |at: InstructionIndex, insn: &bpf_insn| {
        if !prints.contains(&at) {
            return Rewriting::Keep;
        }
        let is_short = matches!(decode(program, at), Ok((Instruction::CallHelper(PRINT), _)));
        let used = known
            .get(&at)
            .filter(|_| is_short)
            .map_or(usize::MAX, Vec::len);
        let unused = (NUMBERS.0..=NUMBERS.1)
            .skip(used)
            .map(|register| mov_imm(register, 0));
        Rewriting::Replace(unused.chain([*insn, mov_imm(RESULT, 0)]).collect())
    };
    let (changed, instructions) =
        rewrite(&function, program, change).map_err(|_| CallError::TooLong)?;
    Ok(Function {
        instructions,
        ..changed
    })
}

#[cfg(test)]
mod tests {
    use crate::admit::admission;
    use crate::load::bind;
    use crate::plan::probe_plan::ProbePlan;
    use crate::plan::tests::scene::{FACTS, at, compile};
    use twinprobe_ebpf_common::hook::Hook;

    /// Returns the reasons to refuse a program that prints by `body`.
    fn refusals(body: &str) -> String {
        let elf = compile(&format!(
            "struct xdp {{ u32 data, data_end; }};
             static int (*print)(const char *format, u32 size, ...) = (void *)6;
             #define PRINT(FORMAT, ...) ({{ static const char format[] = FORMAT; print(format, sizeof(format), ##__VA_ARGS__); }})
             u64 seen[4]; char changeable[] = \"none\";
             SEC(\"xdp\") int entry(struct xdp *ctx)
             {{
                 register u64 data asm(\"r3\") = ctx->data, end asm(\"r4\") = ctx->data_end;
                 asm volatile(\"\" : \"+r\"(data), \"+r\"(end));
                 {body}
                 return 2;
             }}"
        ));
        let (plan, objects, findings) =
            ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
        let (Some(plan), Some(object)) = (plan.directions.first(), objects.first()) else {
            panic!("{findings:?}");
        };
        let function = bind::linked(object, plan).unwrap();
        admission::program(plan, object, &function)
            .err()
            .map_or_else(String::new, |refused| format!("{refused:?}"))
    }

    #[test]
    fn what_no_format_reads_is_not_printed() {
        for body in [
            "PRINT(\"seen\");",
            "PRINT(\"%d %%\", 7);",
            // The print shows the bytes to which a pointer leads, and not the pointer.
            "PRINT(\"%pI4 %s\", data, seen);",
            "static const char one[] = \"none\", other[] = \"no...\";
             if (seen[0]) print(one, 5); else if (seen[1]) print(other, 6);",
            // The result is the same for all formats and all memory.
            "seen[0] = PRINT(\"%s\", data);",
        ] {
            assert_eq!(refusals(body), "", "{body}");
        }
    }

    #[test]
    fn what_a_format_may_read_is_printed() {
        for body in [
            "PRINT(\"%lx\", data);",
            "PRINT(\"%d %%%lx\", 7, end);",
            "PRINT(\"%s %p\", data, end);",
            "PRINT(\"%s\", ctx);",
            // The format may be any text.
            "char format[] = \"%lx\"; print(format, sizeof(format), data);",
            "print(changeable, sizeof(changeable), data);",
            "static const char one[] = \"none\", other[] = \"%lx.\";
             print(seen[0] ? one : other, 5, data);",
        ] {
            assert!(
                refusals(body).contains("bpf_trace_printk, which shows it"),
                "{body}"
            );
        }
    }
}
