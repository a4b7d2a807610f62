//! `serve --probes DIR`: the probes of a directory are deployed at the start and when files change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::json;
use twinprobe_access::{AuditLog, Record, Role};
use twinprobe_cli::ProbeFile;
use twinprobe_state_files::private;

use crate::api::error::ProblemAnswer;
use crate::engine::conditions::Conditions;
use crate::engine::engine::Engine;
use crate::engine::error::describe;
use crate::folder::changes::FolderChanges;
use crate::folder::contents::{self, FolderContents};
use crate::folder::whole::{File, Refused, Tags, UNRECORDED, author, owner};

#[derive(Clone, Debug, clap::Args)]
pub struct FolderOptions {
    /// Directory of probe files (.yaml, .yml, .json); the daemon deploys them at the start and when
    /// they change
    #[arg(long, value_name = "DIR")]
    pub probes: Option<PathBuf>,
    /// Action when a file of --probes is removed: keep its probe or remove it
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Removed::Keep, requires = "probes")]
    pub probes_removed: Removed,
    /// Rights of the probes of --probes: with operator they may only observe, with admin also
    /// decide about packets
    #[arg(long, value_name = "ROLE", value_parser = role, default_value = "operator", requires = "probes")]
    pub probes_role: Role,
}

/// Parses a role that may deploy probes.
fn role(name: &str) -> Result<Role, String> {
    let role = Role::from_name(name).filter(|role| *role >= Role::Operator);
    role.ok_or_else(|| format!("{name} may not deploy probes; use operator or admin"))
}

impl FolderOptions {
    /// Fails if other users could change the directory. One that is not there may come later.
    pub fn check(&self) -> io::Result<()> {
        let checked = self.probes.as_deref().map_or(Ok(()), private::trusted);
        checked.or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                Ok(())
            } else {
                Err(error)
            }
        })
    }
}

/// The fate of a probe whose file was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Removed {
    /// The probe runs on
    Keep,
    /// The probe is removed, as by a DELETE
    Remove,
}

/// A directory of probe files, and the outcome of each file.
#[derive(Debug)]
struct ProbeFolder {
    engine: Arc<Engine>,
    audit: Option<Arc<AuditLog>>,
    directory: PathBuf,
    removed: Removed,
    role: Role,
    /// The content of each file that was last deployed, by the file's name.
    deployed: BTreeMap<String, Vec<ProbeFile>>,
    /// The attempts to deploy files that are not deployed yet.
    attempts: BTreeMap<String, Attempt>,
    /// The reasons why files are not deployed, by the file's name.
    failures: BTreeMap<String, String>,
}

/// An attempt to deploy the content of a file.
#[derive(Debug)]
struct Attempt {
    probes: Vec<ProbeFile>,
    /// The tags that the probes had before the first attempt.
    tags: Tags,
    /// True if the content is not to be tried again.
    is_over: bool,
}

/// Deploys the probes of the directory, now and whenever it changes. Ends only without a directory.
pub async fn follow(engine: Arc<Engine>, audit: Option<Arc<AuditLog>>, options: FolderOptions) {
    let FolderOptions {
        probes: Some(directory),
        probes_removed: removed,
        probes_role: role,
    } = options
    else {
        return;
    };
    let mut changes = FolderChanges::of_directories(vec![directory.clone()]);
    let (deployed, attempts, failures) = Default::default();
    let mut folder = ProbeFolder {
        engine,
        audit,
        directory,
        removed,
        role,
        deployed,
        attempts,
        failures,
    };
    loop {
        folder.look().await;
        changes.next().await;
    }
}

