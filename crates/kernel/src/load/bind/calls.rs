//! Calls of programs through tables (`bpf_tail_call`). The kernel empties a table that no process
//! has open, and each twin would need tables of its own, with programs of its own. So the programs
//! in the tables of an object become functions of one program. A call ends its function with the
//! number of the next one above the bits of the verdict, and a loop around all functions calls that
//! one. The analysis follows them like any function.

use std::collections::BTreeMap;

use aya_obj::Function;
use aya_obj::generated::{BPF_PSEUDO_MAP_FD, bpf_insn};
use twinprobe_ebpf_common::unit::Calls;

use crate::admit::instruction::{Instruction, InstructionIndex, LOAD_64, decode};
use crate::load::rewrite::{Rewriting, TooLong, rewrite};
use crate::plan::elf::tables::{CallError, MAX_SLOTS};
use crate::sys::asm::{
    HELPER_TAIL_CALL, add_imm, call_subprogram, exit, jump, jump_eq, jump_gt_imm, mov, mov_imm,
};

/// The most calls that the kernel allows for a packet.
const MAX_CALLS: i32 = 33;
/// The registers that contain the table and the slot of a call.
const TABLE: u8 = 2;
const SLOT: u8 = 3;
/// The number of instructions of each call in the loop, and of the code for each slot.
const CALL: usize = 3;
const LEAVE: usize = 3;
/// The mask of an instruction's class (the lowest bits of its code), and the classes of
/// instructions that write to memory or jump.
const CLASS: u8 = 0x07;
const WITHOUT_RESULT: [u8; 4] = [0x02, 0x03, 0x05, 0x06];

/// Returns the program `entry` with all programs that it calls through `tables`. `first` is the
/// number by which instructions refer to the first table; a packet with too many calls gets the
/// verdict `pass`. `linked` returns the program that has a given name.
pub fn join(
    entry: &str,
    tables: &Calls,
    first: usize,
    pass: i32,
    linked: impl Fn(&str) -> Option<Function>,
) -> Result<Option<Function>, CallError> {
    let Some(function) = linked(entry) else {
        return Ok(None);
    };
    if !tail_calls(&function.instructions).any(|_| true) || tables.is_empty() {
        return Ok(Some(function));
    }
    if tables.values().all(BTreeMap::is_empty) {
        return without_calls(&function, first).map(Some);
    }
    let slots: Vec<(&String, &BTreeMap<u32, String>)> = tables.iter().collect();
    if slots.iter().any(|(_, slots)| slots.len() > MAX_SLOTS) {
        return Err(CallError::Many);
    }
    let mut programs = vec![(entry.to_owned(), function)];
    let mut changed: Vec<Function> = Vec::new();
    while let Some((name, function)) = programs.get(changed.len()).cloned() {
        let ends = end_of_program(&function.instructions);
        let mut next = BTreeMap::new();
        for at in tail_calls(&function.instructions) {
            if at >= ends {
                return Err(CallError::InFunction(name));
            }
            let table = table(&function.instructions, at, first).and_then(|table| slots.get(table));
            let (table, slots) = table.ok_or_else(|| CallError::UnknownTable(name.clone()))?;
            let mut numbers = Vec::new();
            for (slot, program) in *slots {
                let number = programs.iter().position(|(known, _)| known == program);
                let number = match number {
                    Some(number) => number,
                    None => {
                        let missing = || CallError::NoProgram {
                            table: (*table).clone(),
                            slot: *slot,
                            program: program.clone(),
                        };
                        programs.push((program.clone(), linked(program).ok_or_else(missing)?));
                        programs.len() - 1
                    }
                };
                numbers.push((*slot, number));
            }
            next.insert(at, numbers);
        }
        if programs.len() > MAX_SLOTS {
            return Err(CallError::Many);
        }
        changed.push(leaving(&function, first, ends, &next).map_err(|_| CallError::TooLong)?);
    }
    Ok(Some(whole(&changed, pass)))
}

