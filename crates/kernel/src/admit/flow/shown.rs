//! The kernel addresses that calls of helper functions reveal.

use crate::admit::flow::Flow;
use crate::admit::flow::act::Act;
use crate::admit::flow::formats::{FormatUse, PRINT, PRINT_MANY};
use crate::admit::helpers;
use crate::admit::instruction::{InstructionIndex, Memory};
use crate::admit::state::MachineState;
use crate::admit::value::{AbstractValue, PointerFacts};

/// The registers of the first number for a format, and of a list of numbers with its length.
const NUMBER: usize = 3;
const LIST: usize = 3;
const LIST_BYTES: usize = 4;
/// The size of a number, in bytes.
const BYTES: i64 = 8;

impl Flow<'_> {
    /// Notes addresses that a helper function shows to others.
    pub(super) fn shown(
        &mut self,
        at: InstructionIndex,
        state: &MachineState,
        number: u32,
        name: &str,
    ) {
        let numbers = self.numbers(at, state, number);
        let facts = self.facts(state.get(1).map);
        let only_writes = helpers::peeks(number) && facts.is_some_and(|facts| !facts.is_filter);
        let mut told = match &numbers {
            Some(numbers) => numbers
                .iter()
                .any(|(value, use_of)| self.reveals(state, *value, *use_of)),
            None => helpers::shown(number).any(|argument| state.get(argument).tells_address()),
        };
        for (argument, bytes) in helpers::copied(number).filter(|_| !only_writes) {
            let stack = state.get(argument).stack;
            let size = self.size(state, bytes).map(|size| size.most);
            let is_judged = number == PRINT_MANY && argument == LIST && numbers.is_some();
            told |= !is_judged && state.tells_address(stack, size);
            self.read(state, stack, 0, size);
        }
        if told {
            self.note(at, Act::ShowsAddress(name.into()));
        }
    }

    /// Returns the numbers for a known format, with the format's use of each; `None` for other
    /// calls.
    fn numbers(
        &self,
        at: InstructionIndex,
        state: &MachineState,
        number: u32,
    ) -> Option<Vec<(AbstractValue, FormatUse)>> {
        let conversions = self.formats.get(&at)?;
        let of = |index: usize| conversions.get(index).copied().unwrap_or(FormatUse::Shown);
        match number {
            PRINT => Some(
                (0..NUMBER)
                    .map(|index| (state.get(NUMBER + index), of(index)))
                    .collect(),
            ),
            PRINT_MANY => {
                let list = state.get(LIST);
                let PointerFacts::Only(bytes) = state.get(LIST_BYTES).constant else {
                    return None;
                };
                let count = usize::try_from(bytes / BYTES)
                    .ok()
                    .filter(|_| list.is_only_stack())?;
                let slot = |index: usize| {
                    let memory = Memory {
                        base: LIST,
                        offset: index as i64 * BYTES,
                        size: BYTES,
                    };
                    (state.load(list.stack, memory), of(index))
                };
                Some((0..count.min(conversions.len())).map(slot).collect())
            }
            _ => None,
        }
    }

    /// Tells whether a number for a format reveals an address. The trace may show the bytes behind
    /// a pointer to the packet, to a value of a map or to the stack, as it may show strings of the
    /// kernel: only root can read it.
    fn reveals(
        &mut self,
        state: &MachineState,
        value: AbstractValue,
        conversion: FormatUse,
    ) -> bool {
        match conversion {
            FormatUse::Shown => value.tells_address(),
            FormatUse::Read(bytes) => {
                self.read(state, value.stack, 0, bytes);
                let others = AbstractValue {
                    number: false,
                    constant: PointerFacts::Never,
                    harmless: false,
                    unaligned: false,
                    packet: false,
                    stack: PointerFacts::Never,
                    ..value
                };
                others != AbstractValue::NONE || state.tells_address(value.stack, bytes)
            }
        }
    }
}
