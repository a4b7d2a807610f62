//! eBPF instructions as the analysis sees them
//! (`Documentation/bpf/standardization/instruction-set.rst` of the kernel).

use aya_obj::generated::{
    BPF_PSEUDO_CALL, BPF_PSEUDO_FUNC, BPF_PSEUDO_KFUNC_CALL, BPF_PSEUDO_MAP_FD,
    BPF_PSEUDO_MAP_VALUE, bpf_insn,
};

/// The opcode of the first half of an instruction that loads 64 bits.
pub const LOAD_64: u8 = 0x18;

/// A register, R0 to R10.
pub type Register = usize;

/// The index of an instruction in a program.
pub type InstructionIndex = usize;

/// A value that an instruction requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Number(i32),
    Register(Register),
}

/// An operation on numbers and pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A copy of all 64 bits.
    Move,
    /// An addition of 64 bits.
    Add,
    /// A subtraction of 64 bits.
    Subtract,
    /// A copy of the lower 32 bits. The kernel lets no operation of 32 bits make a pointer.
    MoveLow,
    AddLow,
    SubtractLow,
    /// Every other operation: the kernel lets none of these make a pointer.
    Other,
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub base: Register,
    /// The distance from the base, in bytes.
    pub offset: i64,
    /// The number of bytes: 1, 2, 4 or 8.
    pub size: i64,
}

/// The operation of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Compute {
        operation: Operation,
        to: Register,
        operand: Operand,
    },
    Load {
        to: Register,
        from: Memory,
    },
    Store {
        to: Memory,
        value: Operand,
    },
    /// Reads, changes and writes memory. `fetched` gets the old value.
    Atomic {
        to: Memory,
        fetched: Option<Register>,
    },
    Number {
        to: Register,
    },
    /// The address of a map, or of its only value.
    Map {
        to: Register,
    },
    /// The address of the function that begins at `entry`.
    Function {
        to: Register,
        entry: InstructionIndex,
    },
    /// Reads the packet without a pointer (`BPF_ABS`, `BPF_IND`).
    ReadPacket,
    Jump(InstructionIndex),
    /// Jumps to this instruction, or continues with the next one.
    Branch(InstructionIndex),
    CallHelper(u32),
    Call(InstructionIndex),
    Exit,
}

/// The reason why an instruction has no meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The instruction refers to an object of the kernel without a relocation for it.
    Foreign,
    /// The instruction calls a kernel function.
    KernelFunction,
    /// This analysis does not know the instruction, or it is damaged.
    Instruction,
}

/// Returns the instruction at `at`, and the index of the next instruction.
pub fn decode(
    program: &[bpf_insn],
    at: InstructionIndex,
) -> Result<(Instruction, InstructionIndex), Unknown> {
    let raw = program.get(at).ok_or(Unknown::Instruction)?;
    let (to, source) = (Register::from(raw.dst_reg()), Register::from(raw.src_reg()));
    if to > 10 || source > 10 {
        return Err(Unknown::Instruction);
    }
    let operand = match raw.code & 0x08 {
        0 => Operand::Number(raw.imm),
        _ => Operand::Register(source),
    };
    let memory = |base| {
        let size = [4, 2, 1, 8][usize::from(raw.code >> 3 & 3)];
        Memory {
            base,
            offset: i64::from(raw.off),
            size,
        }
    };
    let instruction = match (raw.code & 0x07, raw.code & 0xe0) {
        (0, _) if raw.code == LOAD_64 => return load_64(program, at),
        // BPF_ABS, BPF_IND
        (0, 0x20 | 0x40) if raw.code & 0x18 != 0x18 => Instruction::ReadPacket,
        // BPF_LDX with BPF_MEM and BPF_MEMSX
        (1, 0x60 | 0x80) => Instruction::Load {
            to,
            from: memory(source),
        },
        (2, 0x60) => Instruction::Store {
            to: memory(to),
            value: Operand::Number(raw.imm),
        },
        (3, 0x60) => Instruction::Store {
            to: memory(to),
            value: Operand::Register(source),
        },
        (3, 0xc0) => atomic(raw.imm, to, source, memory)?,
        (4 | 7, _) => compute(raw, to, operand)?,
        (5 | 6, _) => return Ok((jump(program, at)?, at + 1)),
        _ => return Err(Unknown::Instruction),
    };
    Ok((instruction, at + 1))
}

