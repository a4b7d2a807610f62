//! The report with which the daemon answers `GET /v1/capabilities`.

use serde::Serialize;
use twinprobe_kernel::Capabilities;

use crate::engine::engine::Engine;

/// The capabilities of this daemon on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct CapabilityReport {
    #[serde(flatten)]
    found: Capabilities,
    compiler: CompilerReport,
}

#[derive(Clone, Debug, Serialize)]
struct CompilerReport {
    /// The version of the compiler; empty if there is no compiler.
    version: String,
    confined: bool,
    /// The reason why there is no compiler.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Engine {
    pub fn capabilities(&self) -> CapabilityReport {
        let compiler = match self.deployer.toolchain.known() {
            Ok(compiler) => CompilerReport {
                version: compiler.version,
                confined: compiler.confinement.is_tight(),
                error: None,
            },
            Err(error) => CompilerReport {
                version: String::new(),
                confined: false,
                error: Some(error),
            },
        };
        CapabilityReport {
            found: self.deployer.kernel.capabilities(),
            compiler,
        }
    }
}
