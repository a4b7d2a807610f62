//! Objects of compilers before clang 8. Their symbols tell neither their kind (function or
//! variable) nor their length.

use std::collections::BTreeMap;

use object::build::Id as _;
use object::build::elf::{Builder, SymbolId};
use object::elf::{SHF_EXECINSTR, STB_GLOBAL, STT_FUNC, STT_NOTYPE, STT_OBJECT};

/// Gives the global symbols of such an object the types and sizes that a compiler would give them
/// now: each symbol ends where the next symbol begins.
pub fn complete(builder: &mut Builder<'_>) {
    let has_types = builder
        .symbols
        .iter()
        .any(|symbol| matches!(symbol.st_type(), STT_FUNC | STT_OBJECT));
    if has_types {
        return;
    }
    let mut begins: BTreeMap<(usize, u64), SymbolId> = BTreeMap::new();
    for symbol in builder.symbols.iter() {
        let is_untyped = symbol.st_type() == STT_NOTYPE && symbol.st_bind() == STB_GLOBAL;
        if let Some(section) = symbol.section.filter(|_| is_untyped) {
            begins.insert((section.index(), symbol.st_value), symbol.id());
        }
    }
    let all: Vec<((usize, u64), SymbolId)> = begins.into_iter().collect();
    for (index, ((section, begin), id)) in all.iter().enumerate() {
        let symbol = builder.symbols.get(*id);
        let Some(of) = symbol.section.map(|section| builder.sections.get(section)) else {
            continue;
        };
        let next = all
            .get(index + 1)
            .filter(|((other, _), _)| other == section)
            .map(|((_, begin), _)| *begin);
        let size = next.unwrap_or(of.sh_size).saturating_sub(*begin);
        let kind = if of.sh_flags & u64::from(SHF_EXECINSTR) != 0 {
            STT_FUNC
        } else {
            STT_OBJECT
        };
        let symbol = builder.symbols.get_mut(*id);
        symbol.set_st_info(STB_GLOBAL, kind);
        symbol.st_size = size;
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::hook::Hook;

    use super::*;
    use crate::plan::elf::add_section_names;
    use crate::plan::probe_plan::ProbePlan;
    use crate::plan::tests::scene::{FACTS, at, compile};

    #[test]
    fn programs_and_maps_are_found_without_types_of_symbols() {
        let elf = compile(
            "struct early { u32 type, key_size, value_size, max_entries, map_flags; };
             struct early SEC(\"maps\") first = { 2, 4, 8, 1 };
             struct early SEC(\"maps\") second = { 2, 4, 16, 1 };
             static void *(*lookup)(void *, const void *) = (void *)1;
             SEC(\"xdp_first\") int one(void *ctx) { u32 key = 0; return lookup(&second, &key) ? 1 : 2; }
             SEC(\"xdp_second\") int other(void *ctx) { u32 key = 0; return lookup(&first, &key) ? 1 : 2; }",
        );
        let mut builder = Builder::read(&*elf).unwrap();
        for symbol in &mut builder.symbols {
            if matches!(symbol.st_type(), STT_FUNC | STT_OBJECT) {
                symbol.set_st_info(symbol.st_bind(), STT_NOTYPE);
                symbol.st_size = 0;
            }
        }
        add_section_names(&mut builder);
        let mut untyped = Vec::new();
        builder.write(&mut untyped).unwrap();
        let mut request = at(Hook::Xdp, Vec::new());
        request.entry = Some("one".to_owned());
        let (plan, _, findings) = ProbePlan::build([(request, &untyped[..])], &[], FACTS);
        assert!(findings.is_empty(), "{findings:?}");
        let maps = plan.directions[0]
            .maps
            .iter()
            .map(|map| (&*map.name, map.spec.value_size));
        assert!(
            maps.collect::<Vec<_>>().contains(&("second", 16)),
            "{plan:?}"
        );
    }
}
