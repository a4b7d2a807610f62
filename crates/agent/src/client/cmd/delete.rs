//! `twinprobe delete`.

use clap::Args;
use hyper::Method;

use crate::client::http::{self, JSON};
use crate::client::{ClientError, Server, output};

#[derive(Debug, Args)]
pub struct Delete {
    /// The probe
    name: String,
}

impl Delete {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let path = http::probe_path(&self.name, "");
        http::send(server, Method::DELETE, &path, JSON, None).await?;
        Ok(output::print(format!("deleted {}", self.name).as_bytes())?)
    }
}
