//! Calls about the windows of a probe.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use twinprobe_ebpf_common::window::Listing;
use twinprobe_ebpf_common::window::shape::WindowShape;

use super::{Client, Document, JSON, LargestEntries};
use crate::answer::Answer;
use crate::error::ClientError;

/// The time that the answer to a long poll may take after the end of the poll.
const LATE: Duration = Duration::from_secs(30);

/// The query for a list of windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowQuery<'a> {
    /// The window after which the list begins; `None` for the last window that `collector` has
    /// acknowledged.
    pub after: Option<u64>,
    /// The time in seconds to wait for a window if there is none yet.
    pub wait: Option<u64>,
    pub collector: Option<&'a str>,
}

impl Client {
    /// `POST /v1/probes/{name}/windows`: closes the window.
    pub async fn close_window(
        &self,
        name: &str,
        accept: &str,
    ) -> Result<Answer<Document>, ClientError> {
        self.whole(self.probe(Method::POST, name, ["windows"], accept)?)
            .await
    }

    /// `GET /v1/probes/{name}/windows`.
    pub async fn windows(
        &self,
        name: &str,
        query: WindowQuery<'_>,
    ) -> Result<Answer<Listing>, ClientError> {
        let mut request = self.probe(Method::GET, name, ["windows"], JSON)?;
        for (field, number) in [("after", query.after), ("wait", query.wait)] {
            request = request.query(&number.map(|number| (field, number)).as_slice());
        }
        if let Some(wait) = query.wait {
            request = request.timeout(Duration::from_secs(wait) + LATE);
        }
        self.whole(collector(request, query.collector)).await
    }

    /// `GET /v1/probes/{name}/windows/{seq}`.
    pub async fn window(
        &self,
        name: &str,
        seq: u64,
        accept: &str,
        largest: LargestEntries<'_>,
    ) -> Result<Answer<Document>, ClientError> {
        let request = self.probe(Method::GET, name, ["windows", &seq.to_string()], accept)?;
        self.whole(largest.of(request)).await
    }

    /// Does the same, with the digest of the document's shape in [`Answer::shape`].
    pub async fn shaped_window(
        &self,
        name: &str,
        seq: u64,
        accept: &str,
    ) -> Result<Answer<Document>, ClientError> {
        let request = self.probe(Method::GET, name, ["windows", &seq.to_string()], accept)?;
        self.whole(request.query(&[("shape", "true")])).await
    }

    /// `GET /v1/probes/{name}/windows/{seq}/shape`.
    pub async fn shape(&self, name: &str, seq: u64) -> Result<Answer<WindowShape>, ClientError> {
        self.whole(self.probe(
            Method::GET,
            name,
            ["windows", &seq.to_string(), "shape"],
            JSON,
        )?)
        .await
    }

    /// `DELETE /v1/probes/{name}/windows/{seq}`: acknowledges all windows up to `seq`, for `by` or
    /// for all collectors.
    pub async fn acknowledge(
        &self,
        name: &str,
        seq: u64,
        by: Option<&str>,
    ) -> Result<(), ClientError> {
        let request = self.probe(Method::DELETE, name, ["windows", &seq.to_string()], JSON)?;
        self.transport.send(collector(request, by)).await.map(drop)
    }

    /// Acknowledges windows of the probe `instance`; 404 if the name belongs to another probe.
    pub async fn acknowledge_of(
        &self,
        name: &str,
        instance: &str,
        seq: u64,
        by: Option<&str>,
    ) -> Result<(), ClientError> {
        let request = self.probe(Method::DELETE, name, ["windows", &seq.to_string()], JSON)?;
        let request = collector(request, by).query(&[("instance", instance)]);
        self.transport.send(request).await.map(drop)
    }
}

fn collector(request: RequestBuilder, name: Option<&str>) -> RequestBuilder {
    request.query(&name.map(|name| ("collector", name)).as_slice())
}
