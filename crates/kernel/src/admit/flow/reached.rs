//! The states at the starts of blocks.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use crate::admit::instruction::InstructionIndex;
use crate::admit::state::MachineState;

/// The number of rounds of a loop in which a range of numbers or offsets may grow.
pub const ROUNDS: u32 = 3;

/// The states that the analysis has reached in one function.
pub struct ReachedStates {
    /// The starts of loops. Numbers that grow with each round of a loop become unknown there.
    heads: Rc<HashSet<InstructionIndex>>,
    /// The state at each start of a block, with the number of times that the analysis has followed
    /// it.
    states: HashMap<InstructionIndex, (MachineState, u32)>,
    /// The starts whose states the analysis has not followed yet. The analysis takes the lowest
    /// start first, because most jumps lead forwards.
    open: BTreeSet<InstructionIndex>,
}

impl ReachedStates {
    pub fn new(heads: Rc<HashSet<InstructionIndex>>) -> Self {
        Self {
            heads,
            states: HashMap::new(),
            open: BTreeSet::new(),
        }
    }

    pub fn join(&mut self, at: InstructionIndex, state: &MachineState) {
        let is_new = match self.states.entry(at) {
            Entry::Occupied(mut known) => {
                let (known, rounds) = known.get_mut();
                known.join(state, *rounds < ROUNDS || !self.heads.contains(&at))
            }
            Entry::Vacant(place) => {
                place.insert((state.clone(), 0));
                true
            }
        };
        if is_new {
            self.open.insert(at);
        }
    }

    pub fn next(&mut self) -> Option<(InstructionIndex, MachineState)> {
        let at = self.open.pop_first()?;
        let (state, rounds) = self.states.get_mut(&at)?;
        *rounds += 1;
        Some((at, state.clone()))
    }
}
