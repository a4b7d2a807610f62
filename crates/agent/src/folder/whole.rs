//! The deployment of a file's probes as one change: either all of them are deployed, or none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::json;
use twinprobe_access::{AuditLog, Principal, Record, Role, Who};
use twinprobe_cli::ProbeFile;
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::api::error::ProblemAnswer;
use crate::engine::conditions::{Conditions, tag};
use crate::engine::deploy::cause::{ChangeAuthor, Deployed};
use crate::engine::engine::{Engine, permitted};
use crate::engine::error::{EngineError, describe};

/// The reason why a change is not made if `--audit-required` is set.
pub const UNRECORDED: &str = "the change can't be recorded in the file of --audit-log";

/// The tags of the probes of a file; `None` for probes that do not exist.
pub type Tags = BTreeMap<String, Option<String>>;

/// The reason why the probes of a file are not deployed.
#[derive(Debug)]
pub struct Refused {
    pub reason: String,
    /// True if a later attempt may succeed. Otherwise it would only change probes and change them
    /// back.
    pub again: bool,
}

/// A file, and where its changes are made and recorded.
pub struct File<'a> {
    pub engine: &'a Arc<Engine>,
    pub audit: Option<&'a Arc<AuditLog>>,
    pub directory: &'a Path,
    pub name: &'a str,
    /// The rights of the file's probes.
    pub role: Role,
}

/// The record of a change, with its outcome.
type Recorded = (Record, StatusCode);

