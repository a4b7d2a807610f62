//! `GET /v1/capabilities`.

use serde::Serialize;

use super::Engine;
use crate::kernel::Capabilities;

/// What this daemon can do on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct CapabilityReport<'a> {
    #[serde(flatten)]
    found: Capabilities,
    compiler: CompilerReport<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct CompilerReport<'a> {
    version: &'a str,
    confined: bool,
}

impl Engine {
    pub fn capabilities(&self) -> CapabilityReport<'_> {
        let (version, confined) = (self.compiler.version(), self.compiler.is_confined());
        let compiler = CompilerReport { version, confined };
        CapabilityReport { found: self.kernel.capabilities(), compiler }
    }
}
