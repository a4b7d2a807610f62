//! Names that a source leaves to its loader: options of the kernel's configuration (`__kconfig`),
//! and functions and variables of the kernel (`__ksym`). A program that declares the latter
//! `__weak` finds them absent.

use object::build::ByteString;
use object::build::elf::{Builder, SectionData, SectionId, Symbol, SymbolId};
use object::elf::{
    R_BPF_64_64, SHF_ALLOC, SHN_UNDEF, SHT_PROGBITS, STB_GLOBAL, STB_WEAK, STT_OBJECT,
};
use twinprobe_ebpf_common::{Btf, Layout, Shape};

use crate::admit::functions::FUNCTIONS;
use crate::plan::elf::error::ElfError;
use crate::plan::elf::types::{FUNCTION, INT, SECTION, TYPE, Types, VARIABLE};
use crate::plan::request::KernelOptions;

/// The section of kernel options in the type information, and the section that the daemon makes
/// from it.
const OPTIONS: &[u8] = b".kconfig";
const VALUES: &str = ".rodata.kconfig";
/// The section of the kernel's functions and variables.
const SYMBOLS: &[u8] = b".ksyms";
/// The linkage of a variable that the object defines.
const GLOBAL: u32 = 1;
/// The numbers of missing helper functions for the beginning and the continuation of [an
/// iterator](crate::load::bind) over numbers.
pub const FIRST_NUMBER: u32 = 0x0bad_3001;
pub const NEXT_NUMBER: u32 = 0x0bad_3002;
/// The functions of the kernel that `bpf_for` and `bpf_repeat` of libbpf call; 0 for a function
/// with nothing to do.
const ITERATORS: [(&str, u32); 3] = [
    ("bpf_iter_num_new", FIRST_NUMBER),
    ("bpf_iter_num_next", NEXT_NUMBER),
    ("bpf_iter_num_destroy", 0),
];
const CALL: u8 = 0x85;
/// `r0 = 0`, in place of a call that the program does not reach.
const NOTHING: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

/// Sets options to their values, and removes references to kernel objects that may be missing.
pub fn resolve(
    builder: &mut Builder<'_>,
    types: &mut Types,
    btf: &Btf,
    options: KernelOptions,
) -> Result<Vec<String>, ElfError> {
    define_options(builder, types, btf, options)?;
    forget_symbols(types);
    iterate(builder);
    Ok(absent(builder))
}

/// Returns the place of the section with this name in the type information.
fn section(types: &Types, name: &[u8]) -> Option<usize> {
    let mut sections = types
        .each()
        .filter(|(_, kind, at)| *kind == SECTION && types.text(types.word(*at)) == name);
    sections.next().map(|(.., at)| at)
}

/// Returns the symbol of this name that the object uses but does not define.
fn undefined(builder: &Builder<'_>, name: &[u8]) -> Option<(SymbolId, bool)> {
    let mut symbols = builder
        .symbols
        .iter()
        .filter(|symbol| symbol.section.is_none());
    let symbol =
        symbols.find(|symbol| symbol.st_shndx == SHN_UNDEF && symbol.name.as_slice() == name)?;
    Some((symbol.id(), symbol.st_bind() == STB_WEAK))
}

fn define_options(
    builder: &mut Builder<'_>,
    types: &mut Types,
    btf: &Btf,
    options: KernelOptions,
) -> Result<(), ElfError> {
    let Some(at) = section(types, OPTIONS) else {
        return Ok(());
    };
    let mut data: Vec<u8> = Vec::new();
    let mut defined: Vec<(SymbolId, usize, usize)> = Vec::new();
    for entry in types.parts(at) {
        let Some((VARIABLE, variable)) = types.find(types.word(entry)) else {
            return Err(ElfError::DamagedBtf);
        };
        let name = types.text(types.word(variable)).to_vec();
        let layout = btf.layout(types.word(variable + 8))?;
        data.resize(data.len().next_multiple_of(8), 0);
        let start = data.len();
        let symbol = undefined(builder, &name);
        let text = String::from_utf8_lossy(&name).into_owned();
        let value = match (options.value(&text), symbol) {
            (Some(option), _) => value(&option, &layout).map_err(|reason| ElfError::Option {
                name: text,
                reason: reason.to_owned(),
            })?,
            (None, Some((_, false))) => return Err(ElfError::NoOption(text)),
            (None, _) => vec![0; layout.size],
        };
        data.extend_from_slice(&value);
        types.set_word(variable + TYPE, GLOBAL);
        types.set_word(entry + 4, start as u32);
        types.set_word(entry + 8, layout.size as u32);
        defined.extend(symbol.map(|(symbol, _)| (symbol, start, layout.size)));
    }
    let name = types.add_text(VALUES);
    types.set_word(at, name);
    types.set_word(at + 8, data.len() as u32);
    let values = add_section(builder, data);
    for (symbol, start, size) in defined {
        let symbol = builder.symbols.get_mut(symbol);
        symbol.section = Some(values);
        symbol.st_value = start as u64;
        symbol.st_size = size as u64;
        symbol.set_st_info(STB_GLOBAL, STT_OBJECT);
    }
    Ok(())
}