fn load_64(
    program: &[bpf_insn],
    at: InstructionIndex,
) -> Result<(Instruction, InstructionIndex), Unknown> {
    let (first, second) = (
        &program[at],
        program.get(at + 1).ok_or(Unknown::Instruction)?,
    );
    if second.code != 0 || second.dst_reg() != 0 || second.src_reg() != 0 || second.off != 0 {
        return Err(Unknown::Instruction);
    }
    let to = Register::from(first.dst_reg());
    let instruction = match u32::from(first.src_reg()) {
        0 => Instruction::Number { to },
        BPF_PSEUDO_MAP_FD | BPF_PSEUDO_MAP_VALUE => Instruction::Map { to },
        BPF_PSEUDO_FUNC => Instruction::Function {
            to,
            entry: target(program, at, first.imm)?,
        },
        _ => return Err(Unknown::Foreign),
    };
    Ok((instruction, at + 2))
}

fn atomic(
    operation: i32,
    to: Register,
    source: Register,
    memory: impl Fn(Register) -> Memory,
) -> Result<Instruction, Unknown> {
    const FETCH: i32 = 1;
    Ok(match operation {
        // The atomic additions and bit operations without a result.
        0x00 | 0x40 | 0x50 | 0xa0 => Instruction::Atomic {
            to: memory(to),
            fetched: None,
        },
        // The atomic additions and bit operations that return the old value, and the exchange.
        _ if matches!(operation ^ FETCH, 0x00 | 0x40 | 0x50 | 0xa0 | 0xe0) => Instruction::Atomic {
            to: memory(to),
            fetched: Some(source),
        },
        // The atomic comparison and exchange.
        0xf1 => Instruction::Atomic {
            to: memory(to),
            fetched: Some(0),
        },
        // The load that acquires and the store that releases.
        0x100 => Instruction::Load {
            to,
            from: memory(source),
        },
        0x110 => Instruction::Store {
            to: memory(to),
            value: Operand::Register(source),
        },
        _ => return Err(Unknown::Instruction),
    })
}

fn compute(raw: &bpf_insn, to: Register, operand: Operand) -> Result<Instruction, Unknown> {
    let is_wide = raw.code & 0x07 == 7;
    let operation = match raw.code & 0xf0 {
        0x00 if is_wide => Operation::Add,
        0x00 => Operation::AddLow,
        0x10 if is_wide => Operation::Subtract,
        0x10 => Operation::SubtractLow,
        // A move with an offset extends a sign.
        0xb0 if is_wide && raw.off == 0 => Operation::Move,
        0xb0 if raw.off == 0 => Operation::MoveLow,
        // A byte swap, or a change of the sign. Neither has a second register.
        0x80 | 0xd0 => {
            return Ok(Instruction::Compute {
                operation: Operation::Other,
                to,
                operand: Operand::Number(0),
            });
        }
        0xe0 | 0xf0 => return Err(Unknown::Instruction),
        _ => Operation::Other,
    };
    Ok(Instruction::Compute {
        operation,
        to,
        operand,
    })
}

fn jump(program: &[bpf_insn], at: InstructionIndex) -> Result<Instruction, Unknown> {
    let raw = &program[at];
    let there = |distance| target(program, at, distance);
    Ok(match (raw.code, u32::from(raw.src_reg())) {
        (0x05, _) => Instruction::Jump(there(i32::from(raw.off))?),
        (0x06, _) => Instruction::Jump(there(raw.imm)?),
        (0x85, 0) => Instruction::CallHelper(raw.imm as u32),
        (0x85, BPF_PSEUDO_CALL) if raw.dst_reg() == 0 && raw.off == 0 => {
            Instruction::Call(there(raw.imm)?)
        }
        (0x85, BPF_PSEUDO_KFUNC_CALL) => return Err(Unknown::KernelFunction),
        (0x95, _) => Instruction::Exit,
        // `may_goto`, which jumps once a program has run it too often.
        (0xe5, _) => Instruction::Branch(there(i32::from(raw.off))?),
        (code, _) if !matches!(code & 0xf0, 0x00 | 0x80 | 0x90 | 0xe0 | 0xf0) => {
            Instruction::Branch(there(i32::from(raw.off))?)
        }
        _ => return Err(Unknown::Instruction),
    })
}

/// Returns the instruction at this distance from the instruction after `at`.
fn target(
    program: &[bpf_insn],
    at: InstructionIndex,
    distance: i32,
) -> Result<InstructionIndex, Unknown> {
    let there = (at as i64 + 1)
        .checked_add(i64::from(distance))
        .and_then(|there| InstructionIndex::try_from(there).ok());
    there
        .filter(|there| *there < program.len())
        .ok_or(Unknown::Instruction)
}
