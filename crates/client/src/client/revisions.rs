//! Calls about the earlier configurations of a probe, and marks.

use reqwest::Method;
use twinprobe_api::{ConfigDocument, HistoryList, ProbeStatus, RevisionList, Rollback};

use super::{Client, JSON, explained};
use crate::answer::Answer;
use crate::error::ClientError;

impl Client {
    /// `PUT /v1/probes/{name}` if the probe still has the tag `etag`; otherwise the daemon refuses
    /// with 412.
    pub async fn replace(
        &self,
        name: &str,
        config: &ConfigDocument,
        etag: &str,
        message: Option<&str>,
    ) -> Result<Answer<ProbeStatus>, ClientError> {
        let request = self
            .probe(Method::PUT, name, [], JSON)?
            .header("if-match", etag);
        self.whole(explained(request, message).json(config)).await
    }

    /// `GET /v1/probes/{name}/history`, or `GET /v1/history` without a name.
    pub async fn history(&self, name: Option<&str>) -> Result<Answer<HistoryList>, ClientError> {
        self.whole(match name {
            Some(name) => self.probe(Method::GET, name, ["history"], JSON)?,
            None => self.transport.request(Method::GET, ["v1", "history"], JSON),
        })
        .await
    }

    /// `GET /v1/probes/{name}/revisions`.
    pub async fn revisions(&self, name: &str) -> Result<Answer<RevisionList>, ClientError> {
        self.whole(self.probe(Method::GET, name, ["revisions"], JSON)?)
            .await
    }

    /// `POST /v1/probes/{name}/mark`: a line with this text in the audit log.
    pub async fn mark(&self, name: &str, text: &str) -> Result<(), ClientError> {
        let request = explained(self.probe(Method::POST, name, ["mark"], JSON)?, Some(text));
        self.transport.send(request).await.map(drop)
    }

    /// `POST /v1/probes/{name}/rollback`.
    pub async fn roll_back(
        &self,
        name: &str,
        to: Rollback,
        message: Option<&str>,
    ) -> Result<Answer<ProbeStatus>, ClientError> {
        let request = self.probe(Method::POST, name, ["rollback"], JSON)?;
        self.whole(explained(request, message).json(&to)).await
    }
}
