//! The files of a replay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::TryStreamExt as _;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use crate::error::ClientError;

/// The bytes of a file that are read at once.
const PIECE: usize = 256 << 10;

/// The captures of a replay: at least one file, in pcap, pcapng or snoop, perhaps compressed by
/// gzip or zstd.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// Packets of both directions, as far as the file or `local` tells them; others belong to the
    /// ingress, or to the egress if the configuration has only an egress.
    pub capture: Option<PathBuf>,
    /// Packets of the egress.
    pub egress_capture: Option<PathBuf>,
    /// The addresses (IPv4, IPv6, Ethernet) of the host on which the packets were captured.
    pub local: Vec<String>,
    /// The number of bytes of the files that were sent so far.
    pub sent: Arc<AtomicU64>,
}

impl Captures {
    /// Returns the size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        let files = self.capture.iter().chain(&self.egress_capture);
        files
            .filter_map(|path| Some(path.metadata().ok()?.len()))
            .sum()
    }

    /// Makes the body of a request with these documents. Fails if a file can't be opened.
    pub(crate) async fn form(
        &self,
        documents: &[(&'static str, String)],
    ) -> Result<Form, ClientError> {
        let mut form = Form::new();
        for (name, document) in documents {
            form = form.part(*name, Part::text(document.clone()));
        }
        for address in &self.local {
            form = form.text("local", address.clone());
        }
        let files = [
            ("capture", &self.capture),
            ("egress-capture", &self.egress_capture),
        ];
        for (name, path) in files
            .into_iter()
            .filter_map(|(name, path)| Some((name, path.as_ref()?)))
        {
            form = form.part(name, part(path, Arc::clone(&self.sent)).await?);
        }
        Ok(form)
    }
}

async fn part(path: &Path, sent: Arc<AtomicU64>) -> Result<Part, ClientError> {
    let failed = |source| ClientError::Capture {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    let pieces = ReaderStream::with_capacity(file, PIECE);
    let body = Body::wrap_stream(pieces.inspect_ok(move |piece| {
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }));
    Ok(Part::stream_with_length(body, length).file_name("capture"))
}
