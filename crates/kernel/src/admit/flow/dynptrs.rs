//! Calls of the kernel's functions for dynptrs of packets.

use aya_obj::generated::bpf_insn;

use crate::admit::flow::act::Act;
use crate::admit::flow::{Flow, Next};
use crate::admit::functions::{DynptrUse, KernelFunction, function};
use crate::admit::instruction::{Instruction, InstructionIndex, decode};
use crate::admit::state::MachineState;
use crate::admit::value::{AbstractValue, PointerFacts};

/// The size of a dynptr, in bytes.
const DYNPTR: i64 = 16;

/// Tells whether a program makes dynptrs of packets. Which of its dynptrs lead to a packet is not followed.
pub fn has_packet_dynptrs(program: &[bpf_insn]) -> bool {
    let is_made = |at: InstructionIndex| match decode(program, at) {
        Ok((Instruction::CallHelper(number), _)) => {
            function(number).is_some_and(|function| function.does == DynptrUse::Make)
        }
        _ => false,
    };
    (0..program.len()).any(is_made)
}

impl Flow<'_> {
    /// Follows a call of a function of the kernel: a dynptr is the third argument of what makes it, and a buffer that of what
    /// returns bytes, with its size behind it.
    pub(super) fn kernel_function(
        &mut self,
        at: InstructionIndex,
        state: &mut MachineState,
        called: KernelFunction,
        next: InstructionIndex,
    ) -> Next {
        let name = || called.name.to_owned();
        let to = state.get(3);
        if called.does == DynptrUse::Write {
            self.note(at, Act::CallsChange(name()));
        } else if to.packet || to.context.is_possible() {
            self.note(at, Act::HasPacketWritten(name()));
        }
        let found = match called.does {
            DynptrUse::Make => {
                state.fill(to.stack, Some(DYNPTR), false);
                state.tell(to.stack, DYNPTR);
                AbstractValue::NUMBER
            }
            DynptrUse::Read | DynptrUse::Write => {
                let size = match state.get(4).constant {
                    PointerFacts::Only(size) => Some(size).filter(|size| *size >= 0),
                    PointerFacts::Never | PointerFacts::Any => None,
                };
                state.fill(to.stack, size, false);
                slice(to)
            }
        };
        state.returned(found);
        Next::At(next)
    }
}

/// A pointer into the packet, or to a buffer, or nothing. The kernel takes it for a number once the packet may have moved, and also
/// once the program has made another dynptr in the place of its own: it always tells an address.
fn slice(buffer: AbstractValue) -> AbstractValue {
    let found = AbstractValue { address: true, packet: true, ..AbstractValue::NUMBER };
    found.join(AbstractValue { stack: buffer.stack, harmless: buffer.harmless, ..AbstractValue::NONE })
}
