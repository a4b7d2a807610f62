//! The functions that a program calls. A section may have several programs. The maps and functions
//! of the other programs are not needed, and a monitor may not allow them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use object::build::Id as _;
use object::build::elf::{Builder, Relocation, Section, SectionData, SectionId, SymbolId};
use object::elf::{R_BPF_64_32, SHF_EXECINSTR, STT_FUNC, STT_SECTION};

use crate::admit::instruction::LOAD_64;
use crate::plan::elf::is_text;
use crate::plan::elf::references::INSTRUCTION;
use crate::plan::elf::types::Forgotten;

const CALL: u8 = 0x85;
/// The values of an instruction's source register with which the instruction's number is the
/// distance to a function.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNC: u8 = 4;

/// A place in code: the index of the section, and the offset in bytes.
type CodePlace = (usize, u64);

#[derive(Debug)]
struct ElfFunction {
    section: SectionId,
    end: u64,
    is_called: bool,
}

/// The functions of an object, by the place where each begins.
struct ElfFunctions(BTreeMap<CodePlace, ElfFunction>);

/// Removes functions that neither the entry point nor the `called` programs lead to, with their
/// references and symbols. Returns the removed functions that have no symbol.
pub fn forget_uncalled(
    builder: &mut Builder<'_>,
    entry: (SectionId, &str),
    called: &HashSet<String>,
) -> Vec<Forgotten> {
    let Some(mut functions) = ElfFunctions::of(builder, entry, called) else {
        return Vec::new();
    };
    functions.follow(builder);
    for section in &mut builder.sections {
        if let (SectionData::Relocation(relocations), Some(code)) =
            (&mut section.data, section.sh_info_section)
        {
            let is_uncalled = |relocation: &Relocation| {
                functions
                    .at((code.index(), relocation.r_offset))
                    .is_some_and(|(_, of)| !of.is_called)
            };
            relocations.retain(|relocation| !is_uncalled(relocation));
        }
    }
    for symbol in builder
        .symbols
        .iter_mut()
        .filter(|symbol| symbol.st_type() == STT_FUNC)
    {
        // aya-obj needs a symbol for each part of `.text`, and does not look into functions there
        // that nothing calls.
        let section = symbol
            .section
            .filter(|section| !is_text(builder.sections.get(*section)));
        let begin = section.map(|section| (section.index(), symbol.st_value));
        symbol.delete |= begin
            .and_then(|begin| functions.0.get(&begin))
            .is_some_and(|of| !of.is_called);
    }
    let forgotten = functions
        .0
        .iter()
        .filter(|(_, of)| !of.is_called)
        .filter_map(|((_, begin), of)| {
            let section = builder.sections.get(of.section);
            let name = section.name.as_slice().to_vec();
            (!is_text(section)).then_some(Forgotten {
                section: name,
                code: *begin..of.end,
            })
        });
    forgotten.collect()
}

impl ElfFunctions {
    /// Finds the functions; `None` if functions overlap, which compilers do not do.
    fn of(
        builder: &Builder<'_>,
        entry: (SectionId, &str),
        called: &HashSet<String>,
    ) -> Option<Self> {
        let mut functions = BTreeMap::new();
        for symbol in builder
            .symbols
            .iter()
            .filter(|symbol| symbol.st_type() == STT_FUNC)
        {
            let section = symbol
                .section
                .filter(|section| is_code(builder.sections.get(*section)));
            let Some(section) = section.filter(|_| symbol.st_size > 0) else {
                continue;
            };
            let name = String::from_utf8_lossy(symbol.name.as_slice());
            let is_called = (section, &*name) == entry || called.contains(&*name);
            let end = symbol.st_value.checked_add(symbol.st_size)?;
            let function = ElfFunction {
                section,
                end,
                is_called,
            };
            if functions
                .insert((section.index(), symbol.st_value), function)
                .is_some()
            {
                return None;
            }
        }
        let overlap = functions.iter().zip(functions.iter().skip(1));
        let overlap = overlap.filter(|((a, of), (b, _))| a.0 == b.0 && of.end > b.1);
        (overlap.count() == 0).then_some(Self(functions))
    }

    fn at(&self, place: CodePlace) -> Option<(CodePlace, &ElfFunction)> {
        let before = (Bound::Unbounded, Bound::Included(place));
        let (begin, function) = self.0.range(before).next_back()?;
        (begin.0 == place.0 && place.1 < function.end).then_some((*begin, function))
    }

    /// Marks the functions that the called functions call.
    fn follow(&mut self, builder: &Builder<'_>) {
        let relocations = relocations(builder);
        let called = self.0.iter().filter(|(_, function)| function.is_called);
        let mut open: Vec<CodePlace> = called.map(|(begin, _)| *begin).collect();
        while let Some(begin) = open.pop() {
            let function = &self.0[&begin];
            let SectionData::Data(code) = &builder.sections.get(function.section).data else {
                continue;
            };
            let places = (begin.1..function.end).step_by(INSTRUCTION as usize);
            // A damaged object may say that a function is longer than its section.
            let code = places.map_while(|at| {
                let code: &[u8; 8] = code
                    .as_slice()
                    .get(usize::try_from(at).ok()?..)?
                    .first_chunk()?;
                Some(((begin.0, at), code))
            });
            let targets = code
                .filter_map(|(place, code)| target(builder, place, code, relocations.get(&place)));
            let targets: Vec<CodePlace> = targets
                .filter_map(|place| self.at(place))
                .map(|(begin, _)| begin)
                .collect();
            for begin in targets {
                let function = self
                    .0
                    .get_mut(&begin)
                    .filter(|function| !function.is_called);
                open.extend(function.map(|function| {
                    function.is_called = true;
                    begin
                }));
            }
        }
    }
}

fn is_code(section: &Section<'_>) -> bool {
    section.sh_flags & u64::from(SHF_EXECINSTR) != 0
}

/// Returns the relocations of code, each with its symbol and its type.
fn relocations(builder: &Builder<'_>) -> BTreeMap<CodePlace, (SymbolId, u32)> {
    let mut found = BTreeMap::new();
    for table in &builder.sections {
        let (SectionData::Relocation(relocations), Some(code)) =
            (&table.data, table.sh_info_section)
        else {
            continue;
        };
        if is_code(builder.sections.get(code)) {
            found.extend(relocations.iter().filter_map(|relocation| {
                Some((
                    (code.index(), relocation.r_offset),
                    (relocation.symbol?, relocation.r_type),
                ))
            }));
        }
    }
    found
}

/// Returns the target of an instruction that calls a function or points to one.
fn target(
    builder: &Builder<'_>,
    (section, at): CodePlace,
    [opcode, registers, _, _, number @ ..]: &[u8; 8],
    relocation: Option<&(SymbolId, u32)>,
) -> Option<CodePlace> {
    let number = i64::from(i32::from_le_bytes(*number));
    let ahead = (number + 1) * INSTRUCTION as i64;
    let Some((symbol, kind)) = relocation else {
        let leads = matches!(
            (*opcode, registers >> 4),
            (CALL, PSEUDO_CALL) | (LOAD_64, PSEUDO_FUNC)
        );
        return Some((section, at.checked_add_signed(ahead)?)).filter(|_| leads);
    };
    let symbol = builder.symbols.get(*symbol);
    let distance = match (symbol.st_type() == STT_SECTION, *kind) {
        (false, _) => 0,
        (true, R_BPF_64_32) => ahead,
        (true, _) => number,
    };
    Some((
        symbol.section?.index(),
        symbol.st_value.checked_add_signed(distance)?,
    ))
}
