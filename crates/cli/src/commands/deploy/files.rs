//! The configurations that `apply` and `validate` send.

use std::path::PathBuf;

use clap::Args;

use crate::commands::deploy::adjust::Adjustments;
use crate::error::CommandError;
use crate::files::files::{self, ProbeFile};
use twinprobe_library as library;

#[derive(Debug, Args)]
pub struct DeployFiles {
    /// JSON or YAML with one or many configurations, or a directory of such files; - reads standard
    /// input. Repeatable
    #[arg(
        short,
        long = "file",
        value_name = "FILE",
        required_unless_present = "probe"
    )]
    file: Vec<PathBuf>,
    /// Take this probe of the library, for the interfaces of --interface. Repeatable
    #[arg(long, value_name = "NAME", requires = "interface")]
    probe: Vec<String>,
    /// Run the ingress of the library's probes at this hook, xdp or tc, instead of the default hook
    #[arg(long, requires = "probe")]
    hook: Option<String>,
    /// Use this interface instead of the ones in the file. Repeatable
    #[arg(long, value_name = "IFACE")]
    interface: Vec<String>,
    #[command(flatten)]
    changes: Adjustments,
}

impl DeployFiles {
    /// Reads all files before anything is sent: a mistake in the last file changes nothing.
    pub fn read(&self) -> Result<Vec<ProbeFile>, CommandError> {
        let mut probes = files::read_all(&self.file)?;
        for name in &self.probe {
            let config = library::configuration(name, self.hook.as_deref())?;
            probes.push(ProbeFile::new(name.clone(), config));
        }
        for probe in &mut probes {
            probe.config.go_only_to(&self.interface);
        }
        self.changes.apply(&mut probes)?;
        Ok(probes)
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_api::ConfigDocument;

    #[test]
    fn interfaces_from_the_command_line_replace_those_of_the_file() {
        let replaced = |config: &str, interfaces: &[&str]| {
            let mut config: ConfigDocument = serde_json::from_str(config).unwrap();
            let interfaces: Vec<_> = interfaces.iter().map(|&name| name.to_owned()).collect();
            config.go_only_to(&interfaces);
            serde_json::to_string(&config).unwrap()
        };
        assert_eq!(
            replaced(r#"{"interface":"a"}"#, &[]),
            r#"{"interface":"a"}"#
        );
        assert_eq!(
            replaced(r#"{"interfaces":["a","b"]}"#, &["c"]),
            r#"{"interface":"c"}"#
        );
        assert_eq!(
            replaced(r#"{"interface":"a"}"#, &["c", "d"]),
            r#"{"interfaces":["c","d"]}"#
        );
    }
}
