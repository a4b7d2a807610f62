//! The dispatcher's instructions. They are generated, not compiled, so that a new revision costs
//! microseconds and every epoch word and slot is a constant.
//!
//! A constant slot makes the JIT patch in a direct jump; a variable slot needs an indirect jump
//! through a retpoline, which costs 10 ns more. The tail call is in a subprogram so that the called
//! program returns to the dispatcher. The dispatcher can then overrule its verdict and call the
//! next probe.

use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;

use aya_obj::btf::{Btf, BtfParam, BtfType, Func, FuncLinkage, FuncProto, Int, IntEncoding, Ptr};
use aya_obj::generated::bpf_insn;
use twinprobe_ebpf_common::hook::{Hook, Verdict};

use crate::attach::epoch::Page;
use crate::sys::asm;
use crate::sys::prog::InfoRecords;

/// One probe in the chain.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The prog-array of the probe. Slot 0 has the twin of even epochs, and slot 1 the twin of odd
    /// epochs.
    pub slots: BorrowedFd<'a>,
    /// False if both slots have the same program.
    pub has_twins: bool,
    /// The epoch map, and the offset in bytes at which the map's value contains the probe's epoch
    /// word.
    pub epochs: BorrowedFd<'a>,
    pub epoch_offset: i32,
    pub verdict: Verdict,
    /// True if each verdict that the probe's programs can return takes effect as it is.
    pub stands: bool,
    /// The probe sees one packet in this many, chosen at random; `None` if it sees all.
    pub sample: Option<NonZeroU32>,
}

/// The instructions, and the index at which each function begins; the first function is the program
/// itself.
pub struct Program {
    pub instructions: Vec<bpf_insn>,
    pub functions: Vec<usize>,
}

