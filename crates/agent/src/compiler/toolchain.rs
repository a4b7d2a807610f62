//! The clang of this machine, which may be missing: programs that were compiled before run without clang.

use parking_lot::RwLock;
use twinprobe_ebpf_common::finding::with_causes;

use crate::compiler::compile::Compiler;

/// A compiler, or the reason why there is none.
#[derive(Debug)]
pub struct Toolchain(RwLock<Result<Compiler, String>>);

impl Toolchain {
    /// Searches for clang. A failed search is kept with its reason.
    pub fn discover() -> Self {
        Self(RwLock::new(find()))
    }

    /// Returns the result of the last search.
    pub fn known(&self) -> Result<Compiler, String> {
        self.0.read().clone()
    }

    /// Returns the compiler; searches again if the last search found none. Waits for a child process.
    pub fn get(&self) -> Result<Compiler, String> {
        self.known().or_else(|_| {
            let found = find();
            self.0.write().clone_from(&found);
            found
        })
    }
}

fn find() -> Result<Compiler, String> {
    Compiler::discover().map_err(|error| with_causes(&error))
}
