//! `twinprobe apply`.

use std::path::PathBuf;

use clap::Args;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::client::files::{self, ProbeFile};
use crate::client::http::{self, JSON};
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct Apply {
    #[command(flatten)]
    pub(super) files: Files,
}

/// The files of `apply` and `validate`.
#[derive(Debug, Args)]
pub(super) struct Files {
    /// JSON or YAML with one or many configurations; - reads standard input. Repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// Use this interface instead of the ones in the file. Repeatable
    #[arg(long, value_name = "IFACE")]
    interface: Vec<String>,
}

impl Apply {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let probes = self.files.read()?;
        let mut outcomes = Outcomes::new(probes.len());
        for ProbeFile { name, config } in probes {
            let path = http::probe_path(&name, "");
            let answer = http::send(server, Method::PUT, &path, JSON, Some(&Value::Object(config))).await;
            match answer {
                Ok(reply) => {
                    let verb = if reply.status == StatusCode::CREATED { "created" } else { "replaced" };
                    output::print(format!("{verb} {name}").as_bytes())?;
                    output::warnings(&reply);
                }
                Err(error) => outcomes.failed(&name, error)?,
            }
        }
        outcomes.finish()
    }
}

impl Files {
    /// Everything is read before anything is sent: a typo in the last file changes nothing.
    pub(super) fn read(&self) -> Result<Vec<ProbeFile>, ClientError> {
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

fn replace_interfaces(config: &mut Map<String, Value>, interfaces: &[String]) {
    if interfaces.is_empty() {
        return;
    }
    config.remove("interface");
    config.remove("interfaces");
    match interfaces {
        [one] => config.insert("interface".to_owned(), one.as_str().into()),
        many => config.insert("interfaces".to_owned(), many.into()),
    };
}

/// Goes on after a refusal and remembers that there was one.
pub(super) struct Outcomes {
    total: usize,
    failed: usize,
}

impl Outcomes {
    pub(super) fn new(total: usize) -> Self {
        Self { total, failed: 0 }
    }

    /// The error itself if there is nothing to go on with.
    pub(super) fn failed(&mut self, name: &str, error: ClientError) -> Result<(), ClientError> {
        if self.total == 1 || !matches!(error, ClientError::Refused(_)) {
            return Err(error);
        }
        output::complain(&format!("{name}: {error}"));
        self.failed += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), ClientError> {
        match self.failed {
            0 => Ok(()),
            failed => Err(ClientError::Several { failed, total: self.total }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn interfaces_from_the_command_line_replace_those_of_the_file() {
        let replaced = |config: Value, interfaces: &[&str]| {
            let Value::Object(mut config) = config else { panic!("an object") };
            let interfaces: Vec<_> = interfaces.iter().map(|&name| name.to_owned()).collect();
            replace_interfaces(&mut config, &interfaces);
            Value::Object(config)
        };
        assert_eq!(replaced(json!({ "interface": "a" }), &[]), json!({ "interface": "a" }));
        assert_eq!(replaced(json!({ "interfaces": ["a", "b"] }), &["c"]), json!({ "interface": "c" }));
        assert_eq!(replaced(json!({ "interface": "a" }), &["c", "d"]), json!({ "interfaces": ["c", "d"] }));
    }
}