/// Returns a program without its calls through tables: nothing fills a table, so that the program
/// continues after each call.
fn without_calls(function: &Function, first: usize) -> Result<Function, CallError> {
    let calls: Vec<InstructionIndex> = tail_calls(&function.instructions).collect();
    let instructions = without_tables(&function.instructions, first);
    let change = |at, _: &bpf_insn| match calls.binary_search(&at) {
        Ok(_) => Rewriting::Replace(vec![mov_imm(0, -libc::ENOENT)]),
        Err(_) => Rewriting::Keep,
    };
    let (changed, instructions) =
        rewrite(function, &instructions, change).map_err(|_| CallError::TooLong)?;
    Ok(Function {
        instructions,
        ..changed
    })
}

/// Returns instructions in which zero replaces the addresses of tables, which have no other use.
fn without_tables(instructions: &[bpf_insn], first: usize) -> Vec<bpf_insn> {
    let mut instructions = instructions.to_vec();
    for insn in &mut instructions {
        if loaded(insn, first).is_some() {
            insn.imm = 0;
            insn.set_src_reg(0);
        }
    }
    instructions
}

fn tail_calls(program: &[bpf_insn]) -> impl Iterator<Item = InstructionIndex> {
    let is_call = |at: &InstructionIndex| {
        decode(program, *at).is_ok_and(|(instruction, _)| {
            matches!(instruction, Instruction::CallHelper(helper) if helper == HELPER_TAIL_CALL as u32)
        })
    };
    (0..program.len()).filter(is_call)
}

/// Returns the end of the program itself, where the linked functions begin.
fn end_of_program(program: &[bpf_insn]) -> InstructionIndex {
    let entries = (0..program.len()).filter_map(|at| match decode(program, at) {
        Ok((Instruction::Call(entry) | Instruction::Function { entry, .. }, _)) => Some(entry),
        _ => None,
    });
    entries
        .filter(|entry| *entry > 0)
        .min()
        .unwrap_or(program.len())
}

/// Returns the table whose address an instruction loads.
fn loaded(insn: &bpf_insn, first: usize) -> Option<usize> {
    let refers = insn.code == LOAD_64 && u32::from(insn.src_reg()) == BPF_PSEUDO_MAP_FD;
    usize::try_from(insn.imm)
        .ok()
        .filter(|_| refers)?
        .checked_sub(first)
}

/// Returns the table of the call at `at`: the table that is loaded before the call in the same
/// block, or else the only table.
fn table(program: &[bpf_insn], at: InstructionIndex, first: usize) -> Option<usize> {
    let is_target = |place: InstructionIndex| {
        (0..program.len()).any(|from| {
            let target = match decode(program, from) {
                Ok((Instruction::Jump(target) | Instruction::Branch(target), _)) => Some(target),
                _ => None,
            };
            target == Some(place)
        })
    };
    for back in (0..at).rev() {
        if is_target(back + 1) {
            break;
        }
        let insn = &program[back];
        if insn.dst_reg() == TABLE && !WITHOUT_RESULT.contains(&(insn.code & CLASS)) {
            if let Some(table) = loaded(insn, first) {
                return Some(table);
            }
            break;
        }
    }
    let mut all: Vec<usize> = program
        .iter()
        .filter_map(|insn| loaded(insn, first))
        .collect();
    all.sort_unstable();
    all.dedup();
    if let [only] = all[..] {
        Some(only)
    } else {
        None
    }
}

/// Returns a program that ends at each call through a table. Its result is the number of the called
/// program, above the verdict's bits.
fn leaving(
    function: &Function,
    first: usize,
    ends: InstructionIndex,
    next: &BTreeMap<InstructionIndex, Vec<(u32, usize)>>,
) -> Result<Function, TooLong> {
    let instructions = without_tables(&function.instructions, first);
    let change = |at: InstructionIndex, insn: &bpf_insn| match next.get(&at) {
        Some(slots) => Rewriting::Replace(leave(slots)),
        None if at < ends && insn.code == exit().code => Rewriting::Replace(vec![low(0), exit()]),
        None => Rewriting::Keep,
    };
    let (changed, instructions) = rewrite(function, &instructions, change)?;
    Ok(Function {
        instructions,
        ..changed
    })
}

