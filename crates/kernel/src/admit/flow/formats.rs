//! The formats of a program's prints. A format tells which of its numbers are shown, and which are
//! addresses of the shown data: a text, or the bytes of a network address.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

use aya_obj::generated::{BPF_PSEUDO_MAP_VALUE, bpf_func_id, bpf_insn};

use crate::admit::instruction::{Instruction, InstructionIndex, LOAD_64, Memory, Operand, decode};
use crate::plan::probe_plan::MapPlan;
use crate::sys::asm::{add_imm, mov, mov_imm, mov_imm32};

pub const PRINT: u32 = bpf_func_id::BPF_FUNC_trace_printk as u32;
pub const PRINT_MANY: u32 = bpf_func_id::BPF_FUNC_trace_vprintk as u32;
/// The registers of the format and of its length.
const FORMAT: usize = 1;
const LENGTH: usize = 2;
const STACK: usize = 10;
/// The mode of an access to memory, in the upper bits of its code, and the mode that extends the
/// sign.
const MODE: u8 = 0xe0;
const EXTENDED: u8 = 0x80;
/// The most blocks of instructions that the search for a format goes back, and the most paths
/// through them.
const BLOCKS: usize = 6;
const WAYS: usize = 64;
/// The most instructions that the search goes through in a program. The formats behind them count
/// as unknown.
const MAX_EFFORT: usize = 4_000_000;

/// The use that a format makes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatUse {
    /// The print shows the number.
    Shown,
    /// The print shows this many bytes at the address in the number; `None` for a text, which ends
    /// with NUL.
    Read(Option<i64>),
}

/// The conversions of the formats that are known, by the calls that print.
pub type Formats = BTreeMap<InstructionIndex, Vec<FormatUse>>;

/// Returns the conversions of each format of a linked program that is a constant of the source. If
/// a call may have one of several formats, the result for a number is the use that reveals more of
/// it.
pub fn formats(program: &[bpf_insn], maps: &[MapPlan]) -> Formats {
    let prints: Vec<InstructionIndex> = prints(program).collect();
    if prints.is_empty() {
        return Formats::new();
    }
    let blocks = CodeBlocks::of(program);
    let known = prints
        .into_iter()
        .filter_map(|at| Some((at, blocks.conversions(program, at, maps)?)));
    known.collect()
}

/// Returns the calls that print.
pub fn prints(program: &[bpf_insn]) -> impl Iterator<Item = InstructionIndex> {
    let is_print = |at: &InstructionIndex| {
        matches!(
            decode(program, *at),
            Ok((Instruction::CallHelper(PRINT | PRINT_MANY), _))
        )
    };
    (0..program.len()).filter(is_print)
}

/// The blocks of a program.
struct CodeBlocks {
    /// The first instruction of each instruction's block.
    starts: Vec<InstructionIndex>,
    /// The last instructions of the blocks that lead to a block.
    before: HashMap<InstructionIndex, Vec<InstructionIndex>>,
    /// The starts of functions: calls lead there, in addition to the blocks in `before`.
    entries: HashSet<InstructionIndex>,
    /// The instructions that the search has gone through.
    effort: Cell<usize>,
}

impl CodeBlocks {
    fn of(program: &[bpf_insn]) -> Self {
        let (mut before, mut entries) = (HashMap::<_, Vec<_>>::new(), HashSet::from([0]));
        let mut begins = HashSet::from([0]);
        let mut at = 0;
        while at < program.len() {
            let (instruction, next) = decode(program, at).unwrap_or((Instruction::Exit, at + 1));
            let targets = match instruction {
                Instruction::Jump(target) => vec![target],
                Instruction::Branch(target) => vec![target, next],
                _ => Vec::new(),
            };
            for target in &targets {
                before.entry(*target).or_default().push(at);
            }
            begins.extend(targets);
            if matches!(instruction, Instruction::Jump(_) | Instruction::Exit) {
                begins.insert(next);
            }
            if let Instruction::Call(entry) | Instruction::Function { entry, .. } = instruction {
                begins.insert(entry);
                entries.insert(entry);
            }
            at = next;
        }
        let (mut starts, mut start, mut last) = (Vec::with_capacity(program.len()), 0, None);
        for at in 0..program.len() {
            if begins.contains(&at) {
                start = at;
                // A block that the previous block reaches without a jump.
                let falls = |last: &InstructionIndex| {
                    !matches!(
                        decode(program, *last),
                        Ok((
                            Instruction::Jump(_) | Instruction::Branch(_) | Instruction::Exit,
                            _
                        )) | Err(_)
                    )
                };
                before.entry(at).or_default().extend(last.filter(falls));
            }
            starts.push(start);
            let is_half = last.is_some_and(|last: InstructionIndex| {
                last + 1 == at && program[last].code == LOAD_64
            });
            last = if is_half { last } else { Some(at) };
        }
        Self {
            starts,
            before,
            entries,
            effort: Cell::new(0),
        }
    }

