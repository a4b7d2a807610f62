//! Files of Parquet below a directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::config::duration;
use crate::receiver::{Receiver, SendError};
use crate::rows::objects::ObjectPlace;
use crate::rows::tables::ParquetTables;

/// The ending of files that are being written.
const UNFINISHED: &str = ".unfinished";

/// Options of a directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FileOptions {
    /// The directory, which the receiver creates if it is missing.
    directory: PathBuf,
    /// The time for which windows are gathered for a file.
    #[serde(default = "duration::ten_seconds", deserialize_with = "duration::read")]
    every: Duration,
}

impl ReceiverOptions for FileOptions {
    const NAME: &'static str = "file";
    const SCHEMES: &'static [&'static str] = &["file"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        if !url.authority.is_empty() || url.path.is_empty() {
            return Err("file:///DIRECTORY is expected, with an absolute path".to_owned());
        }
        Ok(Self {
            directory: format!("/{}", url.path).into(),
            every: duration::ten_seconds(),
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let is_absolute = self.directory.is_absolute();
        is_absolute
            .then_some(())
            .ok_or_else(|| ("directory", "an absolute path is expected".to_owned()))
    }

    fn target(&self) -> String {
        format!("file://{}", self.directory.display())
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let every = if setup.once {
            duration::SOON.min(self.every)
        } else {
            self.every
        };
        Box::new(ParquetTables::new(
            Directory(self.directory),
            every,
            setup.memory,
        ))
    }
}

/// A directory of the file system.
#[derive(Debug)]
struct Directory(PathBuf);

impl ObjectPlace for Directory {
    fn list<'a>(
        &'a mut self,
        directory: &'a str,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<String>, SendError>> {
        let (path, prefix) = (self.0.join(directory), prefix.to_owned());
        blocking(move || listed(&path, &prefix).map_err(|error| failed(&path, &error)))
    }

    fn put<'a>(
        &'a mut self,
        path: &'a str,
        content: Vec<u8>,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        let path = self.0.join(path);
        blocking(move || stored(&path, &content).map_err(|error| failed(&path, &error)))
    }

    fn address(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}

fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SendError> + Send + 'static,
) -> BoxFuture<'static, Result<T, SendError>> {
    async move {
        spawn_blocking(work)
            .await
            .unwrap_or_else(|error| Err(SendError::caused("a thread ended", &error)))
    }
    .boxed()
}

fn failed(path: &Path, error: &std::io::Error) -> SendError {
    SendError::caused(&path.display().to_string(), error)
}

/// Returns the files that begin with `prefix`, and removes unfinished files of a killed stream.
fn listed(path: &Path, prefix: &str) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if name.starts_with(prefix) && name.ends_with(UNFINISHED) {
            std::fs::remove_file(path.join(name))?;
        } else if name.starts_with(prefix) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Writes a file under a temporary name, waits until the disk has it, and then renames it.
fn stored(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    made(directory)?;
    let unfinished = PathBuf::from(format!("{}{UNFINISHED}", path.display()));
    let written = std::fs::File::create(&unfinished)
        .and_then(|mut file| {
            std::io::Write::write_all(&mut file, content)?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // A full disk must not stay full because of an unfinished file.
        let _ = std::fs::remove_file(&unfinished);
    }
    written?;
    std::fs::File::open(directory)?.sync_all()
}

/// Makes a directory and its missing parents, and waits until the disk has them.
fn made(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        made(parent)?;
        match std::fs::create_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}
