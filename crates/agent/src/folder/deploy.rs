//! `serve --probes DIR`: the probes of a directory are deployed at the start and when files change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use twinprobe_cli::ProbeFile;
use twinprobe_kernel::private;
use twinprobe_serve::{AuditLog, Principal, Record, Role, Who};

use crate::api::error::Problem;
use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::Deployed;
use crate::engine::engine::Engine;
use crate::engine::error::describe;
use crate::folder::changes::Changes;
use crate::folder::contents::{self, Contents};

#[derive(Clone, Debug, clap::Args)]
pub struct FolderOptions {
    /// Directory of probe files (.yaml, .yml, .json), deployed at the start and when they change
    #[arg(long, value_name = "DIR")]
    pub probes: Option<PathBuf>,
    /// Fate of a probe of --probes whose file is gone
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Removed::Keep, requires = "probes")]
    pub probes_removed: Removed,
}

impl FolderOptions {
    /// Fails if other users could change the directory. One that is not there may come later.
    pub fn check(&self) -> io::Result<()> {
        let checked = self.probes.as_deref().map_or(Ok(()), private::trusted);
        checked.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }
}

/// The fate of a probe whose file is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Removed {
    /// The probe runs on
    Keep,
    /// The probe is removed, as by a DELETE
    Remove,
}

/// A directory of probe files, and what has become of each file.
#[derive(Debug)]
struct Folder {
    engine: Arc<Engine>,
    audit: Option<Arc<AuditLog>>,
    directory: PathBuf,
    removed: Removed,
    /// The contents that were last looked at.
    seen: Contents,
    /// The reasons why files are not deployed, by the file's name.
    failures: BTreeMap<String, String>,
}

/// Deploys the probes of the directory, now and whenever it changes. Never ends.
pub async fn follow(engine: Arc<Engine>, audit: Option<Arc<AuditLog>>, directory: PathBuf, removed: Removed) {
    let mut changes = Changes::of_directories(vec![directory.clone()]);
    let (seen, failures) = Default::default();
    let mut folder = Folder { engine, audit, directory, removed, seen, failures };
    loop {
        folder.look().await;
        changes.next().await;
    }
}

impl Folder {
    /// Deploys what is new or has failed so far. What has not changed since it was deployed stays as somebody else may
    /// have made it meanwhile.
    async fn look(&mut self) {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || contents::read(&directory)).await;
        let contents = match read {
            Ok(Ok(contents)) => contents,
            Ok(Err(error)) => return self.fail(&self.directory.display().to_string(), error.to_string()),
            Err(error) => return self.fail(&self.directory.display().to_string(), error.to_string()),
        };
        for (file, reason) in &contents.broken {
            self.fail(file, reason.clone());
        }
        for (file, probes) in &contents.files {
            if self.seen.files.get(file) == Some(probes) && !self.failures.contains_key(file) {
                continue;
            }
            let (mut records, mut failed) = (Vec::new(), Vec::new());
            for probe in probes {
                let (record, error) = self.put(file, probe).await;
                records.push(record);
                failed.extend(error);
            }
            let reason = (!failed.is_empty()).then(|| failed.join("; "));
            // What fails is tried again and again, and recorded once.
            let is_known = reason.is_some() && self.failures.get(file) == reason.as_ref();
            for (record, status) in records {
                if is_known { record.forget() } else { record.end(status) }
            }
            match reason {
                None => self.succeed(file),
                Some(reason) => self.fail(file, reason),
            }
        }
        if self.removed == Removed::Remove {
            self.remove(&contents).await;
        }
        let known = |file: &str| contents.files.contains_key(file) || contents.broken.contains_key(file);
        let gone: BTreeSet<String> = self.failures.keys().chain(self.seen.files.keys()).cloned().collect();
        for file in gone.into_iter().filter(|file| !known(file)) {
            self.failures.remove(&file);
            self.engine.telemetry.probe_files.forget(&file);
        }
        self.seen = contents;
    }

    /// Deploys a probe of a file. Returns the record with its outcome, and the reason for a failure.
    async fn put(&self, file: &str, probe: &ProbeFile) -> ((Record, StatusCode), Option<String>) {
        let (owner, name) = (owner(file), &probe.name);
        let mut record = self.record("PUT", file, name);
        record.notes.set(name, &probe.config);
        if let Err(error) = record.announce() {
            return (
                (record, Problem::unrecorded(&error).status()),
                Some(format!("{name}: {UNRECORDED}: {error}")),
            );
        }
        let always = Conditions::default();
        match self.engine.put(name, probe.config.clone(), &owner, None, &always).await {
            Ok((Deployed::Created, _)) => ((record, StatusCode::CREATED), None),
            Ok(_) => ((record, StatusCode::OK), None),
            Err(error) => {
                let reason = format!("{name}: {}", describe(&error));
                ((record, Problem::from(error).status()), Some(reason))
            }
        }
    }

    /// The record of a change that a file makes, as if a request had asked for it.
    fn record(&self, method: &str, file: &str, probe: &str) -> Record {
        let (path, what) = (self.directory.join(file), format!("{method} /v1/probes/{probe}"));
        Record::of_file(self.audit.clone(), &owner(file), &path, what, probe)
    }

    /// Removes the probes that files have deployed and that no file has any more; none, while a file can't be read.
    async fn remove(&mut self, contents: &Contents) {
        for probe in self.engine.list() {
            let from = probe.stored.pushed_by.as_deref().and_then(|sender| sender.strip_prefix(OWNER));
            let Some(file) = from.filter(|_| !contents.may_have(&probe.name)) else { continue };
            let mut record = self.record("DELETE", file, &probe.name);
            if let Err(error) = record.announce() {
                tracing::warn!(probe = probe.name, file, %error, "not removed: {UNRECORDED}");
                record.end(Problem::unrecorded(&error).status());
                continue;
            }
            match self.engine.delete(&probe.name, &Conditions::default()).await {
                Ok(()) => {
                    record.end(StatusCode::NO_CONTENT);
                    tracing::info!(probe = probe.name, file, "removed, since its file is gone");
                }
                Err(error) => {
                    tracing::warn!(probe = probe.name, file, error = describe(&error), "not removed");
                    record.end(Problem::from(error).status());
                }
            }
        }
    }

    fn succeed(&mut self, file: &str) {
        self.failures.remove(file);
        self.engine.telemetry.probe_files.set(file, false);
        tracing::info!(file, "the probes of the file are deployed");
    }

    /// Reports a file that changes nothing, unless the reason is known.
    fn fail(&mut self, file: &str, reason: String) {
        self.engine.telemetry.probe_files.set(file, true);
        if self.failures.get(file) != Some(&reason) {
            tracing::error!(file, reason, "the file of probes is not deployed; what runs goes on");
            self.failures.insert(file.to_owned(), reason);
        }
    }
}

/// Why a change is not made with `--audit-required`.
const UNRECORDED: &str = "the change can't be recorded in the file of --audit-log";
/// The beginning of the sender of probes that files have deployed.
const OWNER: &str = "file:";

fn owner(file: &str) -> Principal {
    Principal { who: Who::File(file.to_owned()), role: Some(Role::Admin) }
}
