//! Programs that read no old content of the stack. From Linux 6.3 on, the kernel lets a program
//! read bytes of its stack before it has written them. Other functions of the kernel may have left
//! addresses in these bytes. This module clears the bytes that a program may read in this way. A
//! refusal would hit harmless programs, because copies of structures read the bytes between the
//! fields.

use std::collections::BTreeMap;

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::admit::instruction::InstructionIndex;
use crate::load::rewrite::{Rewriting, TooLong, rewrite};
use crate::sys::asm::store_u64_imm;

const SLOT: i16 = 8;
const FRAME: i16 = 512;
const FRAME_POINTER: u8 = 10;

/// Returns a linked program that clears these slots of the stack at the start of each function.
/// `slots` has one bit for each slot, by the index of the function's first instruction. The lowest
/// bit is for the slot at the frame's start.
pub fn clear(
    function: Function,
    slots: &BTreeMap<InstructionIndex, u64>,
) -> Result<Function, TooLong> {
    if slots.is_empty() {
        return Ok(function);
    }
    let change = |at, _: &bpf_insn| match slots.get(&at) {
        Some(slots) => {
            let slots = (0..FRAME / SLOT).filter(|slot| slots >> slot & 1 == 1);
            Rewriting::Begin(
                slots
                    .map(|slot| store_u64_imm(FRAME_POINTER, slot * SLOT - FRAME, 0))
                    .collect(),
            )
        }
        None => Rewriting::Keep,
    };
    let (cleared, instructions) = rewrite(&function, &function.instructions, change)?;
    Ok(Function {
        instructions,
        ..cleared
    })
}