fn add_section(builder: &mut Builder<'_>, data: Vec<u8>) -> SectionId {
    let section = builder.sections.add();
    section.name = ByteString::from(VALUES.as_bytes().to_vec());
    section.sh_type = SHT_PROGBITS;
    section.sh_flags = SHF_ALLOC.into();
    section.sh_addralign = 8;
    section.data = SectionData::Data(data.into());
    section.id()
}

/// Returns the bytes of an option, whose variable has this layout.
fn value(option: &str, layout: &Layout) -> Result<Vec<u8>, &'static str> {
    let states = |known: &[(&str, u8)]| {
        known
            .iter()
            .find(|(name, _)| *name == option)
            .map(|(_, value)| *value)
    };
    let mut bytes = vec![0; layout.size];
    let state = match &layout.shape {
        Shape::Bool => states(&[("y", 1), ("n", 0)]),
        Shape::Enum { .. } => states(&[("y", 1), ("m", 2), ("n", 0)]),
        Shape::Char => states(&[("y", b'y'), ("m", b'm'), ("n", b'n')]),
        Shape::Array { element, .. } if element.shape == Shape::Char => {
            let text = option
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'));
            let text = text.ok_or("it is not a text")?.as_bytes();
            let length = text.len().min(layout.size.saturating_sub(1));
            bytes[..length].copy_from_slice(&text[..length]);
            return Ok(bytes);
        }
        Shape::Int { signed } => {
            let number = option
                .strip_prefix("0x")
                .map_or_else(|| option.parse(), |hex| i128::from_str_radix(hex, 16));
            let number: i128 = number.map_err(|_| "it is not a number")?;
            let bits = 8 * layout.size.min(8) as u32;
            let (least, most) = if *signed {
                (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
            } else {
                (0, (1 << bits) - 1)
            };
            if !(least..=most).contains(&number) {
                return Err("the number does not fit into the variable");
            }
            let length = layout.size.min(16);
            bytes[..length].copy_from_slice(&number.to_le_bytes()[..length]);
            return Ok(bytes);
        }
        _ => return Err("variables of this type take no option"),
    };
    let state = state.ok_or("the type of the variable does not have it")?;
    *bytes.first_mut().ok_or("the variable has no size")? = state;
    Ok(bytes)
}

/// Takes the kernel's functions and variables out of the type information, where the kernel does
/// not take them.
fn forget_symbols(types: &mut Types) {
    let Some(at) = section(types, SYMBOLS) else {
        return;
    };
    for entry in types.parts(at) {
        match types.find(types.word(entry)) {
            // The types of these variables may have no size: a number of one byte stands for each.
            Some((VARIABLE, variable)) => {
                types.set_word(variable + 4, INT << 24);
                types.set_word(variable + 8, 1);
                types.set_word(variable + TYPE, 8);
            }
            // A static function.
            Some((FUNCTION, function)) => types.set_word(function + 4, FUNCTION << 24),
            _ => {}
        }
    }
    types.forget_section(at);
}

/// Replaces calls of number iterators and of permitted kernel functions by calls of code that the
/// loader writes.
fn iterate(builder: &mut Builder<'_>) {
    let functions = FUNCTIONS
        .iter()
        .map(|function| (function.name, function.number));
    let known: Vec<(&str, u32)> = ITERATORS.into_iter().chain(functions.clone()).collect();
    let numbers = |name: &str| {
        known
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, number)| *number)
    };
    let iterators: Vec<SymbolId> = undefined_symbols(builder)
        .filter(|symbol| {
            let name = String::from_utf8_lossy(symbol.name.as_slice());
            let is_function = functions.clone().any(|(known, _)| known == name);
            numbers(&name).is_some() && !(is_function && is_asked_for(builder, symbol))
        })
        .map(Symbol::id)
        .collect();
    take_out(builder, &iterators, |name| match numbers(name) {
        Some(number) if number != 0 => {
            let [a, b, c, d] = number.to_le_bytes();
            [CALL, 0, 0, 0, a, b, c, d]
        }
        _ => NOTHING,
    });
}

