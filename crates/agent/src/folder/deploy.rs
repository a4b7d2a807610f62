//! `serve --probes DIR`: the probes of a directory are deployed at the start and when files change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use twinprobe_serve::{Principal, Role, Who};

use crate::engine::conditions::Conditions;
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
    directory: PathBuf,
    removed: Removed,
    /// The contents that were last looked at.
    seen: Contents,
    /// The reasons why files are not deployed, by the file's name.
    failures: BTreeMap<String, String>,
}

/// Deploys the probes of the directory, now and whenever it changes. Never ends.
pub async fn follow(engine: Arc<Engine>, directory: PathBuf, removed: Removed) {
    let mut changes = Changes::of_directories(vec![directory.clone()]);
    let (seen, failures) = Default::default();
    let mut folder = Folder { engine, directory, removed, seen, failures };
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
            let (owner, always, mut failed) = (owner(file), Conditions::default(), Vec::new());
            for probe in probes {
                let put = self.engine.put(&probe.name, probe.config.clone(), &owner, None, &always);
                if let Err(error) = put.await {
                    failed.push(format!("{}: {}", probe.name, describe(&error)));
                }
            }
            match &failed[..] {
                [] => self.succeed(file),
                _ => self.fail(file, failed.join("; ")),
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

    /// Removes the probes that files have deployed and that no file has any more; none, while a file can't be read.
    async fn remove(&mut self, contents: &Contents) {
        for probe in self.engine.list() {
            let from = probe.stored.pushed_by.as_deref().and_then(|sender| sender.strip_prefix(OWNER));
            let Some(file) = from.filter(|_| !contents.may_have(&probe.name)) else { continue };
            match self.engine.delete(&probe.name, &Conditions::default()).await {
                Ok(()) => tracing::info!(probe = probe.name, file, "removed, since its file is gone"),
                Err(error) => {
                    tracing::warn!(probe = probe.name, file, error = describe(&error), "not removed");
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

/// The beginning of the sender of probes that files have deployed.
const OWNER: &str = "file:";

fn owner(file: &str) -> Principal {
    Principal { who: Who::File(file.to_owned()), role: Some(Role::Admin) }
}
