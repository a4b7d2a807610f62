//! Changes of an object by chance.

use twinprobe_tests::random::Random;

const INSTRUCTION: usize = 8;
/// The size of an entry of a table of relocations.
const RELOCATION: usize = 16;
const SHT_REL: u64 = 9;
const SHF_EXECINSTR: u64 = 4;
/// Relocations of BPF: none, of 64 bits, of data, and of calls.
const KINDS: [u32; 5] = [0, 1, 2, 3, 10];
/// `r0 = NUMBER` of 64 and of 32 bits.
const VERDICTS: [u8; 2] = [0xb7, 0xb4];

/// The places of an object, in bytes from its start.
struct Places {
    headers: std::ops::Range<usize>,
    code: Vec<std::ops::Range<usize>>,
    /// The entries of relocations of code, each with the code.
    relocations: Vec<(usize, std::ops::Range<usize>)>,
    types: Vec<std::ops::Range<usize>>,
    symbols: Vec<std::ops::Range<usize>>,
}

fn number(elf: &[u8], at: usize, size: usize) -> u64 {
    elf[at..at + size]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Places {
    fn of(elf: &[u8]) -> Self {
        let (start, size) = (number(elf, 0x28, 8) as usize, number(elf, 0x3a, 2) as usize);
        let (count, names) = (number(elf, 0x3c, 2) as usize, number(elf, 0x3e, 2) as usize);
        let header = |section: usize| start + section * size;
        let range = |section: usize| {
            let (from, length) = (
                number(elf, header(section) + 24, 8),
                number(elf, header(section) + 32, 8),
            );
            from as usize..(from + length) as usize
        };
        let is_code = |section: usize| number(elf, header(section) + 8, 8) & SHF_EXECINSTR != 0;
        let name = |section: usize| {
            let at = range(names).start + number(elf, header(section), 4) as usize;
            elf[at..]
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default()
        };
        let code = (1..count).filter(|section| is_code(*section) && !range(*section).is_empty());
        let tables = (1..count).filter(|section| number(elf, header(*section) + 4, 4) == SHT_REL);
        let tables = tables.map(|section| (section, number(elf, header(section) + 44, 4) as usize));
        let relocations =
            tables
                .filter(|(_, target)| is_code(*target))
                .flat_map(|(section, target)| {
                    range(section)
                        .step_by(RELOCATION)
                        .map(move |at| (at, range(target)))
                });
        Self {
            headers: start..start + count * size,
            code: code.map(range).collect(),
            relocations: relocations.collect(),
            types: (1..count)
                .filter(|section| name(*section).starts_with(b".BTF"))
                .map(range)
                .collect(),
            symbols: (1..count)
                .filter(|section| name(*section) == b".symtab")
                .map(range)
                .collect(),
        }
    }
}

/// Changes an object in one to three places. Returns what was done.
pub fn change(elf: &mut [u8], random: &mut Random) -> Vec<String> {
    let places = Places::of(elf);
    (0..=random.below(3))
        .map(|_| one(elf, &places, random))
        .collect()
}

fn pick<'a, T>(of: &'a [T], random: &mut Random) -> &'a T {
    &of[random.below(of.len() as u64) as usize]
}

fn write(elf: &mut [u8], at: usize, bytes: &[u8]) {
    elf[at..at + bytes.len()].copy_from_slice(bytes);
}

fn one(elf: &mut [u8], places: &Places, random: &mut Random) -> String {
    let code = pick(&places.code, random).clone();
    let at = code.start + random.below((code.len() / INSTRUCTION) as u64) as usize * INSTRUCTION;
    let byte = random.below(256) as u8;
    match random.below(10) {
        0 | 1 => {
            let (entry, code) = pick(&places.relocations, random).clone();
            let offset =
                random.below(code.len() as u64) & if random.below(8) == 0 { !0 } else { !7 };
            write(elf, entry, &offset.to_le_bytes());
            format!("relocation at {offset}")
        }
        2 => {
            let (entry, _) = pick(&places.relocations, random).clone();
            let info = random.below(24) << 32 | u64::from(*pick(&KINDS, random));
            write(elf, entry + 8, &info.to_le_bytes());
            format!("relocation of {info:x}")
        }
        3 | 4 => before_a_verdict(elf, places, random),
        5 | 6 => {
            let instruction = instruction(random);
            write(elf, at, &instruction);
            format!(
                "instruction {} is {instruction:x?}",
                (at - code.start) / INSTRUCTION
            )
        }
        7 => {
            let place = at + random.below(INSTRUCTION as u64) as usize;
            elf[place] = byte;
            format!("byte {place} of code is {byte:x}")
        }
        8 => {
            let types = pick(&places.types, random).clone();
            let place = types.start + random.below(types.len() as u64) as usize;
            elf[place] = byte;
            format!("byte {place} of types is {byte:x}")
        }
        _ => {
            let range = if random.below(2) == 0 {
                &places.headers
            } else {
                pick(&places.symbols, random)
            };
            let place = range.start + random.below(range.len() as u64) as usize;
            elf[place] = byte % 32;
            format!("byte {place} of the tables is {:x}", byte % 32)
        }
    }
}

/// Puts a store with a relocation before a verdict: a linker would write into the verdict.
fn before_a_verdict(elf: &mut [u8], places: &Places, random: &mut Random) -> String {
    let (entry, code) = pick(&places.relocations, random).clone();
    let verdicts = code.clone().step_by(INSTRUCTION).skip(1);
    let verdicts: Vec<usize> = verdicts
        .filter(|at| VERDICTS.contains(&elf[*at]) && elf[at + 1] == 0)
        .collect();
    if verdicts.is_empty() {
        return "no verdict".into();
    }
    let before = *pick(&verdicts, random) - INSTRUCTION;
    // `*(u32 *)(r10 - 8) = r0`, and a number that the linker would add to the following
    // instruction.
    write(
        elf,
        before,
        &[0x63, 0x0a, 0xf8, 0xff, random.below(8) as u8, 0, 0, 0],
    );
    write(elf, entry, &((before - code.start) as u64).to_le_bytes());
    if random.below(4) == 0 {
        write(
            elf,
            entry + 8,
            &u64::from(*pick(&KINDS, random)).to_le_bytes()[..4],
        );
    }
    format!("relocation before the verdict at {}", before - code.start)
}

/// An instruction that matters: a verdict, a write, a read that may end the program, a call.
fn instruction(random: &mut Random) -> [u8; INSTRUCTION] {
    let small = random.below(8) as u8;
    let field = (random.below(40) * 4) as u8;
    match random.below(8) {
        0 => [0xb7, 0, 0, 0, small, 0, 0, 0],
        1 => [0xb4, 0, 0, 0, small, 0, 0, 0],
        // A load from the packet without a pointer, within the packet and beyond it.
        2 => [0x30, 0, 0, 0, field, small, 0, 0],
        3 => [0x95, 0, 0, 0, 0, 0, 0, 0],
        // The context: written, and read.
        4 => [0x62, 0x01, field, 0, small, 0, 0, 0],
        5 => [0x61, random.below(10) as u8 | 0x10, field, 0, 0, 0, 0, 0],
        6 => [0x85, 0, 0, 0, random.below(220) as u8, 0, 0, 0],
        _ => [0x72, 0x02 + small, small, 0, small, 0, 0, 0],
    }
}
