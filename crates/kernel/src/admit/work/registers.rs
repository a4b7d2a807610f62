//! The facts about all registers, and which registers hold the same number.

use std::array;
use std::ops::Index;

use crate::admit::instruction::{InstructionIndex, Register};

const REGISTERS: usize = 11;

/// The knowledge about a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterFacts {
    /// A number, and the largest value that it can have.
    Most(u64),
    Function(InstructionIndex),
    Map(usize),
    Nothing,
}

impl RegisterFacts {
    /// Returns a fact that covers both facts. If the bounds of the two numbers differ, the fact has
    /// the larger bound only if that bound is `exact`.
    pub fn join(self, other: Self, exact: bool) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Most(one), Self::Most(other)) if exact || other < one => {
                Self::Most(one.max(other))
            }
            _ => Self::Nothing,
        }
    }
}

/// The facts about the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    facts: [RegisterFacts; REGISTERS],
    /// For each register, the first register that surely contains the same number. It may be the
    /// register itself.
    first: [u8; REGISTERS],
}

impl Registers {
    /// No knowledge.
    pub const UNKNOWN: Self = Self {
        facts: [RegisterFacts::Nothing; REGISTERS],
        first: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    };

    /// Notes facts about the new content of a register.
    pub fn set(&mut self, register: Register, facts: RegisterFacts) {
        let alone = |other: Register| other == register;
        self.first = regroup(|one, other| {
            one == other || !alone(one) && !alone(other) && self.is_same(one, other)
        });
        self.facts[register] = facts;
    }

    /// Notes that the register `to` has got the content of another register.
    pub fn copy(&mut self, to: Register, from: Register) {
        if to == from {
            return;
        }
        self.set(to, self.facts[from]);
        let from_or = |register: Register| if register == to { from } else { register };
        self.first = regroup(|one, other| self.is_same(from_or(one), from_or(other)));
    }

    /// Notes that the number in a register, and in all its copies, is at most `most`.
    pub fn limit(&mut self, register: Register, most: u64) {
        for copy in 0..REGISTERS {
            if self.is_same(copy, register) {
                self.facts[copy] = RegisterFacts::Most(most);
            }
        }
    }

    /// Keeps the facts that are true in both cases. Returns false if nothing has changed. With
    /// `exact`, the bounds of numbers may grow; without it, a number whose bound would grow becomes
    /// unknown.
    pub fn join(&mut self, other: Self, exact: bool) -> bool {
        let facts =
            array::from_fn(|register| self.facts[register].join(other.facts[register], exact));
        let first = regroup(|one, two| self.is_same(one, two) && other.is_same(one, two));
        let both = Self { facts, first };
        let is_new = both != *self;
        *self = both;
        is_new
    }

    const fn is_same(&self, one: Register, other: Register) -> bool {
        self.first[one] == self.first[other]
    }
}

/// Returns, for each register, the first register of its group of equal registers.
fn regroup(is_same: impl Fn(Register, Register) -> bool) -> [u8; REGISTERS] {
    array::from_fn(|register| {
        (0..register)
            .find(|first| is_same(*first, register))
            .unwrap_or(register) as u8
    })
}

impl Index<Register> for Registers {
    type Output = RegisterFacts;

    fn index(&self, register: Register) -> &RegisterFacts {
        &self.facts[register]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_all_copies_until_they_change() {
        let mut registers = Registers::UNKNOWN;
        registers.copy(3, 5);
        registers.copy(1, 3);
        // The other registers of the group stay copies of each other.
        registers.set(5, RegisterFacts::Most(9));
        registers.limit(3, 7);
        let known = |registers: &Registers| [1, 3, 5].map(|register| registers[register]);
        let [seven, nine] = [7, 9].map(RegisterFacts::Most);
        assert_eq!(known(&registers), [seven, seven, nine]);
        let mut other = Registers::UNKNOWN;
        other.copy(5, 3);
        assert!(registers.join(other, true) && !registers.join(other, true));
        registers.limit(1, 2);
        assert_eq!(
            known(&registers),
            [
                RegisterFacts::Most(2),
                RegisterFacts::Nothing,
                RegisterFacts::Nothing
            ]
        );
    }
}
