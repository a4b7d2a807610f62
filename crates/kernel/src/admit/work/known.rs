//! The known bounds of the numbers in registers: how large they are at most.

use aya_obj::generated::bpf_insn;

use crate::admit::instruction::{Instruction, InstructionIndex, Register};
use crate::admit::work::registers::{RegisterFacts, Registers};

/// The codes of moves from register to register: of 64 bits, and of 32 bits.
const MOVE: u8 = 0xbf;
const MOVE_LOW: u8 = 0xbc;

/// Follows an instruction other than a jump.
pub fn step(
    program: &[bpf_insn],
    at: InstructionIndex,
    instruction: Instruction,
    registers: &mut Registers,
) {
    let raw = program[at];
    match instruction {
        Instruction::Compute { to, .. } => match copied(raw, registers, u64::from(u32::MAX) - 1) {
            Some(from) => registers.copy(to, from),
            None => registers.set(to, computed(raw, registers)),
        },
        Instruction::Load { to, .. } => {
            let facts = match raw.code {
                0x71 => RegisterFacts::Most(u64::from(u8::MAX)),
                0x69 => RegisterFacts::Most(u64::from(u16::MAX)),
                0x61 => RegisterFacts::Most(u64::from(u32::MAX)),
                _ => RegisterFacts::Nothing,
            };
            registers.set(to, facts);
        }
        Instruction::Atomic {
            fetched: Some(fetched),
            ..
        } => registers.set(fetched, RegisterFacts::Nothing),
        Instruction::Number { to } => {
            let high = program[at + 1].imm as u32;
            registers.set(
                to,
                RegisterFacts::Most(u64::from(high) << 32 | u64::from(raw.imm as u32)),
            );
        }
        Instruction::Map { to } => {
            registers.set(
                to,
                usize::try_from(raw.imm).map_or(RegisterFacts::Nothing, RegisterFacts::Map),
            );
        }
        Instruction::Function { to, entry } => registers.set(to, RegisterFacts::Function(entry)),
        Instruction::Call(_) | Instruction::CallHelper(_) | Instruction::ReadPacket => {
            (0..=5).for_each(|register| registers.set(register, RegisterFacts::Nothing));
        }
        _ => {}
    }
}

/// Returns the register whose whole content a move copies. A move of 32 bits copies the whole
/// content if the number is at most `low`.
pub fn copied(raw: bpf_insn, registers: &Registers, low: u64) -> Option<Register> {
    let from = Register::from(raw.src_reg());
    let is_low = matches!(registers[from], RegisterFacts::Most(most) if most <= low);
    let is_copy = raw.off == 0 && (raw.code == MOVE || raw.code == MOVE_LOW && is_low);
    is_copy.then_some(from)
}

/// Returns the facts after a comparison of a register with a constant or another register.
pub fn compared(raw: bpf_insn, taken: bool, mut registers: Registers) -> Registers {
    let (one, two) = (Register::from(raw.dst_reg()), Register::from(raw.src_reg()));
    let most = |register: Register| match registers[register] {
        RegisterFacts::Most(most) => Some(most),
        RegisterFacts::Nothing => Some(u64::MAX),
        _ => None,
    };
    let is_register = raw.code & 0x08 != 0;
    let other = if is_register {
        most(two)
    } else {
        u64::try_from(raw.imm).ok()
    };
    let (Some(before), Some(other)) = (most(one), other) else {
        return registers;
    };
    // The bounds of the first and of the second number after the comparison.
    let (first, second) = match (raw.code & 0xf0, taken) {
        // Equal; not equal.
        (0x10, true) | (0x50, false) => (other, before),
        // The comparisons for greater, unsigned and signed; and for less or equal.
        (0x20 | 0x60, false) | (0xb0 | 0xd0, true) => (other, u64::MAX),
        (0x20 | 0x60, true) | (0xb0 | 0xd0, false) => (u64::MAX, before.saturating_sub(1)),
        // Greater or equal; less.
        (0x30 | 0x70, false) | (0xa0 | 0xc0, true) => (other.saturating_sub(1), u64::MAX),
        (0x30 | 0x70, true) | (0xa0 | 0xc0, false) => (u64::MAX, before),
        _ => return registers,
    };
    // So large a number may be a pointer, so that the comparison gives no bound.
    let sure = |most: u64| {
        if is_register && most >= u64::from(u32::MAX >> 1) {
            u64::MAX
        } else {
            most
        }
    };
    let (first, second) = (sure(first), sure(second));
    let is_signed = matches!(raw.code & 0xf0, 0x60 | 0x70 | 0xc0 | 0xd0);
    // A comparison of 32 bits, or with a sign, gives no bound for larger numbers.
    let valid = match (raw.code & 0x07 == 6, is_signed) {
        (true, false) => u64::from(u32::MAX),
        (true, true) => i32::MAX as u64,
        (false, true) => i64::MAX as u64,
        (false, false) => u64::MAX,
    };
    if before <= valid && (!is_signed || other <= valid) && first < u64::MAX {
        registers.limit(one, before.min(first));
    }
    if is_register && other <= valid && (!is_signed || before <= valid) && second < u64::MAX {
        registers.limit(two, other.min(second));
    }
    registers
}

/// Returns the facts about the result of an operation.
fn computed(raw: bpf_insn, registers: &Registers) -> RegisterFacts {
    let is_register = raw.code & 0x08 != 0;
    let other = match is_register {
        true => registers[usize::from(raw.src_reg())],
        false => RegisterFacts::Most(i64::from(raw.imm) as u64),
    };
    let most = |known| match known {
        RegisterFacts::Most(most) => most,
        _ => u64::MAX,
    };
    let before = registers[usize::from(raw.dst_reg())];
    // The operation changes the order of bytes.
    if raw.code & 0xf0 == 0xd0 {
        return if raw.imm < 64 {
            RegisterFacts::Most(u64::from(u32::MAX))
        } else {
            RegisterFacts::Nothing
        };
    }
    let (wide, all) = (raw.code & 0x07 == 7, u64::from(u32::MAX));
    let number = match (raw.code & 0xf0, raw.off) {
        (0xb0, 0) if wide => return other,
        (0xb0, 0) => most(other),
        (0x50, 0) => most(before).min(most(other)),
        (0x00, 0) => most(before).saturating_add(most(other)),
        (0x90, 0) if !is_register => most(other).wrapping_sub(1),
        // A load of 32 bits may give a pointer, which is larger than 32 bits.
        (0x70, 0) if !is_register => {
            let before = if wide && most(before) >= all {
                u64::MAX
            } else {
                most(before)
            };
            before.checked_shr(raw.imm as u32).unwrap_or(0)
        }
        _ => u64::MAX,
    };
    match (wide, is_register) {
        (true, _) if number == u64::MAX => RegisterFacts::Nothing,
        (true, _) => RegisterFacts::Most(number),
        // The kernel uses the constant as a number of 32 bits.
        (false, false) if raw.code & 0xf0 == 0xb0 => RegisterFacts::Most(u64::from(raw.imm as u32)),
        (false, _) => RegisterFacts::Most(number.min(all)),
    }
}
