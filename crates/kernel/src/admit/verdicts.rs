//! The verdicts of a program, found in its linked instructions. The dispatcher need not look at a
//! verdict that it hands on unchanged.

use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::{Hook, Verdict};

use crate::admit::instruction::{Instruction, InstructionIndex, decode};
use crate::sys::asm::HELPER_TAIL_CALL;

/// `r0 = NUMBER` of 64 and of 32 bits. A verdict has 32 bits.
const MOVES: [u8; 2] = [0xb7, 0xb4];

/// The verdicts that a program can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdicts(u16);

impl Verdicts {
    pub const NONE: Self = Self(0);
    /// Any verdict.
    pub const UNKNOWN: Self = Self(1 << 15);
    /// The verdicts that have a bit of their own. The first verdict in this range has the lowest
    /// bit.
    const KNOWN: std::ops::Range<i32> = -1..14;

    pub fn one(verdict: i32) -> Self {
        if Self::KNOWN.contains(&verdict) {
            Self(1 << (verdict - Self::KNOWN.start))
        } else {
            Self::UNKNOWN
        }
    }

    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tells whether the dispatcher may pass on each of these verdicts unchanged at `hook`, if the
    /// probe has this `verdict`.
    pub fn stand(self, hook: Hook, verdict: Verdict) -> bool {
        let pass = Self::one(hook.pass());
        let all = match (verdict, hook.final_verdicts()) {
            (Verdict::Enforce, None) => return true,
            (Verdict::Enforce, Some(verdicts)) => verdicts
                .iter()
                .fold(pass, |all, verdict| all.or(Self::one(*verdict))),
            (Verdict::Observe, _) => pass,
        };
        self.or(all) == all
    }

