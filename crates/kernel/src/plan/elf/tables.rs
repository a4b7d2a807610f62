//! Tables of programs (`BPF_MAP_TYPE_PROG_ARRAY`) that a source fills itself: `.values = { [1] =
//! (void *)&parse }`.

use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::unit::Calls;

use crate::plan::elf::maps::MapPointer;
use crate::plan::elf::types::{FUNCTION, Types};

/// The size of a pointer in an object, in bytes.
const POINTER: usize = 8;
/// The most slots with programs of one table, and the most programs.
pub const MAX_SLOTS: usize = 250;

/// The reason why calls through tables can't become calls of functions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "{0} calls bpf_tail_call in a function of its own, which is not possible here; make the function static \
         __always_inline"
    )]
    InFunction(String),
    #[error(
        "a call of bpf_tail_call in {0} does not show which table it is through; write bpf_tail_call(ctx, &table, slot) with the \
         name of a table that the source fills: .values = {{ [0] = (void *)&program }}"
    )]
    UnknownTable(String),
    #[error(
        "slot {slot} of the table {table} leads to {program}, and this object has no such program"
    )]
    NoProgram {
        table: String,
        slot: u32,
        program: String,
    },
    #[error(
        "tables of programs lead to more than {MAX_SLOTS} programs, or one has more slots; leave some out"
    )]
    Many,
    #[error("a program is too long for the calls that are put into it; make it smaller")]
    TooLong,
}

/// Returns the programs in the slots of each table that contains programs.
pub fn calls(btf: &Btf, pointers: &[MapPointer]) -> Calls {
    let mut calls = Calls::new();
    for MapPointer {
        outer,
        offset,
        inner,
    } in pointers
    {
        let slot = btf.programs_offset(outer).and_then(|first| {
            u32::try_from(usize::try_from(*offset).ok()?.checked_sub(first)? / POINTER).ok()
        });
        if let Some(slot) = slot {
            calls
                .entry(outer.clone())
                .or_default()
                .insert(slot, inner.clone());
        }
    }
    calls
}

/// Makes programs static functions. The verifier follows a static function from its call, so that
/// its parameter may have any type.
pub fn make_static(types: &mut Types, entry: &str, calls: &Calls) {
    let is_program = |name: &[u8]| {
        name == entry.as_bytes()
            || calls
                .values()
                .flat_map(|slots| slots.values())
                .any(|of| of.as_bytes() == name)
    };
    let functions = types
        .each()
        .filter(|(_, kind, at)| *kind == FUNCTION && is_program(types.text(types.word(*at))));
    let functions: Vec<usize> = functions.map(|(.., at)| at).collect();
    functions
        .into_iter()
        .for_each(|at| types.set_word(at + 4, FUNCTION << 24));
}