/// Returns the code for a call: it ends the function if the slot has a program, and continues
/// otherwise.
fn leave(slots: &[(u32, usize)]) -> Vec<bpf_insn> {
    let count = slots.len();
    let mut out = vec![low(SLOT)];
    for (index, (slot, _)) in slots.iter().enumerate() {
        // The jump passes the comparisons after this one, the final jump, and the code of the slots
        // before it.
        let distance = (count - 1 - index) + 1 + LEAVE * index;
        out.push(jump_eq(SLOT, *slot as i32, distance as i16));
    }
    out.push(jump((LEAVE * count) as i16));
    for (_, number) in slots {
        out.extend([
            insn(LOAD_64, 0, 0, 0),
            insn(0, 0, 0, *number as i32 + 1),
            exit(),
        ]);
    }
    out
}

/// Returns the loop around the programs, and the programs after it.
fn whole(programs: &[Function], pass: i32) -> Function {
    let count = programs.len();
    let check = 2 + CALL * count;
    let over = check + 5 + count;
    let mut entries = Vec::with_capacity(count);
    let mut end = over + 2;
    for program in programs {
        entries.push(end);
        end += program.instructions.len();
    }
    // The distance from the instruction after `from`.
    let far = |from: usize, to: usize| (to as i64 - from as i64 - 1) as i32;
    let mut out = vec![mov(6, 1), mov_imm(7, 0)];
    for entry in &entries {
        let at = out.len();
        let back = jump(far(at + 2, check) as i16);
        out.extend([mov(1, 6), call_subprogram(far(at + 1, *entry)), back]);
    }
    let leaves = jump_eq(1, 0, far(check + 2, over + 1) as i16);
    let too_many = jump_gt_imm(7, MAX_CALLS, far(check + 4, over) as i16);
    out.extend([
        mov(1, 0),
        insn(0x77, 1, 0, 32),
        leaves,
        add_imm(7, 1),
        too_many,
    ]);
    for number in 0..count {
        out.push(jump_eq(
            1,
            number as i32 + 1,
            far(out.len(), 2 + CALL * number) as i16,
        ));
    }
    out.extend([mov_imm(0, pass), exit()]);
    let mut whole = programs[0].clone();
    // The loop has the type and the first line of the entry point.
    whole.func_info.func_info.truncate(1);
    whole.line_info.line_info.truncate(1);
    add_records(&mut whole, programs, &entries);
    for program in programs {
        out.extend(&program.instructions);
    }
    whole.instructions = out;
    whole
}

/// Adds the records about functions and lines of the programs, which begin at `entries`.
fn add_records(whole: &mut Function, programs: &[Function], entries: &[usize]) {
    for (program, entry) in programs.iter().zip(entries) {
        let functions = program.func_info.func_info.iter().copied();
        whole
            .func_info
            .func_info
            .extend(functions.map(|mut record| {
                record.insn_off += *entry as u32;
                record
            }));
        let lines = program.line_info.line_info.iter().copied();
        whole.line_info.line_info.extend(lines.map(|mut record| {
            record.insn_off += *entry as u32;
            record
        }));
    }
    // The kernel takes records of all functions, or of none.
    if programs
        .iter()
        .any(|of| of.func_info.func_info.is_empty() || of.line_info.line_info.is_empty())
    {
        whole.func_info.func_info.clear();
        whole.line_info.line_info.clear();
    }
    whole.func_info.num_info = whole.func_info.func_info.len() as u32;
    whole.line_info.num_info = whole.line_info.line_info.len() as u32;
}

/// `register = (u32)register`
fn low(register: u8) -> bpf_insn {
    insn(0xbc, register, register, 0)
}

fn insn(code: u8, dst: u8, src: u8, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(dst, src),
        off: 0,
        imm,
    }
}

#[cfg(test)]
mod tests;
