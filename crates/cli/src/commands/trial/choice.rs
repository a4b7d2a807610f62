//! The configuration that `test` and `bench` run without attaching it.

use std::path::PathBuf;

use clap::Args;

use crate::commands::deploy::adjust::Adjustments;
use crate::error::CommandError;
use crate::files::files::{self, ProbeFile};
use twinprobe_library as library;

/// The interface of a configuration that names none: a trial attaches nothing.
const ANY: &str = "lo";

#[derive(Debug, Args)]
pub struct TrialChoice {
    /// JSON or YAML with one configuration; - reads standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "probe")]
    file: Option<PathBuf>,
    /// Take this probe of the library
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// Run the ingress of the library's probe as at this hook, xdp or tc, instead of the default
    /// hook
    #[arg(long, requires = "probe")]
    hook: Option<String>,
    #[command(flatten)]
    changes: Adjustments,
}

impl TrialChoice {
    /// Returns the configuration; `None` if the command line names none.
    pub fn read(&self) -> Result<Option<ProbeFile>, CommandError> {
        let mut probes = match (&self.file, &self.probe) {
            (Some(file), _) => files::read(file)?,
            (None, Some(name)) => {
                let config = library::configuration(name, self.hook.as_deref())?;
                vec![ProbeFile::new(name.clone(), config)]
            }
            (None, None) => return Ok(None),
        };
        if let (total @ (0 | 2..), Some(path)) = (probes.len(), &self.file) {
            return Err(CommandError::OneProbe {
                path: path.clone(),
                total,
            });
        }
        self.change(&mut probes)?;
        let Some(mut probe) = probes.pop() else {
            return Ok(None);
        };
        let ProbeFile { name, config, .. } = &mut probe;
        config.name.get_or_insert_with(|| name.clone());
        if config.goes_nowhere() {
            config.interface = Some(ANY.to_owned());
        }
        Ok(Some(probe))
    }

    /// Makes the changes of the command line's options.
    pub fn change(&self, probes: &mut [ProbeFile]) -> Result<(), CommandError> {
        Ok(self.changes.apply(probes)?)
    }
}
