//! The result of a compilation.

use twinprobe_ebpf_common::finding::Finding;

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct CompiledObject {
    /// The object file, with BTF and without debug information.
    pub elf: Vec<u8>,
    /// The findings at stage compile; none of them is an error.
    pub warnings: Vec<Finding>,
    /// The maps that are to be those of the other direction, by the source's own words.
    pub shared: Vec<String>,
    /// True if the source was known, so that clang had nothing to do.
    pub reused: bool,
}