    fn conversions(
        &self,
        program: &[bpf_insn],
        at: InstructionIndex,
        maps: &[MapPlan],
    ) -> Option<Vec<FormatUse>> {
        let mut all: Option<Vec<FormatUse>> = None;
        let (mut ways, mut open) = (0, vec![vec![at]]);
        // A way is a list of the ends of blocks, which begins with the call's block.
        while let Some(way) = open.pop() {
            ways += 1;
            if ways > WAYS {
                return None;
            }
            let start = *self.starts.get(*way.last()?)?;
            if let Some(found) = self.on_way(program, &way, maps) {
                all = Some(all.map_or_else(|| found.clone(), |all| joined(&all, &found)));
                continue;
            }
            if way.len() >= BLOCKS || self.entries.contains(&start) {
                return None;
            }
            let before = self.before.get(&start)?;
            open.extend(before.iter().map(|end| [&way[..], &[*end]].concat()));
        }
        all
    }

    /// Returns the conversions of a call's format after these blocks.
    fn on_way(
        &self,
        program: &[bpf_insn],
        way: &[InstructionIndex],
        maps: &[MapPlan],
    ) -> Option<Vec<FormatUse>> {
        let mut known = KnownContent {
            maps,
            ..KnownContent::default()
        };
        known.registers[STACK] = FormatOperand::Stack(0);
        for (index, end) in way.iter().enumerate().rev() {
            let mut at = *self.starts.get(*end)?;
            // In the block of the call (index 0), only the instructions before the call count.
            while at < *end || index > 0 && at == *end {
                self.effort.set(self.effort.get() + 1);
                if self.effort.get() > MAX_EFFORT {
                    return None;
                }
                let (instruction, next) = decode(program, at).ok()?;
                known.run(program, at, instruction);
                at = next;
            }
        }
        known.format()
    }
}

/// Returns the conversions of a call that has one of two formats.
fn joined(one: &[FormatUse], other: &[FormatUse]) -> Vec<FormatUse> {
    let both = (0..one.len().max(other.len())).map(|at| match (one.get(at), other.get(at)) {
        (Some(one), Some(other)) if one != other => FormatUse::Shown,
        (Some(conversion), _) | (None, Some(conversion)) => *conversion,
        (None, None) => FormatUse::Shown,
    });
    both.collect()
}

/// The content of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FormatOperand {
    #[default]
    Anything,
    Number(u64),
    /// The address of a byte of the stack.
    Stack(i64),
    /// The address of a byte in the value of a map.
    Value(usize, usize),
}

/// The knowledge about registers and stack after some consecutive instructions.
#[derive(Default)]
struct KnownContent<'a> {
    registers: [FormatOperand; 11],
    stack: BTreeMap<i64, u8>,
    maps: &'a [MapPlan],
}