impl ProbeFolder {
    /// Deploys the files that are new, have changed, or have failed so far. An unchanged file is
    /// not deployed again: somebody else may have changed its probes since then.
    async fn look(&mut self) {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || contents::read(&directory)).await;
        let contents = match read {
            Ok(Ok(contents)) => contents,
            Ok(Err(error)) => {
                return self.fail(&self.directory.display().to_string(), error.to_string());
            }
            Err(error) => {
                return self.fail(&self.directory.display().to_string(), error.to_string());
            }
        };
        for (file, reason) in &contents.broken {
            self.fail(file, reason.clone());
        }
        for (file, probes) in &contents.files {
            if self.deployed.get(file) != Some(probes) {
                self.deploy(file, probes).await;
            } else if self.failures.contains_key(file) {
                self.succeed(file);
            }
        }
        if self.removed == Removed::Remove {
            self.remove(&contents).await;
        }
        let known =
            |file: &str| contents.files.contains_key(file) || contents.broken.contains_key(file);
        let files = self
            .failures
            .keys()
            .chain(self.deployed.keys())
            .chain(self.attempts.keys());
        let gone: BTreeSet<String> = files.filter(|file| !known(file)).cloned().collect();
        for file in gone {
            self.failures.remove(&file);
            self.deployed.remove(&file);
            self.attempts.remove(&file);
            self.engine.telemetry.probe_files.forget(&file);
        }
    }

    /// Deploys a content of a file, unless an earlier attempt has ruled that content out. Each
    /// content is deployed once: a failed attempt is repeated only while its probes are as they
    /// were before the first one.
    async fn deploy(&mut self, name: &str, probes: &[ProbeFile]) {
        let (engine, audit) = (&self.engine, self.audit.as_ref());
        let file = File {
            engine,
            audit,
            directory: &self.directory,
            name,
            role: self.role,
        };
        let tags = file.tags(probes);
        let attempt = self
            .attempts
            .get(name)
            .filter(|attempt| attempt.probes == probes);
        let reason = match attempt {
            Some(attempt) if attempt.is_over => return,
            Some(attempt) if attempt.tags != tags => Some(OUTRUN.to_owned()),
            _ => None,
        };
        let outcome = match reason {
            Some(reason) => Err(Refused {
                reason,
                again: false,
            }),
            None => {
                let known = self.failures.get(name);
                file.deploy(probes, &tags, |reason| {
                    known.is_some_and(|known| known == reason)
                })
                .await
            }
        };
        match outcome {
            Ok(()) => {
                self.attempts.remove(name);
                self.deployed.insert(name.to_owned(), probes.to_vec());
                self.succeed(name);
            }
            Err(Refused { reason, again }) => {
                let attempt = Attempt {
                    probes: probes.to_vec(),
                    tags,
                    is_over: !again,
                };
                self.attempts.insert(name.to_owned(), attempt);
                self.fail(name, reason);
            }
        }
    }

    /// Removes the probes that files have deployed and that no file has any more; none, while a
    /// file can't be read.
    async fn remove(&mut self, contents: &FolderContents) {
        for probe in self.engine.registry.list() {
            let from = probe
                .stored
                .pushed_by
                .as_deref()
                .and_then(|sender| sender.strip_prefix(OWNER));
            let Some(file) = from.filter(|_| !contents.may_have(&probe.name)) else {
                continue;
            };
            let (path, what) = (
                self.directory.join(file),
                format!("DELETE /v1/probes/{}", probe.name),
            );
            let (by, from) = (owner(file, self.role), json!({ "file": path }));
            let mut record = Record::of_own(self.audit.clone(), &by, from, what, &probe.name);
            if let Err(error) = record.announce() {
                tracing::warn!(probe = probe.name, file, %error, "not removed: {UNRECORDED}");
                record.end(ProblemAnswer::unrecorded(&error).status());
                continue;
            }
            let message = Some(format!("{file} no longer has it"));
            let author = author(&self.directory, file, self.role, message);
            match self
                .engine
                .delete(&probe.name, author, &Conditions::default())
                .await
            {
                Ok(()) => {
                    record.end(StatusCode::NO_CONTENT);
                    tracing::info!(probe = probe.name, file, "removed with its file");
                }
                Err(error) => {
                    tracing::warn!(
                        probe = probe.name,
                        file,
                        error = describe(&error),
                        "not removed"
                    );
                    record.end(ProblemAnswer::from(error).status());
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
            tracing::error!(
                file,
                reason,
                "the file of probes is not deployed; running probes continue"
            );
            self.failures.insert(file.to_owned(), reason);
        }
    }
}

/// The reason why a content is not tried again.
const OUTRUN: &str = "somebody else has changed a probe of the file since the first attempt; change the file to deploy it";
/// The beginning of the sender of probes that files have deployed.
const OWNER: &str = "file:";
