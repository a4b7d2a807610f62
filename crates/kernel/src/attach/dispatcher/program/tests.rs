//! A model of the machine that runs the dispatcher's instructions, compared with a plain
//! description of a dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use proptest::prelude::*;

use super::*;
use crate::admit::verdicts::Verdicts;

/// The content of a register. Reading a register without content is an error, as it is to the
/// verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Nothing,
    Number(u64),
    /// The packet's context, which comes in R1.
    Context,
    /// The slots of the call with this index.
    Slots(usize),
    /// An offset in the value of the epoch map of the call with this index.
    Epoch(usize, i32),
}

struct Machine<'a> {
    program: &'a Program,
    /// The descriptors of the slots of each call.
    slots: Vec<i32>,
    /// The descriptors of the epoch maps of each call.
    epochs: Vec<i32>,
    /// The verdicts of the programs in the slots, which have the numbers of [`slot`].
    programs: &'a BTreeMap<usize, i32>,
    words: &'a BTreeMap<i32, u64>,
    /// The random numbers; the last one comes first.
    random: Vec<u32>,
    /// The slots whose programs have run, in order.
    called: Vec<usize>,
    /// The call that last read its epoch map.
    followed: Option<usize>,
    /// For each call, whether it has twins.
    have_twins: Vec<bool>,
}

/// The text of a call without its maps.
#[derive(Clone, Copy, Debug)]
struct Probed {
    has_twins: bool,
    epoch_offset: i32,
    verdict: Verdict,
    stands: bool,
    sample: Option<NonZeroU32>,
}

/// Returns a number for the slot of the twin of even or odd epochs of a call.
fn slot(call: usize, parity: u64) -> usize {
    2 * call + parity as usize
}

