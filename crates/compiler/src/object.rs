//! The result of a compilation.

use twinprobe_ebpf_common::finding::Finding;

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct CompiledObject {
    /// The object file, with BTF and without debug information.
    pub elf: Vec<u8>,
    /// The findings at stage compile; none of them is an error.
    pub warnings: Vec<Finding>,
    /// The maps that the source itself declares as shared with the other direction.
    pub shared: Vec<String>,
    /// True if the object was already known, so that clang did not run.
    pub reused: bool,
}