impl KnownContent<'_> {
    fn run(&mut self, program: &[bpf_insn], at: InstructionIndex, instruction: Instruction) {
        let insn = &program[at];
        match instruction {
            Instruction::Compute { to, .. } => self.registers[to] = self.computed(insn),
            Instruction::Number { to } => {
                let upper = program
                    .get(at + 1)
                    .map_or(0, |second| u64::from(second.imm as u32));
                self.registers[to] =
                    FormatOperand::Number(upper << 32 | u64::from(insn.imm as u32));
            }
            Instruction::Map { to } => {
                let offset = program
                    .get(at + 1)
                    .map_or(0, |second| second.imm as u32 as usize);
                let is_value = u32::from(insn.src_reg()) == BPF_PSEUDO_MAP_VALUE;
                self.registers[to] = if is_value {
                    FormatOperand::Value(insn.imm as usize, offset)
                } else {
                    FormatOperand::Anything
                };
            }
            Instruction::Function { to, .. } => self.registers[to] = FormatOperand::Anything,
            // A move that extends the sign makes another number.
            Instruction::Load { to, .. } if insn.code & MODE == EXTENDED => {
                self.registers[to] = FormatOperand::Anything;
            }
            Instruction::Load { to, from } => self.registers[to] = self.loaded(from),
            Instruction::Store { to, value } => {
                let value = match value {
                    Operand::Number(number) => FormatOperand::Number(i64::from(number) as u64),
                    Operand::Register(register) => self.registers[register],
                };
                self.store(to, value);
            }
            Instruction::Atomic { .. } => {
                // The operation may put the old value into a register.
                self.registers = [FormatOperand::Anything; 11];
                self.registers[STACK] = FormatOperand::Stack(0);
                self.stack.clear();
            }
            Instruction::ReadPacket | Instruction::CallHelper(_) | Instruction::Call(_) => {
                self.registers[..=5].fill(FormatOperand::Anything);
                // The function may write to the stack.
                self.stack.clear();
            }
            Instruction::Jump(_) | Instruction::Branch(_) | Instruction::Exit => {}
        }
    }

    fn computed(&self, insn: &bpf_insn) -> FormatOperand {
        let number = i64::from(insn.imm) as u64;
        let from = self.registers[usize::from(insn.src_reg())];
        match insn.code {
            code if code == mov_imm(0, 0).code => FormatOperand::Number(number),
            code if code == mov_imm32(0, 0).code => {
                FormatOperand::Number(number & u64::from(u32::MAX))
            }
            code if code == mov(0, 0).code && insn.off == 0 => from,
            code if code == add_imm(0, 0).code => match self.registers[usize::from(insn.dst_reg())]
            {
                FormatOperand::Stack(at) => {
                    FormatOperand::Stack(at.wrapping_add(i64::from(insn.imm)))
                }
                FormatOperand::Value(map, at) => at
                    .checked_add_signed(insn.imm as isize)
                    .map_or(FormatOperand::Anything, |at| FormatOperand::Value(map, at)),
                _ => FormatOperand::Anything,
            },
            _ => FormatOperand::Anything,
        }
    }

    /// Returns a number in memory that has one content only.
    fn loaded(&self, from: Memory) -> FormatOperand {
        let Ok(size) = usize::try_from(from.size) else {
            return FormatOperand::Anything;
        };
        let bytes = match self.registers[from.base] {
            FormatOperand::Value(map, at) => {
                let offset = isize::try_from(from.offset)
                    .ok()
                    .and_then(|by| at.checked_add_signed(by));
                offset.and_then(|at| {
                    self.constants(map)?
                        .get(at..at.checked_add(size)?)
                        .map(<[u8]>::to_vec)
                })
            }
            FormatOperand::Stack(at) => {
                let at = at.wrapping_add(from.offset);
                (at..at.saturating_add(from.size))
                    .map(|place| self.stack.get(&place).copied())
                    .collect()
            }
            FormatOperand::Number(_) | FormatOperand::Anything => None,
        };
        let number = |bytes: Vec<u8>| {
            bytes
                .iter()
                .rev()
                .fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
        };
        bytes.map_or(FormatOperand::Anything, |bytes| {
            FormatOperand::Number(number(bytes))
        })
    }

    /// Returns the content of a map of constants. Neither a program nor a client can write to it.
    fn constants(&self, map: usize) -> Option<&[u8]> {
        let map = self
            .maps
            .get(map)
            .filter(|map| map.spec.frozen && map.fill.is_empty())?;
        Some(&map.spec.initial)
    }

    fn store(&mut self, to: Memory, value: FormatOperand) {
        let FormatOperand::Stack(base) = self.registers[to.base] else {
            // The address may be an address in the stack.
            self.stack.clear();
            return;
        };
        let at = base.wrapping_add(to.offset);
        for (index, place) in (at..at.saturating_add(to.size)).enumerate() {
            match value {
                FormatOperand::Number(number) => {
                    _ = self.stack.insert(place, number.to_le_bytes()[index]);
                }
                _ => _ = self.stack.remove(&place),
            }
        }
    }

    /// Returns the conversions of the format in the registers.
    fn format(&self) -> Option<Vec<FormatUse>> {
        let FormatOperand::Number(length) = self.registers[LENGTH] else {
            return None;
        };
        let length = usize::try_from(length).ok()?;
        match self.registers[FORMAT] {
            FormatOperand::Value(map, begin) => conversions(
                self.constants(map)?
                    .get(begin..begin.checked_add(length)?)?,
            ),
            FormatOperand::Stack(begin) => {
                let bytes = (0..i64::try_from(length).ok()?.min(512))
                    .map(|at| self.stack.get(&(begin + at)).copied());
                conversions(&bytes.collect::<Option<Vec<u8>>>()?)
            }
            FormatOperand::Number(_) | FormatOperand::Anything => None,
        }
    }
}

/// Returns the conversions of a format, which ends with NUL (`bpf_bprintf_prepare` of the kernel).
fn conversions(format: &[u8]) -> Option<Vec<FormatUse>> {
    let end = format.iter().position(|byte| *byte == 0)?;
    let (mut found, mut rest) = (Vec::new(), &format[..end]);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            rest = after;
            continue;
        }
        let flags = rest
            .iter()
            .take_while(|byte| matches!(**byte, b'0'..=b'9' | b'+' | b'-' | b' '))
            .count();
        found.push(match &rest[flags..] {
            [b's', ..] | [b'p', b'k' | b'u', b's', ..] => FormatUse::Read(None),
            [b'p', b'i' | b'I', b'4', ..] => FormatUse::Read(Some(4)),
            [b'p', b'i' | b'I', b'6', ..] => FormatUse::Read(Some(16)),
            _ => FormatUse::Shown,
        });
    }
    Some(found)
}

#[cfg(test)]
mod tests;
