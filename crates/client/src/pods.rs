//! The calls about the pods of a node.

use reqwest::Method;
use twinprobe_api::{PodList, PodTable};

use crate::answer::Answer;
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// `GET /v1/pods`: the pods that the daemon knows, each with its interfaces.
    pub async fn pods(&self) -> Result<Answer<PodList>, ClientError> {
        self.whole(
            self.transport
                .request(Method::GET, ["v1", "pods"], "application/json"),
        )
        .await
    }

    /// `PUT /v1/pods`: tells the daemon all pods of the node.
    pub async fn put_pods(&self, table: &PodTable) -> Result<Answer<PodList>, ClientError> {
        let request = self
            .transport
            .request(Method::PUT, ["v1", "pods"], "application/json");
        self.whole(request.json(table)).await
    }
}
