//! `twinprobe validate`.

use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::apply::{Files, Outcomes};
use crate::client::files::ProbeFile;
use crate::client::http::{self, JSON};
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct Validate {
    #[command(flatten)]
    files: Files,
}

impl Validate {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let probes = self.files.read()?;
        let mut outcomes = Outcomes::new(probes.len());
        for ProbeFile { name, mut config } in probes {
            config.entry("name").or_insert_with(|| name.as_str().into());
            let body = Value::Object(config);
            match http::send(server, Method::POST, "/v1/validate", JSON, Some(&body)).await {
                Ok(reply) => {
                    output::print(format!("valid {name}").as_bytes())?;
                    output::warnings(&reply);
                }
                Err(error) => outcomes.failed(&name, error)?,
            }
        }
        outcomes.finish()
    }
}
