//! The exchange of instructions in programs. Jumps, calls and the information about source lines
//! are adapted.

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::admit::instruction::{InstructionIndex, LOAD_64};

const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// A jump whose distance is in `imm`.
const LONG_JUMP: u8 = 0x06;
/// The classes of jumps, in the lowest bits of an operation.
const CLASS: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
/// The sources of a call of a subprogram, and of a load of a subprogram's address.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;

/// The error for a jump that is too far after the insertion of other instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program is too long for the instructions that are put into it; make it smaller")]
pub struct TooLong;

/// The change of an instruction.
pub enum Rewriting {
    Keep,
    /// These instructions replace the instruction.
    Replace(Vec<bpf_insn>),
    /// These instructions are inserted before the instruction. A call of a function that begins at
    /// the instruction runs them, but a jump to the instruction does not.
    Begin(Vec<bpf_insn>),
}

/// Returns the function with `instructions` instead of its own, after `change` has been applied to
/// each of them.
pub fn rewrite(
    function: &Function,
    instructions: &[bpf_insn],
    change: impl Fn(InstructionIndex, &bpf_insn) -> Rewriting,
) -> Result<(Function, Vec<bpf_insn>), TooLong> {
    let mut changes = Vec::with_capacity(instructions.len());
    // The new place of each instruction with its preceding instructions, and the new target of
    // jumps to it. Both lists contain the program's end as well.
    let (mut starts, mut places) = (Vec::new(), Vec::new());
    let mut end = 0;
    let mut is_half = false;
    for (at, insn) in instructions.iter().enumerate() {
        // The second half of a load of 64 bits is not an instruction.
        let change = if is_half {
            Rewriting::Keep
        } else {
            change(at, insn)
        };
        is_half = !is_half && insn.code == LOAD_64;
        starts.push(end);
        let (before, length) = match &change {
            Rewriting::Keep => (0, 1),
            Rewriting::Replace(others) => (0, others.len()),
            Rewriting::Begin(others) => (others.len(), 1),
        };
        places.push(end + before);
        end += before + length;
        changes.push(change);
    }
    starts.push(end);
    places.push(end);
    let mut out = Vec::with_capacity(end);
    let mut is_half = false;
    for ((at, insn), change) in instructions.iter().enumerate().zip(changes) {
        match change {
            Rewriting::Replace(others) => {
                is_half = false;
                out.extend(others);
                continue;
            }
            Rewriting::Begin(others) => out.extend(others),
            Rewriting::Keep => (),
        }
        if std::mem::take(&mut is_half) {
            out.push(*insn);
            continue;
        }
        is_half = insn.code == LOAD_64;
        let moved = |to: &[usize], distance: i64| -> Result<i64, TooLong> {
            let target = usize::try_from(at as i64 + 1 + distance).map_err(|_| TooLong)?;
            let target = *to.get(target).ok_or(TooLong)?;
            Ok(target as i64 - places[at] as i64 - 1)
        };
        let mut insn = *insn;
        match (insn.code, insn.src_reg()) {
            (CALL, PSEUDO_CALL) | (LOAD_64, PSEUDO_FUNC) => {
                insn.imm = i32::try_from(moved(&starts, insn.imm.into())?).map_err(|_| TooLong)?;
            }
            (LONG_JUMP, _) => {
                insn.imm = i32::try_from(moved(&places, insn.imm.into())?).map_err(|_| TooLong)?;
            }
            (CALL | EXIT, _) => {}
            (code, _) if matches!(code & CLASS, JUMP | JUMP_32) => {
                insn.off = i16::try_from(moved(&places, insn.off.into())?).map_err(|_| TooLong)?;
            }
            _ => {}
        }
        out.push(insn);
    }
    let mut function = function.clone();
    // Instructions in front of a function's first one belong to the function and its first line.
    let moved = |offset: &mut u32| {
        *offset = starts
            .get(*offset as usize)
            .map_or(*offset, |to| *to as u32);
    };
    function
        .func_info
        .func_info
        .iter_mut()
        .for_each(|record| moved(&mut record.insn_off));
    function
        .line_info
        .line_info
        .iter_mut()
        .for_each(|record| moved(&mut record.insn_off));
    Ok((function, out))
}