    /// Returns the verdicts that a linked program can return. Follows constants in R0 alone:
    /// compilers put the verdict there right before the end.
    pub fn of(program: &[bpf_insn]) -> Self {
        // The numbers that R0 may have before each instruction; no numbers for an instruction that
        // was not reached.
        let mut before = vec![Self::NONE; program.len()];
        let mut all = Self::NONE;
        let mut open: Vec<(InstructionIndex, Self)> = vec![(0, Self::UNKNOWN)];
        while let Some((at, r0)) = open.pop() {
            let Some(known) = before.get_mut(at) else {
                return Self::UNKNOWN;
            };
            let r0 = known.or(r0);
            if std::mem::replace(known, r0) == r0 {
                continue;
            }
            let Ok((instruction, next)) = decode(program, at) else {
                return Self::UNKNOWN;
            };
            let raw = &program[at];
            let goes_on = match instruction {
                Instruction::Exit => {
                    all = all.or(r0);
                    continue;
                }
                // A program of another kind may have this verdict as well.
                Instruction::CallHelper(helper) if helper == HELPER_TAIL_CALL as u32 => {
                    return Self::UNKNOWN;
                }
                // A read beyond the packet's end ends the program, with 0.
                Instruction::ReadPacket => {
                    all = all.or(Self::one(0));
                    Self::UNKNOWN
                }
                Instruction::Jump(target) => {
                    open.push((target, r0));
                    continue;
                }
                Instruction::Branch(target) => {
                    open.push((target, r0));
                    r0
                }
                Instruction::Compute { to: 0, .. } if MOVES.contains(&raw.code) => {
                    Self::one(raw.imm)
                }
                Instruction::Compute { to: 0, .. }
                | Instruction::Load { to: 0, .. }
                | Instruction::Number { to: 0 }
                | Instruction::Map { to: 0 }
                | Instruction::Function { to: 0, .. }
                | Instruction::Atomic {
                    fetched: Some(0), ..
                }
                | Instruction::CallHelper(_)
                | Instruction::Call(_) => Self::UNKNOWN,
                _ => r0,
            };
            open.push((next, goes_on));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::asm;

    fn of(parts: &[&[bpf_insn]]) -> Verdicts {
        Verdicts::of(&parts.concat())
    }

    fn any(verdicts: &[i32]) -> Verdicts {
        verdicts.iter().fold(Verdicts::NONE, |all, verdict| {
            all.or(Verdicts::one(*verdict))
        })
    }

    #[test]
    fn each_way_to_an_end_counts() {
        let [two, one] = [2, 1].map(asm::pass_program);
        assert_eq!(of(&[&two]), any(&[2]));
        // Two programs with a jump: over the first end of the program, and to the end of the
        // program.
        assert_eq!(of(&[&[asm::jump_eq(1, 0, 2)], &two, &one]), any(&[1, 2]));
        assert_eq!(
            of(&[&[asm::mov_imm(0, 1), asm::jump_eq(1, 0, 1)], &two]),
            any(&[1, 2])
        );
        // An instruction that no packet reaches does not count.
        assert_eq!(of(&[&[asm::jump(2)], &one, &two]), any(&[2]));
        // A loop ends.
        assert_eq!(
            of(&[&[asm::mov_imm(0, 2), asm::jump_eq(1, 0, -2), asm::exit()]]),
            any(&[2])
        );
    }

    /// The kernel ends a program with 0 where it reads beyond the packet without a pointer.
    #[test]
    fn a_read_of_the_packet_may_be_the_end() {
        // `r0 = *(u8 *)skb[40]`
        let read = crate::admit::tests::code::raw(0x30, 0, 0, 0, 40);
        let verdicts = of(&[&[asm::mov(6, 1), read, asm::mov_imm(0, -1), asm::exit()]]);
        assert_eq!(verdicts, any(&[-1, 0]));
        assert!(!verdicts.stand(Hook::TcIngress, Verdict::Observe));
    }

    #[test]
    fn what_is_no_constant_is_unknown() {
        let unknown: &[&[bpf_insn]] = &[
            &[asm::exit()],
            &[asm::mov(0, 6), asm::exit()],
            &[asm::mov_imm(0, 2), asm::add_imm(0, 1), asm::exit()],
            &[asm::mov_imm(0, 2), asm::load_u32(0, 1, 0), asm::exit()],
            &[asm::mov_imm(0, 2), asm::call_helper(5), asm::exit()],
            &[
                asm::mov_imm(0, 2),
                asm::call_subprogram(1),
                asm::exit(),
                asm::exit(),
            ],
            // The called program may return anything; the instructions after the call do not
            // matter.
            &[
                asm::call_helper(HELPER_TAIL_CALL),
                asm::mov_imm(0, 2),
                asm::exit(),
            ],
            &[asm::mov_imm(0, 99), asm::exit()],
            &[asm::mov_imm(0, -2), asm::exit()],
            // The code has no end, and a jump to an invalid address.
            &[asm::mov_imm(0, 2)],
            &[asm::jump(9), asm::exit()],
        ];
        for program in unknown {
            assert_ne!(
                Verdicts::of(program).0 & Verdicts::UNKNOWN.0,
                0,
                "{program:?}"
            );
        }
    }

    #[test]
    fn verdicts_stand_if_the_dispatcher_would_hand_on_each() {
        use Verdict::{Enforce, Observe};
        for (hook, verdict, verdicts, stand) in [
            (Hook::Xdp, Observe, vec![2], true),
            (Hook::Xdp, Observe, vec![2, 1], false),
            (Hook::Xdp, Observe, vec![-1], false),
            (Hook::Xdp, Enforce, vec![0, 1, 2, 99], true),
            (Hook::TcIngress, Observe, vec![-1], true),
            (Hook::TcIngress, Observe, vec![0], false),
            (Hook::TcEgress, Enforce, vec![-1, 2, 4, 5, 7, 8], true),
            (Hook::TcEgress, Enforce, vec![-1, 0], false),
            (Hook::TcEgress, Enforce, vec![-1, 3], false),
            (Hook::TcEgress, Enforce, vec![99], false),
        ] {
            assert_eq!(
                any(&verdicts).stand(hook, verdict),
                stand,
                "{hook:?} {verdict:?} {verdicts:?}"
            );
        }
    }
}