impl Machine<'_> {
    /// The instructions of the function that begins at `start`.
    fn function(&self, start: usize) -> Range<usize> {
        let functions = &self.program.functions;
        let index = functions
            .iter()
            .position(|first| *first == start)
            .expect("a function begins here");
        start
            ..functions
                .get(index + 1)
                .copied()
                .unwrap_or(self.program.instructions.len())
    }

    /// Runs a function to its end and returns R0. `context` is R1.
    fn run(&mut self, start: usize, context: Value) -> u64 {
        let function = self.function(start);
        let mut registers = [Value::Nothing; 10];
        registers[1] = context;
        let mut next = start;
        // No instruction runs twice, so that every function ends.
        let mut run = BTreeSet::new();
        loop {
            assert!(run.insert(next), "instruction {next} runs again");
            assert!(
                function.contains(&next),
                "instruction {next} is not in {function:?}"
            );
            let insn = self.program.instructions[next];
            let (dst, src, imm) = (
                usize::from(insn.dst_reg()),
                usize::from(insn.src_reg()),
                insn.imm,
            );
            next += 1;
            let number = |register: usize| match registers[register] {
                Value::Number(number) => number,
                other => panic!("R{register} is {other:?}"),
            };
            let mut jump = |condition: bool| {
                next = next.wrapping_add_signed(if condition { insn.off.into() } else { 0 });
            };
            match insn.code {
                0xbf => {
                    assert_ne!(registers[src], Value::Nothing, "R{src}");
                    registers[dst] = registers[src];
                }
                0xb7 => registers[dst] = Value::Number(i64::from(imm) as u64),
                0x04 => {
                    registers[dst] =
                        Value::Number(u64::from((number(dst) as u32).wrapping_add(imm as u32)));
                }
                0x05 => jump(true),
                0x16 => jump(number(dst) as u32 == imm as u32),
                0x26 => jump(number(dst) as u32 > imm as u32),
                0x46 => jump(number(dst) as u32 & imm as u32 != 0),
                0x56 => jump(number(dst) as u32 != imm as u32),
                0xb6 => jump(number(dst) as u32 <= imm as u32),
                0x61 => {
                    let Value::Epoch(call, offset) = registers[src] else {
                        panic!("R{src} is {:?}", registers[src])
                    };
                    self.followed = Some(call);
                    let word = self.words[&(offset + i32::from(insn.off))];
                    registers[dst] = Value::Number(u64::from(word as u32));
                }
                0x18 => {
                    let second = self.program.instructions[next];
                    next += 1;
                    registers[dst] = match src {
                        1 => Value::Slots(
                            self.slots.iter().position(|fd| *fd == imm).expect("slots"),
                        ),
                        2 => {
                            let call = self
                                .epochs
                                .iter()
                                .position(|fd| *fd == imm)
                                .expect("an epoch map");
                            Value::Epoch(call, second.imm)
                        }
                        _ => panic!("no such map: {src}, {imm}"),
                    };
                }
                0x85 if src == 1 => {
                    let result = self.run(next + imm as usize, registers[1]);
                    registers[..6].fill(Value::Nothing);
                    registers[0] = Value::Number(result);
                }
                0x85 if imm == asm::HELPER_PRANDOM_U32 => {
                    assert_eq!(src, 0);
                    registers[..6].fill(Value::Nothing);
                    let random = self.random.pop().expect("a random number");
                    registers[0] = Value::Number(u64::from(random));
                }
                0x85 => {
                    assert_eq!((src, imm), (0, asm::HELPER_TAIL_CALL));
                    assert_eq!(registers[1], Value::Context);
                    let Value::Slots(call) = registers[2] else {
                        panic!("R2 is {:?}", registers[2])
                    };
                    if self.have_twins[call] {
                        assert_eq!(
                            self.followed,
                            Some(call),
                            "the slots of one probe, the epoch of another"
                        );
                    }
                    let slot = slot(call, number(3));
                    if let Some(verdict) = self.programs.get(&slot) {
                        // The program takes the place of this function and returns to its caller.
                        self.called.push(slot);
                        return u64::from(*verdict as u32);
                    }
                    registers[..6].fill(Value::Nothing);
                    registers[0] = Value::Number(u64::MAX - 1);
                }
                0x95 => return number(0),
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }
}

/// Returns the expected result of a dispatcher: the verdict, and the called slots.
fn expected(
    hook: Hook,
    calls: &[Probed],
    programs: &BTreeMap<usize, i32>,
    words: &BTreeMap<i32, u64>,
    random: &[u32],
) -> (i32, Vec<usize>) {
    let mut called = Vec::new();
    let mut random = random.iter().rev();
    for (index, call) in calls.iter().enumerate() {
        if !is_chosen(call.sample.map_or(1, NonZeroU32::get), &mut random) {
            continue;
        }
        let slot = slot(
            index,
            if call.has_twins {
                words[&call.epoch_offset] % 2
            } else {
                0
            },
        );
        let Some(verdict) = programs.get(&slot) else {
            continue;
        };
        called.push(slot);
        let is_final = match hook {
            Hook::Xdp => *verdict != 2,
            // TC_ACT_SHOT, STOLEN, QUEUED, REDIRECT, TRAP.
            Hook::TcIngress | Hook::TcEgress => [2, 4, 5, 7, 8].contains(verdict),
        };
        if call.verdict == Verdict::Enforce && is_final {
            return (*verdict, called);
        }
    }
    (hook.pass(), called)
}

/// Tells whether a packet belongs to the sample. One random number decides if that is exact enough,
/// or else two numbers.
fn is_chosen<'a>(one_in: u32, random: &mut impl Iterator<Item = &'a u32>) -> bool {
    let mut draw =
        |numbers: f64| f64::from(*random.next().expect("a random number")) < numbers.round();
    let all = 2_f64.powi(32);
    match one_in {
        1 => true,
        ..=65_536 => draw(all / f64::from(one_in)),
        _ => draw(65_536.0) && draw(all * 65_536.0 / f64::from(one_in)),
    }
}

