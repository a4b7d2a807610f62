//! Functions of the kernel (kfuncs). A call names such a function by the id of its type in the
//! kernel's type information.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use aya_obj::Function;
use aya_obj::btf::{Btf, BtfKind};
use aya_obj::generated::{BPF_PSEUDO_KFUNC_CALL, bpf_insn};

use crate::admit::functions::{FUNCTIONS, KernelFunction, function};
use crate::plan::object::ObjectError;
use crate::sys::asm::call_helper;

/// Returns the functions that this kernel has: the number of each function in this crate, and the
/// id of its type.
fn known() -> &'static BTreeMap<u32, u32> {
    static KNOWN: OnceLock<BTreeMap<u32, u32>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let Ok(btf) = Btf::from_sys_fs() else {
            return BTreeMap::new();
        };
        let id = |function: KernelFunction| {
            Some((
                function.number,
                btf.id_by_type_name_kind(function.name, BtfKind::Func)
                    .ok()?,
            ))
        };
        FUNCTIONS.into_iter().filter_map(id).collect()
    })
}

/// Returns the function that an instruction calls.
fn called(insn: &bpf_insn) -> Option<KernelFunction> {
    let is_call = insn.code == call_helper(0).code && insn.src_reg() == 0;
    is_call.then(|| function(insn.imm as u32)).flatten()
}

/// Fails if the program calls a function that this kernel does not have.
pub fn expect(program: &Function) -> Result<(), ObjectError> {
    let lacks = |function: &KernelFunction| !known().contains_key(&function.number);
    match program.instructions.iter().filter_map(called).find(lacks) {
        Some(function) => Err(ObjectError::NoFunction(function.name)),
        None => Ok(()),
    }
}

/// Changes a call of a kernel function into a call that the kernel accepts.
pub fn bind(instruction: &mut bpf_insn) {
    if let Some(id) = called(instruction).and_then(|function| known().get(&function.number)) {
        instruction._bitfield_1 = bpf_insn::new_bitfield_1(0, BPF_PSEUDO_KFUNC_CALL as u8);
        instruction.imm = *id as i32;
    }
}
