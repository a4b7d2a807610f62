//! The clang of this machine, which may be missing: programs that were compiled before run without
//! clang.

use parking_lot::RwLock;
use twinprobe_ebpf_common::finding::with_causes;

use crate::compile::Compiler;

/// The operator's choice for the compiler.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct CompilerOptions {
    /// Compile even if the daemon can't keep the compiler from reading this host's files
    #[arg(long)]
    pub allow_unconfined_compiler: bool,
}

/// A compiler, or the reason why it is missing.
#[derive(Debug)]
pub struct Toolchain {
    options: CompilerOptions,
    found: RwLock<Result<Compiler, String>>,
}

impl Toolchain {
    /// Searches for clang. A failed search is kept with its reason.
    pub fn discover(options: CompilerOptions) -> Self {
        Self {
            options,
            found: RwLock::new(find(options)),
        }
    }

    /// Returns the result of the last search.
    pub fn known(&self) -> Result<Compiler, String> {
        self.found.read().clone()
    }

    /// Returns the compiler; searches again if the last search found none. Waits for a child
    /// process.
    pub fn get(&self) -> Result<Compiler, String> {
        self.known().or_else(|_| {
            let found = find(self.options);
            self.found.write().clone_from(&found);
            found
        })
    }
}

fn find(options: CompilerOptions) -> Result<Compiler, String> {
    Compiler::discover(options.allow_unconfined_compiler).map_err(|error| with_causes(&error))
}