fn check(
    hook: Hook,
    calls: &[Probed],
    programs: &BTreeMap<usize, i32>,
    words: &BTreeMap<i32, u64>,
    random: &[u32],
) {
    let stands = |(index, call): (usize, &Probed)| {
        let of = |twin| {
            programs
                .get(&slot(index, twin))
                .map_or(Verdicts::NONE, |one| Verdicts::one(*one))
        };
        Probed {
            stands: of(0).or(of(1)).stand(hook, call.verdict),
            ..*call
        }
    };
    for calls in [
        calls.to_vec(),
        calls.iter().enumerate().map(stands).collect(),
    ] {
        run(hook, &calls, programs, words, random);
        // The twins of some probes are the same program.
        let without = |(index, call): (usize, &Probed)| Probed {
            has_twins: index % 3 == 1,
            ..*call
        };
        let calls: Vec<Probed> = calls.iter().enumerate().map(without).collect();
        run(hook, &calls, programs, words, random);
    }
}

fn run(
    hook: Hook,
    calls: &[Probed],
    programs: &BTreeMap<usize, i32>,
    words: &BTreeMap<i32, u64>,
    random: &[u32],
) {
    // Each probe has slots and an epoch map of its own.
    let open = |_| [(); 2].map(|()| File::open("/dev/null").unwrap());
    let files: Vec<[File; 2]> = calls.iter().map(open).collect();
    let with_maps = calls
        .iter()
        .zip(&files)
        .map(|(call, [slots, epochs])| Call {
            slots: slots.as_fd(),
            has_twins: call.has_twins,
            epochs: epochs.as_fd(),
            epoch_offset: call.epoch_offset,
            verdict: call.verdict,
            stands: call.stands,
            sample: call.sample,
        });
    let program = build(hook, &with_maps.collect::<Vec<_>>());
    let mut words = words.clone();
    words.insert(Page::pass_offset(hook), u64::from(hook.pass() as u32));
    let [slots, epochs] =
        [0, 1].map(|map| files.iter().map(|maps| maps[map].as_raw_fd()).collect());
    let (random_left, called) = (random.to_vec(), Vec::new());
    let mut machine = Machine {
        program: &program,
        slots,
        epochs,
        programs,
        words: &words,
        random: random_left,
        called,
        followed: None,
        have_twins: calls.iter().map(|call| call.has_twins).collect(),
    };
    let verdict = machine.run(0, Value::Context) as i32;
    let expected = expected(hook, calls, programs, &words, random);
    assert_eq!((verdict, machine.called), expected, "{hook:?}: {calls:?}");
}

/// One probe of a chain: true if its verdict counts, its epoch, its sampling rate (one packet in
/// this many), and the results of its twins; `None` if the slot is empty.
type Probe = (bool, usize, u32, [Option<i32>; 2]);

fn chain(probes: &[Probe]) -> (Vec<Probed>, BTreeMap<usize, i32>) {
    let mut programs = BTreeMap::new();
    let call = |(i, (enforces, epoch, one_in, twins)): (usize, &Probe)| {
        programs.extend((0..2).filter_map(|twin| Some((slot(i, twin), twins[twin as usize]?))));
        let verdict = if *enforces {
            Verdict::Enforce
        } else {
            Verdict::Observe
        };
        let sample = NonZeroU32::new(*one_in);
        let epoch_offset = 64 + 32 * *epoch as i32;
        Probed {
            has_twins: true,
            epoch_offset,
            verdict,
            stands: false,
            sample,
        }
    };
    let calls = probes.iter().enumerate().map(call).collect();
    (calls, programs)
}

fn epochs(values: &[u64]) -> BTreeMap<i32, u64> {
    values
        .iter()
        .enumerate()
        .map(|(i, value)| (64 + 32 * i as i32, *value))
        .collect()
}

/// Returns sampling rates, one packet in this many: 0 and 1 stand for all.
fn sample() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, 2..70_000_u32, any::<u32>()]
}