/// Tells whether a program reads the address of a weak symbol. Such a program is written to work
/// without the symbol: it checks for the address 0.
fn is_asked_for(builder: &Builder<'_>, symbol: &Symbol<'_>) -> bool {
    let mut asked = builder
        .sections
        .iter()
        .flat_map(|section| match &section.data {
            SectionData::Relocation(relocations) => relocations.as_slice(),
            _ => &[],
        });
    symbol.st_bind() == STB_WEAK
        && asked.any(|one| one.symbol == Some(symbol.id()) && one.r_type == R_BPF_64_64)
}

/// Makes the addresses of undefined weak symbols zero, so that calls of them do nothing. Returns
/// their names.
fn absent(builder: &mut Builder<'_>) -> Vec<String> {
    let weak = undefined_symbols(builder).filter(|symbol| symbol.st_bind() == STB_WEAK);
    let weak: Vec<SymbolId> = weak.map(Symbol::id).collect();
    take_out(builder, &weak, |_| NOTHING)
}

fn undefined_symbols<'a, 'b>(builder: &'a Builder<'b>) -> impl Iterator<Item = &'a Symbol<'b>> {
    builder
        .symbols
        .iter()
        .filter(|symbol| symbol.section.is_none() && symbol.st_shndx == SHN_UNDEF)
}

/// Removes symbols from the object: their addresses become zero, and `call` returns the code that
/// replaces a call of a symbol. Returns the names of the symbols.
fn take_out(
    builder: &mut Builder<'_>,
    symbols: &[SymbolId],
    call: impl Fn(&str) -> [u8; 8],
) -> Vec<String> {
    let name = |builder: &Builder<'_>, id| {
        String::from_utf8_lossy(builder.symbols.get(id).name.as_slice()).into_owned()
    };
    let names: Vec<String> = symbols.iter().map(|id| name(builder, *id)).collect();
    let number = |symbol: Option<SymbolId>| symbols.iter().position(|id| Some(*id) == symbol);
    let mut places: Vec<(SectionId, u64, u32, usize)> = Vec::new();
    for section in &mut builder.sections {
        let Some(target) = section.sh_info_section else {
            continue;
        };
        let SectionData::Relocation(relocations) = &mut section.data else {
            continue;
        };
        places.extend(relocations.iter().filter_map(|relocation| {
            Some((
                target,
                relocation.r_offset,
                relocation.r_type,
                number(relocation.symbol)?,
            ))
        }));
        relocations.retain(|relocation| number(relocation.symbol).is_none());
    }
    for (section, offset, kind, number) in places {
        let SectionData::Data(data) = &mut builder.sections.get_mut(section).data else {
            continue;
        };
        let mut bytes = data.as_slice().to_vec();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if kind == R_BPF_64_64 {
            // Opcode and registers of the load stay, and the number is zero.
            if let Some(load) = bytes
                .get_mut(at..)
                .and_then(|rest| rest.first_chunk_mut::<16>())
            {
                load[1] &= 0x0f;
                load[4..8].fill(0);
                load[12..16].fill(0);
            }
        } else if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = call(&names[number]);
        }
        *data = bytes.into();
    }
    for symbol in symbols {
        builder.symbols.get_mut(*symbol).delete = true;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_values_that_their_variables_ask_for() {
        let of = |shape: Shape, size: usize| Layout {
            size,
            shape,
            render: None,
        };
        let text = |size| {
            of(
                Shape::Array {
                    element: Box::new(of(Shape::Char, 1)),
                    len: size,
                },
                size,
            )
        };
        let state = || {
            of(
                Shape::Enum {
                    signed: false,
                    variants: Vec::new(),
                },
                4,
            )
        };
        assert_eq!(value("y", &of(Shape::Bool, 1)), Ok(vec![1]));
        assert_eq!(value("m", &state()), Ok(vec![2, 0, 0, 0]));
        assert_eq!(value("y", &of(Shape::Char, 1)), Ok(vec![b'y']));
        assert_eq!(value("\"abcdef\"", &text(4)), Ok(vec![b'a', b'b', b'c', 0]));
        assert_eq!(
            value("250", &of(Shape::Int { signed: false }, 4)),
            Ok(vec![250, 0, 0, 0])
        );
        assert_eq!(
            value("0x10", &of(Shape::Int { signed: false }, 8)),
            Ok(vec![16, 0, 0, 0, 0, 0, 0, 0])
        );
        assert_eq!(
            value("-1", &of(Shape::Int { signed: true }, 2)),
            Ok(vec![255, 255])
        );
        assert!(value("m", &of(Shape::Bool, 1)).is_err());
        assert!(value("256", &of(Shape::Int { signed: false }, 1)).is_err());
        assert!(value("y", &of(Shape::Int { signed: false }, 4)).is_err());
    }
}
