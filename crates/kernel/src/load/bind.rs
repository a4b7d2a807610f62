//! The preparation of objects for this kernel: references to its types are resolved, and references
//! to maps are bound.

mod calls;
mod functions;
mod iterators;
mod prints;

use std::borrow::Cow;
use std::collections::HashSet;
use std::os::fd::RawFd;

use aya_obj::generated::{BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, bpf_insn};
use aya_obj::{Function, Object};

use crate::admit::instruction::LOAD_64;
use crate::plan::object::{ObjectError, ProbeObject, guarded};
use crate::plan::probe_plan::DirectionPlan;

/// Returns the object with its references to the kernel's types (CO-RE) resolved.
pub fn resolve(object: &ProbeObject) -> Result<Cow<'_, Object>, ObjectError> {
    let mut object = Cow::Borrowed(&object.program);
    if object.has_btf_relocations() {
        let kernel = aya_obj::btf::Btf::from_sys_fs()?;
        guarded(|| object.to_mut().relocate_btf(&kernel))??;
    }
    Ok(object)
}

/// Returns the program of `plan` with its subprograms. A reference to a map contains the index of
/// the map in the plan, until [`bind`] replaces the index with the map's descriptor.
///
/// The programs that it calls through tables become functions of the returned program.
pub fn link(mut object: Object, plan: &DirectionPlan) -> Result<Function, ObjectError> {
    let maps = std::mem::take(&mut object.maps);
    let text: HashSet<usize> = object
        .functions
        .keys()
        .map(|(section, _)| *section)
        .collect();
    let names = plan
        .maps
        .iter()
        .map(|map| &map.name)
        .chain(plan.calls.keys())
        .enumerate();
    let names = names.map(|(index, name)| (name.as_str(), index as RawFd));
    let known: Vec<_> = names
        .filter_map(|(name, index)| Some((name, index, maps.get(name)?)))
        .collect();
    guarded(|| object.relocate_maps(known.into_iter(), &text))??;
    guarded(|| object.relocate_calls(&text))??;
    object.sanitize_functions(aya::features());
    let linked = |name: &str| {
        object
            .functions
            .get(&object.programs.get(name)?.function_key())
            .cloned()
    };
    let pass = plan.attach.hook.pass();
    let function = calls::join(&plan.entry, &plan.calls, plan.maps.len(), pass, linked)?;
    let function = iterators::inline(function.ok_or(ObjectError::Panic)?)?;
    let function = prints::clear(function, &plan.maps)?;
    functions::expect(&function)?;
    Ok(function)
}

/// Resolves the references of an object, and [links](link) its program.
pub fn linked(object: &ProbeObject, plan: &DirectionPlan) -> Result<Function, ObjectError> {
    link(resolve(object)?.into_owned(), plan)
}

/// Returns the instructions of a linked program with the descriptors of its maps and the functions
/// of the kernel that it calls. `fds` are in the order of the plan.
pub fn bind(function: &Function, fds: &[RawFd]) -> Vec<bpf_insn> {
    let mut program = function.instructions.clone();
    for instruction in &mut program {
        functions::bind(instruction);
        let refers = matches!(
            u32::from(instruction.src_reg()),
            BPF_PSEUDO_MAP_FD | BPF_PSEUDO_MAP_VALUE
        );
        if instruction.code == LOAD_64 && refers {
            // A number that is not an index must not become a descriptor of the daemon.
            instruction.imm = usize::try_from(instruction.imm)
                .ok()
                .and_then(|map| fds.get(map).copied())
                .unwrap_or(-1);
        }
    }
    program
}
