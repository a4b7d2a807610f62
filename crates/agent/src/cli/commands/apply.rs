//! `twinprobe apply`.

use std::path::PathBuf;

use clap::Args;
use twinprobe_client::{Client, ClientError, ConfigDocument, StatusCode};

use crate::cli::error::CommandError;
use crate::cli::files::{self, ProbeFile};
use crate::cli::output::print;

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    pub files: Files,
}

/// The files of `apply` and `validate`.
#[derive(Debug, Args)]
pub struct Files {
    /// JSON or YAML with one or many configurations; - reads standard input. Repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// Use this interface instead of the ones in the file. Repeatable
    #[arg(long, value_name = "IFACE")]
    interface: Vec<String>,
}

impl Apply {
    pub async fn run(self, client: &Client) -> Result<(), CommandError> {
        let probes = self.files.read()?;
        let mut outcomes = Outcomes::new(probes.len());
        for ProbeFile { name, config } in probes {
            match client.put(&name, &config).await {
                Ok(status) => {
                    let verb = if status.status == StatusCode::CREATED { "created" } else { "replaced" };
                    print::print(format!("{verb} {name}").as_bytes())?;
                    print::warnings(&status.read().map(|status| status.warnings).unwrap_or_default());
                }
                Err(error) => outcomes.failed(&name, error)?,
            }
        }
        outcomes.finish()
    }
}

impl Files {
    /// Reads all files before anything is sent: a mistake in the last file changes nothing.
    pub fn read(&self) -> Result<Vec<ProbeFile>, CommandError> {
        let mut probes = Vec::new();
        for file in &self.file {
            probes.extend(files::read(file)?);
        }
        for probe in &mut probes {
            replace_interfaces(&mut probe.config, &self.interface);
        }
        Ok(probes)
    }
}

fn replace_interfaces(config: &mut ConfigDocument, interfaces: &[String]) {
    (config.interface, config.interfaces) = match interfaces {
        [] => return,
        [one] => (Some(one.clone()), None),
        many => (None, Some(many.to_owned())),
    };
}

/// The count of refused probes: a command goes on after a refusal and fails at its end.
pub struct Outcomes {
    total: usize,
    failed: usize,
}

impl Outcomes {
    pub fn new(total: usize) -> Self {
        Self { total, failed: 0 }
    }

    /// Prints and counts the refusal of a probe. Returns the error if there is no other probe, or if it is no refusal.
    pub fn failed(&mut self, name: &str, error: ClientError) -> Result<(), CommandError> {
        if self.total == 1 || !matches!(error, ClientError::Refused(_)) {
            return Err(error.into());
        }
        print::complain(&format!("{name}: {error}"));
        self.failed += 1;
        Ok(())
    }

    pub fn finish(self) -> Result<(), CommandError> {
        match self.failed {
            0 => Ok(()),
            failed => Err(CommandError::Several { failed, total: self.total }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_from_the_command_line_replace_those_of_the_file() {
        let replaced = |config: &str, interfaces: &[&str]| {
            let mut config = serde_json::from_str(config).unwrap();
            let interfaces: Vec<_> = interfaces.iter().map(|&name| name.to_owned()).collect();
            replace_interfaces(&mut config, &interfaces);
            serde_json::to_string(&config).unwrap()
        };
        assert_eq!(replaced(r#"{"interface":"a"}"#, &[]), r#"{"interface":"a"}"#);
        assert_eq!(replaced(r#"{"interfaces":["a","b"]}"#, &["c"]), r#"{"interface":"c"}"#);
        assert_eq!(replaced(r#"{"interface":"a"}"#, &["c", "d"]), r#"{"interfaces":["c","d"]}"#);
    }
}
