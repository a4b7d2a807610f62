//! `twinprobe events`.

use std::io::{self, Write as _};

use clap::Args;

use crate::client::http;
use crate::client::{ClientError, Server};

/// Prints a line of JSON per event until the probe is deleted or replaced, or the daemon stops.
#[derive(Debug, Args)]
pub struct Events {
    /// The probe
    name: String,
    /// Only the events of this metric
    #[arg(short, long)]
    metric: Option<String>,
}

impl Events {
    pub async fn run(self, server: &Server) -> Result<(), ClientError> {
        let query =
            self.metric.map(|metric| format!("?metric={}", http::encoded(&metric))).unwrap_or_default();
        let path = http::probe_path(&self.name, "/events") + &query;
        let mut out = io::stdout().lock();
        let followed = http::follow(server, &path, "application/x-ndjson", |bytes| {
            out.write_all(bytes)?;
            out.flush()
        });
        match followed.await {
            // A reader that has seen enough (`| head`) is no failure.
            Err(ClientError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}
