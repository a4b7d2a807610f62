//! Calls of `bpf_trace_printk`. The helper function takes three numbers for its format in any case, and reads as many as
//! the format asks for. A compiler leaves in the other registers what happens to be there, an address perhaps, which the
//! analysis would take for a number that the program prints. Where the format is known, they become 0.

use std::collections::{BTreeMap, HashSet};

use aya_obj::Function;
use aya_obj::generated::{BPF_PSEUDO_MAP_VALUE, bpf_func_id, bpf_insn};

use crate::admit::instruction::{Instruction, InstructionIndex, LOAD_64, decode};
use crate::load::rewrite::{Rewriting, rewrite};
use crate::plan::elf::tables::CallError;
use crate::plan::probe_plan::MapPlan;
use crate::sys::asm::{add_imm, call_helper, exit, jump, mov, mov_imm, mov_imm32};

const PRINT: u32 = bpf_func_id::BPF_FUNC_trace_printk as u32;
/// The registers of the format, of its length, and of the first and the last number for it.
const FORMAT: usize = 1;
const LENGTH: usize = 2;
const NUMBERS: (u8, u8) = (3, 5);
const STACK: u8 = 10;
/// The class of an instruction, in the lowest bits of its code.
const CLASS: u8 = 0x07;
const STORE_NUMBER: u8 = 0x02;
const STORE: u8 = 0x03;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
/// The size and the mode of an access to memory, in the upper bits of its code.
const SIZE: u8 = 0x18;
const MODE: u8 = 0xe0;
const PLAIN: u8 = 0x60;

/// The content of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeldByRegister {
    #[default]
    Anything,
    Number(u64),
    /// The address of a byte of the stack.
    Stack(i64),
    /// The address of a byte in the value of a map.
    Value(usize, usize),
}

/// The knowledge about a block of instructions that run one after the other.
#[derive(Default)]
struct PrintBlock {
    registers: [HeldByRegister; 11],
    stack: BTreeMap<i64, u8>,
}

/// Returns a linked program that clears the registers which a format does not use.
pub fn clear(function: Function, maps: &[MapPlan]) -> Result<Function, CallError> {
    let program = &function.instructions;
    let is_print =
        |at: &InstructionIndex| matches!(decode(program, *at), Ok((Instruction::CallHelper(PRINT), _)));
    let prints: Vec<InstructionIndex> = (0..program.len()).filter(is_print).collect();
    if prints.is_empty() {
        return Ok(function);
    }
    let targets = targets(program);
    let calls = prints.into_iter().filter_map(|at| Some((at, used(program, at, &targets, maps)?)));
    let calls: Vec<(InstructionIndex, usize)> = calls.collect();
    if calls.is_empty() {
        return Ok(function);
    }
    let change = |at: InstructionIndex, insn: &bpf_insn| match calls.iter().find(|(call, _)| *call == at) {
        Some((_, used)) => {
            let unused = (NUMBERS.0..=NUMBERS.1).skip(*used).map(|register| mov_imm(register, 0));
            Rewriting::Replace(unused.chain([*insn]).collect())
        }
        None => Rewriting::Keep,
    };
    let (changed, instructions) = rewrite(&function, program, change).map_err(|_| CallError::TooLong)?;
    Ok(Function { instructions, ..changed })
}

/// Returns how many numbers the format of a call asks for, if it is a constant of the source.
fn used(
    program: &[bpf_insn],
    at: InstructionIndex,
    targets: &HashSet<InstructionIndex>,
    maps: &[MapPlan],
) -> Option<usize> {
    let is_end = |insn: &bpf_insn| insn.code == exit().code || insn.code == jump(0).code;
    let begins = |place: &usize| targets.contains(place) || *place == 0 || is_end(&program[*place - 1]);
    let begin = (0..=at).rev().find(begins)?;
    let mut block = PrintBlock::default();
    block.registers[usize::from(STACK)] = HeldByRegister::Stack(0);
    let mut next = begin;
    while next < at {
        block.run(&program[next], program.get(next + 1));
        next += if program[next].code == LOAD_64 { 2 } else { 1 };
    }
    let HeldByRegister::Number(length) = block.registers[LENGTH] else { return None };
    let length = usize::try_from(length).ok()?;
    match block.registers[FORMAT] {
        HeldByRegister::Value(map, begin) => {
            // A program can't write to a constant, and no client can.
            let constants = &maps.get(map).filter(|map| map.spec.frozen && map.fill.is_empty())?.spec.initial;
            conversions(constants.get(begin..begin.checked_add(length)?)?)
        }
        HeldByRegister::Stack(begin) => {
            let bytes =
                (0..i64::try_from(length).ok()?.min(512)).map(|at| block.stack.get(&(begin + at)).copied());
            conversions(&bytes.collect::<Option<Vec<u8>>>()?)
        }
        _ => None,
    }
}

