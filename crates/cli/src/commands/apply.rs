//! `twinprobe apply` and `twinprobe validate`.

use std::path::PathBuf;

use clap::Args;
use twinprobe_client::{Client, ClientError, ConfigDocument, StatusCode};
use twinprobe_ebpf_common::finding::Finding;

use crate::error::CommandError;
use crate::files::{self, ProbeFile};
use crate::library;
use crate::output::print;

#[derive(Debug, Args)]
pub struct Files {
    /// JSON or YAML with one or many configurations; - reads standard input. Repeatable
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "probe")]
    file: Vec<PathBuf>,
    /// Take this probe of the library, for the interfaces that are given. Repeatable
    #[arg(long, value_name = "NAME", requires = "interface")]
    probe: Vec<String>,
    /// Run the ingress of the library's probes at this hook, xdp or tc, instead of their default
    #[arg(long, requires = "probe")]
    hook: Option<String>,
    /// Use this interface instead of the ones in the file. Repeatable
    #[arg(long, value_name = "IFACE")]
    interface: Vec<String>,
}

impl Files {
    pub async fn apply(&self, client: &Client) -> Result<(), CommandError> {
        let put = async |name: &str, config: ConfigDocument| {
            let status = client.put(name, &config).await?;
            let verb = if status.status == StatusCode::CREATED { "created" } else { "replaced" };
            Ok((verb, status.read().map(|status| status.warnings).unwrap_or_default()))
        };
        self.send(put).await
    }

    pub async fn validate(&self, client: &Client) -> Result<(), CommandError> {
        let validate = async |name: &str, mut config: ConfigDocument| {
            config.name.get_or_insert_with(|| name.to_owned());
            let report = client.validate(&config).await?;
            Ok(("valid", report.read().map(|report| report.warnings).unwrap_or_default()))
        };
        self.send(validate).await
    }

    /// Sends each configuration, and prints the outcome and the daemon's warnings. Goes on after a refusal if there are
    /// other probes, and fails at the end.
    async fn send(
        &self,
        send: impl AsyncFn(&str, ConfigDocument) -> Result<(&'static str, Vec<Finding>), ClientError>,
    ) -> Result<(), CommandError> {
        let probes = self.read()?;
        let (total, mut failed) = (probes.len(), 0);
        for ProbeFile { name, config } in probes {
            match send(&name, config).await {
                Ok((outcome, warnings)) => {
                    print::print(format!("{outcome} {name}"))?;
                    print::warnings(&warnings);
                }
                Err(error @ ClientError::Refused(_)) if total > 1 => {
                    print::complain(&format!("{name}: {error}"));
                    failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if failed == 0 { Ok(()) } else { Err(CommandError::Several { failed, total }) }
    }

    /// Reads all files before anything is sent: a mistake in the last file changes nothing.
    fn read(&self) -> Result<Vec<ProbeFile>, CommandError> {
        let mut probes = Vec::new();
        for file in &self.file {
            probes.extend(files::read(file)?);
        }
        for name in &self.probe {
            let config = library::configuration(name, self.hook.as_deref())?;
            probes.push(ProbeFile { name: name.clone(), config });
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
