//! The functions of the kernel (kfuncs) that a probe may call. They give access to the bytes of a
//! packet in any buffer, by a dynptr (Linux 6.4). Until a call of such a function is
//! [bound](crate::load::bind), it has the number of a helper function that the kernel does not
//! have.

use aya_obj::generated::bpf_func_id as Id;

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    pub name: &'static str,
    pub number: u32,
    pub does: DynptrUse,
}

/// The use of a function for dynptrs of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DynptrUse {
    /// The function leaves a dynptr of the packet on the stack.
    Make,
    /// The function returns a pointer to readable bytes of the packet, or to a copy of them in the
    /// buffer of the call.
    Read,
    /// The function returns a pointer like that of `Read`, and the program may also write to the
    /// bytes.
    Write,
}

pub const FUNCTIONS: [KernelFunction; 4] = [
    KernelFunction {
        name: "bpf_dynptr_from_skb",
        number: 0x0bad_3101,
        does: DynptrUse::Make,
    },
    KernelFunction {
        name: "bpf_dynptr_from_xdp",
        number: 0x0bad_3102,
        does: DynptrUse::Make,
    },
    KernelFunction {
        name: "bpf_dynptr_slice",
        number: 0x0bad_3103,
        does: DynptrUse::Read,
    },
    KernelFunction {
        name: "bpf_dynptr_slice_rdwr",
        number: 0x0bad_3104,
        does: DynptrUse::Write,
    },
];

/// Returns the kernel function that has this number in calls.
pub fn function(number: u32) -> Option<KernelFunction> {
    FUNCTIONS
        .into_iter()
        .find(|function| function.number == number)
}

/// Tells whether a helper function writes to the memory of a dynptr.
pub const fn writes_dynptr(number: u32) -> bool {
    number == Id::BPF_FUNC_dynptr_write as u32
}