proptest! {
    #[test]
    fn any_chain_does_what_its_probes_ask_for(
        probes in prop::collection::vec((any::<bool>(), 0..4usize, sample(), any::<[Option<i8>; 2]>()), 0..=16),
        values in any::<[u64; 4]>(),
        // Small numbers are as frequent as large ones, so that samples of every size are chosen.
        random in prop::collection::vec((any::<u32>(), 0..32_u32), 32),
    ) {
        // Most numbers are small, as verdicts are; some are not verdicts.
        let verdict = |verdict: i8| if verdict < 100 { i32::from(verdict.rem_euclid(11)) - 1 } else { i32::from(verdict) << 24 };
        let probes: Vec<Probe> =
            probes.into_iter().map(|(enforces, epoch, one_in, twins)| (enforces, epoch, one_in, twins.map(|v| v.map(verdict)))).collect();
        let random: Vec<u32> = random.into_iter().map(|(number, shift)| number >> shift).collect();
        let (calls, programs) = chain(&probes);
        for hook in Hook::ALL {
            check(hook, &calls, &programs, &epochs(&values), &random);
        }
    }
}

/// Each verdict at each place of a chain of two, enforced or not, from either twin.
#[test]
fn every_verdict_is_enforced_or_not() {
    for hook in Hook::ALL {
        for verdict in (-2..=12).chain([255, i32::MIN, i32::MAX]) {
            for (first, enforces, epoch) in (0..8).map(|n| (n & 1 == 0, n & 2 == 0, n >> 2)) {
                let twins = if epoch == 0 {
                    [Some(verdict), Some(0)]
                } else {
                    [Some(0), Some(verdict)]
                };
                let (ours, other) = ((enforces, 0, 0, twins), (false, 1, 1, [Some(1), Some(1)]));
                let (calls, programs) = chain(&if first { [ours, other] } else { [other, ours] });
                check(hook, &calls, &programs, &epochs(&[epoch, 0]), &[]);
            }
        }
    }
}

#[test]
fn samples_have_the_size_that_is_asked_for() {
    for one_in in [
        2,
        3,
        7,
        1000,
        65_535,
        65_536,
        65_537,
        1_000_003,
        u32::MAX - 1,
        u32::MAX,
    ] {
        let choice = choose(NonZeroU32::new(one_in), 9);
        let jumps = choice.iter().filter(|insn| insn.code == 0x26);
        let ratio: f64 = jumps
            .map(|jump| (f64::from(jump.imm as u32) + 1.0) / 2_f64.powi(32))
            .product();
        let error = ratio * f64::from(one_in) - 1.0;
        assert!(error.abs() < 1e-5, "{one_in}: {error}");
        assert_eq!(choice.len(), if one_in <= 65_536 { 2 } else { 4 });
    }
}

#[test]
fn a_probe_that_sees_every_packet_has_no_instruction_for_samples() {
    for sample in [None, NonZeroU32::new(1)] {
        assert!(choose(sample, 9).is_empty());
    }
}

/// A single probe whose verdict stays unchanged costs a packet neither a subprogram nor a saved
/// register.
#[test]
fn a_last_probe_whose_verdict_stands_takes_the_place_of_the_dispatcher() {
    let file = File::open("/dev/null").unwrap();
    let (slots, epochs) = (file.as_fd(), file.as_fd());
    let (epoch_offset, verdict) = (64, Verdict::Observe);
    let call = Call {
        slots,
        has_twins: true,
        epochs,
        epoch_offset,
        verdict,
        stands: true,
        sample: None,
    };
    for hook in Hook::ALL {
        let build = |calls: &[Call<'_>]| build(hook, calls);
        let one = build(&[call]);
        assert_eq!(one.functions, [0]);
        assert!(
            one.instructions
                .iter()
                .all(|insn| insn.dst_reg() < 6 && insn.src_reg() < 6)
        );
        assert_eq!(build(&[call, call]).functions.len(), 2);
        let overruled = Call {
            stands: false,
            ..call
        };
        assert_eq!(build(&[overruled]).functions.len(), 2);
        // A probe without twins has one program, in every epoch.
        let alone = build(&[Call {
            has_twins: false,
            ..call
        }]);
        assert_eq!(
            alone
                .instructions
                .iter()
                .filter(|insn| insn.code == 0x85)
                .count(),
            1
        );
        assert!(alone.instructions.len() < one.instructions.len() / 2 + 2);
    }
}
