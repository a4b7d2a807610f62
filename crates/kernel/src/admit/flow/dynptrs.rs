//! Calls of the kernel's functions for dynptrs of packets.

use crate::admit::flow::act::Act;
use crate::admit::flow::{Flow, NextPlaces};
use crate::admit::functions::{DynptrUse, KernelFunction};
use crate::admit::instruction::InstructionIndex;
use crate::admit::state::{DYNPTR, MachineState};
use crate::admit::value::{AbstractValue, PointerFacts};

impl Flow<'_> {
    /// Follows a call of a kernel function. The third argument of a constructor of dynptrs is the
    /// dynptr. A function that returns bytes has a buffer as its third argument, and the buffer's
    /// size after it.
    pub(super) fn kernel_function(
        &mut self,
        at: InstructionIndex,
        state: &mut MachineState,
        called: KernelFunction,
        next: InstructionIndex,
    ) -> NextPlaces {
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
                state.make_dynptr(to.stack, to.is_only_stack(), true);
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
        NextPlaces::At(next)
    }
}

/// Returns a slice: a pointer into the packet, a pointer to the buffer, or null. The kernel takes
/// the slice for a number once the packet may have moved, and also once the program has made
/// another dynptr in the place of the first one. So the slice always counts as a value that reveals
/// an address.
fn slice(buffer: AbstractValue) -> AbstractValue {
    let found = AbstractValue {
        address: true,
        packet: true,
        ..AbstractValue::NUMBER
    };
    found.join(AbstractValue {
        stack: buffer.stack,
        harmless: buffer.harmless,
        ..AbstractValue::NONE
    })
}
