//! `twinprobe get`.

use clap::Args;
use hyper::Method;

use crate::client::http::{self, JSON};
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct Get {
    /// The probe
    name: String,
}

impl Get {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let path = http::probe_path(&self.name, "");
        let status = http::send(server, Method::GET, &path, JSON, None).await?.json()?;
        Ok(output::print(format!("{status:#}").as_bytes())?)
    }
}
