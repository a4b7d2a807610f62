//! `twinprobe completions`.

use clap::Args;
use clap_complete::Shell;

use crate::error::CommandError;
use crate::output::print;

/// Prints the completions for a shell; for bash: `twinprobe completions bash >
/// /etc/bash_completion.d/twinprobe`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut whole: clap::Command) -> Result<(), CommandError> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "twinprobe", &mut text);
        print::print(text)
    }
}
