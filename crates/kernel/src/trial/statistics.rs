//! The figures that the verifier gives about a program that it has accepted.

use aya_obj::Function;
use aya_obj::generated::bpf_insn;

use crate::load::verifier;

const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
/// The sources of a call of a subprogram, and of a load of a subprogram's address.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;

/// The figures about one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramStatistics {
    /// The number of instructions that the verifier has followed.
    pub verified: u64,
    /// The stack of the deepest chain of calls, in bytes.
    pub stack_bytes: u64,
}

impl ProgramStatistics {
    /// Reads a log of [`LOG_STATISTICS`](crate::sys::prog::LOG_STATISTICS) about `function`.
    pub fn parse(log: &str, function: &Function) -> Self {
        let line = |name| {
            log.lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
        };
        let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let depths: Vec<u64> = word(line("stack depth "))
            .split('+')
            .map_while(|n| n.parse().ok())
            .collect();
        let starts: Vec<usize> = function
            .func_info
            .func_info
            .iter()
            .map(|info| info.insn_off as usize)
            .collect();
        let calls = calls(&function.instructions, &starts);
        let mut deepest = vec![None; depths.len()];
        Self {
            verified: verifier::verified(log),
            stack_bytes: chain(0, &depths, &calls, &mut deepest),
        }
    }
}

/// Returns the calls between subprograms as pairs of caller and callee. `starts` are the first
/// instructions of the subprograms, ascending.
fn calls(instructions: &[bpf_insn], starts: &[usize]) -> Vec<(usize, usize)> {
    let refers = |insn: &bpf_insn| {
        matches!(
            (insn.code, insn.src_reg()),
            (CALL, PSEUDO_CALL) | (LOAD_64, PSEUDO_FUNC)
        )
    };
    let of = |at: usize| {
        starts
            .partition_point(|start| *start <= at)
            .saturating_sub(1)
    };
    let callers = instructions
        .iter()
        .enumerate()
        .filter(|(_, insn)| refers(insn));
    let pair = |(at, insn): (usize, &bpf_insn)| {
        Some((of(at), of((at + 1).checked_add_signed(insn.imm as isize)?)))
    };
    callers.filter_map(pair).collect()
}

/// Returns the stack size of the deepest chain of calls that begins with the subprogram `of`. In a
/// verified program, no subprogram calls itself.
fn chain(
    of: usize,
    depths: &[u64],
    calls: &[(usize, usize)],
    deepest: &mut Vec<Option<u64>>,
) -> u64 {
    let Some(own) = depths.get(of) else { return 0 };
    if let Some(known) = deepest[of] {
        return known;
    }
    deepest[of] = Some(*own);
    let callees: Vec<usize> = calls
        .iter()
        .filter(|(caller, _)| *caller == of)
        .map(|(_, callee)| *callee)
        .collect();
    let below = callees
        .into_iter()
        .map(|callee| chain(callee, depths, calls, deepest))
        .max()
        .unwrap_or(0);
    *deepest[of].insert(own + below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_chain_counts() {
        let calls = [(0, 1), (0, 2), (1, 3), (2, 3)];
        let depth = |depths: &[u64]| chain(0, depths, &calls, &mut vec![None; depths.len()]);
        assert_eq!(depth(&[8, 16, 64, 32]), 104);
        assert_eq!(depth(&[8]), 8);
        assert_eq!(depth(&[]), 0);
    }
}