impl File<'_> {
    fn owner(&self) -> Principal {
        owner(self.name, self.role)
    }

    fn author(&self, message: Option<String>) -> ChangeAuthor {
        author(self.directory, self.name, self.role, message)
    }

    /// Returns the tags that the probes of the file have now.
    pub fn tags(&self, probes: &[ProbeFile]) -> Tags {
        let tag = |probe: &ProbeFile| {
            let present = self.engine.registry.get(&probe.name).ok();
            (
                probe.name.clone(),
                present.map(|probe| tag(probe.stored.revision, &probe.stored.created)),
            )
        };
        probes.iter().map(tag).collect()
    }

    /// Deploys all probes or none. No probe may have changed since its tag was read. `is_known` is
    /// true if the reason has been recorded already.
    pub async fn deploy(
        &self,
        probes: &[ProbeFile],
        tags: &Tags,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), Refused> {
        // The deployment of a single probe is already one change. If there are several probes, all
        // of them are loaded before the first one is attached.
        let mut refused = Vec::new();
        if probes.len() > 1 {
            for probe in probes {
                refused.extend(self.examine(probe).await.err().map(|error| (probe, error)));
            }
        }
        if !refused.is_empty() {
            let reasons = refused
                .iter()
                .map(|(probe, error)| format!("{}: {}", probe.name, located(error)));
            let reason = reasons.collect::<Vec<_>>().join("; ");
            for (probe, error) in refused.into_iter().filter(|_| !is_known(&reason)) {
                self.record("PUT", probe)
                    .end(ProblemAnswer::from(error).status());
            }
            return Err(Refused {
                reason,
                again: true,
            });
        }
        let (mut records, mut done) = (Vec::new(), Vec::new());
        for probe in probes {
            let before = self
                .engine
                .registry
                .get(&probe.name)
                .ok()
                .map(|probe| probe.stored.revision);
            let (record, outcome) = self.put(probe, tags[&probe.name].clone()).await;
            records.push(record);
            match outcome {
                Ok(Deployed::Unchanged) => {}
                Ok(Deployed::Created | Deployed::Replaced) => done.push((probe, before)),
                Err(reason) => {
                    let reason = format!("{}: {reason}", probe.name);
                    let again = done.is_empty();
                    for (probe, before) in done.into_iter().rev() {
                        records.push(self.undo(probe, before).await);
                    }
                    end(records, again && is_known(&reason));
                    return Err(Refused { reason, again });
                }
            }
        }
        end(records, false);
        Ok(())
    }

    /// Compiles and loads a probe that does not run with the file's configuration, and attaches
    /// nothing.
    async fn examine(&self, probe: &ProbeFile) -> Result<(), EngineError> {
        let by = self.owner();
        let config = permitted(&probe.name, &probe.config, &by)?;
        if self
            .engine
            .registry
            .get(&probe.name)
            .is_ok_and(|present| present.runs(&config))
        {
            return Ok(());
        }
        self.engine
            .validate(&probe.name, &probe.config, &by)
            .await
            .map(drop)
    }

    async fn put(
        &self,
        probe: &ProbeFile,
        tag: Option<String>,
    ) -> (Recorded, Result<Deployed, String>) {
        let name = &probe.name;
        let mut record = self.record("PUT", probe);
        record.notes.set(name, &probe.config);
        if let Err(error) = record.announce() {
            let status = ProblemAnswer::unrecorded(&error).status();
            return ((record, status), Err(format!("{UNRECORDED}: {error}")));
        }
        let if_none_match = tag.is_none().then(|| "*".to_owned());
        let when = Conditions {
            if_match: tag,
            if_none_match,
        };
        match self
            .engine
            .put(name, probe.config.clone(), self.author(None), &when)
            .await
        {
            Ok((Deployed::Created, _)) => ((record, StatusCode::CREATED), Ok(Deployed::Created)),
            Ok((deployed, _)) => ((record, StatusCode::OK), Ok(deployed)),
            Err(error) => {
                let reason = located(&error);
                ((record, ProblemAnswer::from(error).status()), Err(reason))
            }
        }
    }

    /// Removes a probe that the file has created, or deploys the revision `before` again.
    async fn undo(&self, probe: &ProbeFile, before: Option<u64>) -> Recorded {
        let (name, always) = (&probe.name, Conditions::default());
        let message = format!("{} is not deployed as a whole", self.name);
        let outcome = match before {
            None => {
                let removed = self
                    .engine
                    .delete(name, self.author(Some(message)), &always)
                    .await;
                removed.map(|()| StatusCode::NO_CONTENT)
            }
            Some(_) => {
                let back = self
                    .engine
                    .roll_back(name, before, self.author(Some(message)), &always, |_| {})
                    .await;
                back.map(|_| StatusCode::OK)
            }
        };
        let record = self.record(if before.is_none() { "DELETE" } else { "POST" }, probe);
        let status = outcome.unwrap_or_else(|error| {
            tracing::error!(
                probe = name,
                file = self.name,
                error = describe(&error),
                "a probe could not be changed back"
            );
            ProblemAnswer::from(error).status()
        });
        (record, status)
    }

    /// Returns the record of a change by the file, in the same form as for a request.
    fn record(&self, method: &str, probe: &ProbeFile) -> Record {
        let ending = if method == "POST" { "/rollback" } else { "" };
        let what = format!("{method} /v1/probes/{}{ending}", probe.name);
        let path = self.directory.join(self.name);
        Record::of_own(
            self.audit.cloned(),
            &self.owner(),
            json!({ "file": path }),
            what,
            &probe.name,
        )
    }
}

/// Returns the reason for a refusal, with the field and the line of each mistake.
fn located(error: &EngineError) -> String {
    let EngineError::Rejected(Rejection { findings, .. }) = error else {
        return describe(error);
    };
    let finding = |Finding {
                       field,
                       line,
                       message,
                       ..
                   }: &Finding| {
        let at = field
            .iter()
            .cloned()
            .chain(line.map(|line| format!("line {line}")));
        at.chain([message.clone()]).collect::<Vec<_>>().join(": ")
    };
    findings.iter().map(finding).collect::<Vec<_>>().join("; ")
}

/// Writes the records, unless an earlier attempt has written them.
fn end(records: Vec<Recorded>, is_known: bool) {
    for (record, status) in records {
        if is_known {
            record.forget();
        } else {
            record.end(status);
        }
    }
}

/// Returns the author of changes by a file in the directory.
pub fn author(directory: &Path, file: &str, role: Role, message: Option<String>) -> ChangeAuthor {
    ChangeAuthor {
        principal: owner(file, role),
        from: json!({ "file": directory.join(file) }),
        message,
    }
}

/// Returns the sender of a file's deployments.
pub fn owner(file: &str, role: Role) -> Principal {
    Principal {
        who: Who::File(file.to_owned()),
        role: Some(role),
    }
}