/// Builds the program that calls `calls` in order, one subprogram for each.
pub fn build(hook: Hook, calls: &[Call<'_>]) -> Program {
    let mut main = Vec::new();
    // The context comes in R1, and each call overwrites R1.
    let is_needed_again =
        calls.len() > 1 || calls.iter().any(|call| !choose(call.sample, 0).is_empty());
    if is_needed_again {
        main.push(asm::mov(6, 1));
    }
    let mut is_gone = false;
    let mut context = |choice: &[bpf_insn]| {
        is_gone |= !choice.is_empty();
        std::mem::replace(&mut is_gone, true).then(|| asm::mov(1, 6))
    };
    let mut call_sites = Vec::new();
    // The instructions after which the verdict of an enforcing probe is in R0.
    let mut verdicts = Vec::new();
    // The verdict of the last probe becomes the dispatcher's verdict, if it needs no change. No
    // other probe is called after it, so the probe needs no subprogram to return to.
    let (calls, last) = match calls {
        [calls @ .., last] if last.stands => (calls, Some(last)),
        _ => (calls, None),
    };
    for call in calls {
        let choice = choose(call.sample, 0);
        let mut body: Vec<bpf_insn> = context(&choice).into_iter().collect();
        let site = body.len();
        body.push(asm::call_subprogram(0));
        if call.verdict == Verdict::Enforce {
            body.extend(judge(hook));
        }
        main.extend(choose(call.sample, body.len()));
        call_sites.push(main.len() + site);
        main.extend(body);
        if call.verdict == Verdict::Enforce {
            verdicts.push(main.len());
        }
    }
    let pass = [asm::mov_imm(0, hook.pass()), asm::exit()];
    match last {
        Some(last) => {
            let choice = choose(last.sample, 0);
            let mut body: Vec<bpf_insn> = context(&choice).into_iter().collect();
            body.extend(tail_call(hook, last));
            main.extend(choose(last.sample, body.len()));
            main.extend(body);
            main.extend(pass.into_iter().filter(|_| !choice.is_empty()));
        }
        None => main.extend(pass),
    }
    // The common verdicts fall through to the next probe: a jump that is taken costs half a
    // nanosecond.
    let end = main.len() - 1;
    for next in verdicts {
        match hook.final_verdicts() {
            None => main[next - 1].off = (end - next) as i16,
            Some(verdicts) => {
                main[next - 1].off = (main.len() - next) as i16;
                finish(&mut main, next, verdicts);
            }
        }
    }
    let mut functions = vec![0];
    for (site, call) in call_sites.into_iter().zip(calls) {
        functions.push(main.len());
        main[site] = asm::call_subprogram((main.len() - site - 1) as i32);
        main.extend(tail_call(hook, call));
    }
    Program {
        instructions: main,
        functions,
    }
}

/// The largest N for which one random number of 32 bits suffices to sample one packet in N, with an
/// error below a hundred-thousandth.
const ONE_DRAW: u32 = 1 << 16;

/// Skips the next `skipped` instructions unless the packet is chosen. A choice of one in very many
/// consists of two choices: one in [`ONE_DRAW`], and one among the chosen packets by the remaining
/// ratio.
fn choose(sample: Option<NonZeroU32>, skipped: usize) -> Vec<bpf_insn> {
    let one_in = sample.map_or(1, NonZeroU32::get);
    let limits = match one_in {
        1 => Vec::new(),
        ..=ONE_DRAW => vec![limit(1, one_in)],
        _ => vec![limit(1, ONE_DRAW), limit(ONE_DRAW, one_in)],
    };
    let draws = limits.len();
    let draw = |(index, limit): (usize, i32)| {
        let rest = 2 * (draws - 1 - index) + skipped;
        [
            asm::call_helper(asm::HELPER_PRANDOM_U32),
            asm::jump_gt32(0, limit, rest as i16),
        ]
    };
    limits.into_iter().enumerate().flat_map(draw).collect()
}

/// Returns the largest random number of 32 bits that chooses `part` packets out of `whole`.
fn limit(part: u32, whole: u32) -> i32 {
    let whole = u64::from(whole);
    let numbers = ((u64::from(part) << 32) + whole / 2) / whole;
    (numbers - 1) as i32
}

/// Leaves the common path if the verdict in R0 may be a final verdict. [`build`] fills in the
/// target of the jump.
fn judge(hook: Hook) -> Vec<bpf_insn> {
    let Some(verdicts) = hook.final_verdicts() else {
        return vec![asm::jump_ne32(0, hook.pass(), 0)];
    };
    // The common verdicts are outside the range of the final ones, so a single comparison lets them
    // pass.
    let (first, last) = range(verdicts);
    vec![
        asm::add_imm32(0, -first),
        asm::jump_le32(0, last - first, 0),
    ]
}

/// Ends the program if the verdict is a final verdict. R0 contains the verdict minus the first
/// final verdict. With any other verdict in the range of the final verdicts, the program continues
/// at `next`.
fn finish(main: &mut Vec<bpf_insn>, next: usize, verdicts: &[i32]) {
    let (first, last) = range(verdicts);
    for verdict in (first..=last).filter(|verdict| !verdicts.contains(verdict)) {
        let back = next as i64 - main.len() as i64 - 1;
        main.push(asm::jump_eq32(0, verdict - first, back as i16));
    }
    main.extend([asm::add_imm32(0, first), asm::exit()]);
}

/// Returns the first and the last of some verdicts.
fn range(verdicts: &[i32]) -> (i32, i32) {
    (verdicts[0], verdicts[verdicts.len() - 1])
}

/// Calls the active twin and returns its verdict. If the slot is empty, the packet passes.
fn tail_call(hook: Hook, call: &Call<'_>) -> Vec<bpf_insn> {
    let slot = |slot: i32| {
        let mut out = asm::load_map(2, call.slots).to_vec();
        out.extend([
            asm::mov_imm(3, slot),
            asm::call_helper(asm::HELPER_TAIL_CALL),
        ]);
        out
    };
    let mut out = Vec::new();
    if call.has_twins {
        let (even, odd) = (slot(0), slot(1));
        out.extend(asm::load_map_value(2, call.epochs, call.epoch_offset));
        out.extend([
            asm::load_u32(2, 2, 0),
            asm::jump_set32(2, 1, (even.len() + 1) as i16),
        ]);
        out.extend(even);
        out.push(asm::jump(odd.len() as i16));
        out.extend(odd);
    } else {
        out.extend(slot(0));
    }
    out.extend(asm::load_map_value(0, call.epochs, Page::pass_offset(hook)));
    out.extend([asm::load_u32(0, 0, 0), asm::exit()]);
    out
}

/// The number of bytes of `struct bpf_func_info`: instruction offset and type id.
const RECORD: usize = 8;

/// Type information for a program of several functions, which are all `int f(void *ctx)`. The
/// kernel allows tail calls only in subprograms that are known to return an `int`.
pub struct DebugInfo {
    pub btf: Vec<u8>,
    records: Vec<u8>,
}

impl DebugInfo {
    /// Makes the type information for functions that begin at these instructions. The first
    /// function is the program itself.
    pub fn new(functions: &[usize]) -> Self {
        let mut btf = Btf::new();
        let name = btf.add_string("int");
        let int = btf.add_type(BtfType::Int(Int::new(name, 4, IntEncoding::Signed, 0)));
        let context = btf.add_type(BtfType::Ptr(Ptr::new(0, 0)));
        let name_offset = btf.add_string("ctx");
        let parameter = BtfParam {
            name_offset,
            btf_type: context,
        };
        let proto = btf.add_type(BtfType::FuncProto(FuncProto::new(vec![parameter], int)));
        let mut records = Vec::with_capacity(functions.len() * RECORD);
        for (index, start) in functions.iter().enumerate() {
            let name = if index == 0 {
                "dispatch".to_owned()
            } else {
                format!("probe_{index}")
            };
            let name = btf.add_string(&name);
            let function = btf.add_type(BtfType::Func(Func::new(name, proto, FuncLinkage::Static)));
            records.extend_from_slice(&(*start as u32).to_ne_bytes());
            records.extend_from_slice(&function.to_ne_bytes());
        }
        Self {
            btf: btf.to_bytes(),
            records,
        }
    }

    pub fn records(&self) -> InfoRecords<'_> {
        InfoRecords {
            bytes: &self.records,
            record_size: RECORD as u32,
            count: (self.records.len() / RECORD) as u32,
        }
    }
}

#[cfg(test)]
mod tests;