impl PrintBlock {
    /// Takes in an instruction. `second` is the one behind it, which may be its second half.
    fn run(&mut self, insn: &bpf_insn, second: Option<&bpf_insn>) {
        let (to, from) = (usize::from(insn.dst_reg()), usize::from(insn.src_reg()));
        match insn.code & CLASS {
            JUMP | JUMP_32 if insn.code == call_helper(0).code => {
                self.registers[..=5].fill(HeldByRegister::Anything);
                // The function may write to the stack.
                self.stack.clear();
            }
            JUMP | JUMP_32 => {}
            STORE_NUMBER | STORE => self.store(insn),
            _ => {
                let held = self.result(insn, self.get(from), second);
                if let Some(register) = self.registers.get_mut(to) {
                    *register = held;
                }
                if insn.code & (CLASS | MODE) == 0x20 || insn.code & (CLASS | MODE) == 0x40 {
                    // The old loads from packets change these registers.
                    self.registers[..=5].fill(HeldByRegister::Anything);
                }
            }
        }
    }

    fn get(&self, register: usize) -> HeldByRegister {
        self.registers.get(register).copied().unwrap_or_default()
    }

    /// Returns what an instruction puts into its register.
    fn result(&self, insn: &bpf_insn, from: HeldByRegister, second: Option<&bpf_insn>) -> HeldByRegister {
        let number = i64::from(insn.imm) as u64;
        let upper = second.map_or(0, |second| u64::from(second.imm as u32));
        match (insn.code, u32::from(insn.src_reg())) {
            (LOAD_64, 0) => HeldByRegister::Number(upper << 32 | u64::from(insn.imm as u32)),
            (LOAD_64, BPF_PSEUDO_MAP_VALUE) => HeldByRegister::Value(insn.imm as usize, upper as usize),
            (code, _) if code == mov_imm(0, 0).code => HeldByRegister::Number(number),
            (code, _) if code == mov_imm32(0, 0).code => HeldByRegister::Number(number & u64::from(u32::MAX)),
            (code, _) if code == mov(0, 0).code && insn.off == 0 => from,
            (code, _) if code == add_imm(0, 0).code => match self.get(usize::from(insn.dst_reg())) {
                HeldByRegister::Stack(at) => HeldByRegister::Stack(at.wrapping_add(i64::from(insn.imm))),
                _ => HeldByRegister::Anything,
            },
            _ => HeldByRegister::Anything,
        }
    }

    fn store(&mut self, insn: &bpf_insn) {
        let width: i64 = match insn.code & SIZE {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        };
        let value = match insn.code & CLASS {
            STORE_NUMBER => HeldByRegister::Number(i64::from(insn.imm) as u64),
            _ => self.get(usize::from(insn.src_reg())),
        };
        let HeldByRegister::Stack(base) = self.get(usize::from(insn.dst_reg())) else {
            // The address may be one of the stack.
            self.stack.clear();
            return;
        };
        if insn.code & MODE != PLAIN {
            // An atomic operation may put the old value into a register.
            *self = Self { registers: [HeldByRegister::Anything; 11], stack: BTreeMap::new() };
            return;
        }
        let at = base.wrapping_add(i64::from(insn.off));
        for (index, place) in (at..at.saturating_add(width)).enumerate() {
            match value {
                HeldByRegister::Number(number) => _ = self.stack.insert(place, number.to_le_bytes()[index]),
                _ => _ = self.stack.remove(&place),
            }
        }
    }
}

/// Returns the number of conversions in a format.
fn conversions(format: &[u8]) -> Option<usize> {
    let end = format.iter().position(|byte| *byte == 0)?;
    let (mut count, mut rest) = (0, &format[..end]);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let is_sign = rest.get(at + 1) == Some(&b'%');
        count += usize::from(!is_sign);
        rest = &rest[at + 1 + usize::from(is_sign)..];
    }
    Some(count)
}

/// Returns the instructions that others lead to.
fn targets(program: &[bpf_insn]) -> HashSet<InstructionIndex> {
    let targets = (0..program.len()).filter_map(|from| match decode(program, from) {
        Ok((
            Instruction::Jump(target)
            | Instruction::Branch(target)
            | Instruction::Call(target)
            | Instruction::Function { entry: target, .. },
            _,
        )) => Some(target),
        _ => None,
    });
    targets.collect()
}

#[cfg(test)]
mod tests {
    use crate::admit::admission;
    use crate::load::bind;
    use crate::plan::probe_plan::ProbePlan;
    use crate::plan::tests::scene::{FACTS, at, compile};
    use twinprobe_ebpf_common::hook::Hook;

    /// Returns the refusals of a program that prints by `body`.
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
        let (plan, objects, findings) = ProbePlan::build([(at(Hook::Xdp, Vec::new()), &elf[..])], &[], FACTS);
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
        for body in ["PRINT(\"seen\");", "PRINT(\"%d %%\", 7);"] {
            assert_eq!(refusals(body), "", "{body}");
        }
    }

    #[test]
    fn what_a_format_may_read_is_printed() {
        for body in [
            "PRINT(\"%lx\", data);",
            "PRINT(\"%d %%%lx\", 7, end);",
            // The format may be any text.
            "char format[] = \"%lx\"; print(format, sizeof(format), data);",
            "print(changeable, sizeof(changeable), data);",
            "static const char one[] = \"none\", other[] = \"%lx.\";
             print(seen[0] ? one : other, 5, data);",
        ] {
            assert!(refusals(body).contains("bpf_trace_printk, which shows it"), "{body}");
        }
    }
}
