//! The call about names of addresses and ports.

use reqwest::Method;
use twinprobe_api::NameList;

use crate::answer::Answer;
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// `GET /v1/names`: the names of addresses and ports, as far as the daemon finds any. At most
    /// 256 of each.
    pub async fn names(
        &self,
        addresses: &[String],
        ports: &[String],
    ) -> Result<Answer<NameList>, ClientError> {
        let addresses = addresses.iter().map(|address| ("address", address));
        let query: Vec<_> = addresses
            .chain(ports.iter().map(|port| ("port", port)))
            .collect();
        let request = self
            .transport
            .request(Method::GET, ["v1", "names"], "application/json");
        self.whole(request.query(&query)).await
    }
}
