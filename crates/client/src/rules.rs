//! The calls about rules and templates.

use reqwest::{Method, RequestBuilder};
use twinprobe_api::{
    ConfigDocument, Rollback, RuleDocument, RuleList, RuleRevisionList, RuleStatus, TemplateList,
    TemplateStatus,
};

use crate::answer::Answer;
use crate::client::{Client, JSON, explained};
use crate::error::ClientError;

impl Client {
    /// `GET /v1/rules`.
    pub async fn rules(&self) -> Result<Answer<RuleList>, ClientError> {
        self.whole(self.transport.request(Method::GET, ["v1", "rules"], JSON))
            .await
    }

    /// `GET /v1/rules/{name}`.
    pub async fn rule(&self, name: &str) -> Result<Answer<RuleStatus>, ClientError> {
        self.whole(self.of_rule(Method::GET, name, [])?).await
    }

    /// `PUT /v1/rules/{name}`: creates (201) or replaces (200) a rule. The list of its revisions
    /// shows `message`.
    pub async fn put_rule(
        &self,
        name: &str,
        rule: &RuleDocument,
        message: Option<&str>,
    ) -> Result<Answer<RuleStatus>, ClientError> {
        self.whole(explained(self.of_rule(Method::PUT, name, [])?, message).json(rule))
            .await
    }

    /// `DELETE /v1/rules/{name}`.
    pub async fn delete_rule(&self, name: &str, message: Option<&str>) -> Result<(), ClientError> {
        let request = explained(self.of_rule(Method::DELETE, name, [])?, message);
        self.transport.send(request).await.map(drop)
    }

    /// `GET /v1/rules/{name}/revisions`.
    pub async fn rule_revisions(
        &self,
        name: &str,
    ) -> Result<Answer<RuleRevisionList>, ClientError> {
        self.whole(self.of_rule(Method::GET, name, ["revisions"])?)
            .await
    }

    /// `POST /v1/rules/{name}/rollback`.
    pub async fn roll_rule_back(
        &self,
        name: &str,
        to: Rollback,
        message: Option<&str>,
    ) -> Result<Answer<RuleStatus>, ClientError> {
        let request = self.of_rule(Method::POST, name, ["rollback"])?;
        self.whole(explained(request, message).json(&to)).await
    }

    /// `GET /v1/templates`, without sources.
    pub async fn templates(&self) -> Result<Answer<TemplateList>, ClientError> {
        self.whole(
            self.transport
                .request(Method::GET, ["v1", "templates"], JSON),
        )
        .await
    }

    /// `GET /v1/templates/{name}`.
    pub async fn template(&self, name: &str) -> Result<Answer<TemplateStatus>, ClientError> {
        self.whole(self.named(Method::GET, "templates", name, [])?)
            .await
    }

    /// `PUT /v1/templates/{name}`: creates (201) or replaces (200) a template.
    pub async fn put_template(
        &self,
        name: &str,
        config: &ConfigDocument,
        message: Option<&str>,
    ) -> Result<Answer<TemplateStatus>, ClientError> {
        let request = self.named(Method::PUT, "templates", name, [])?;
        self.whole(explained(request, message).json(config)).await
    }

    /// `DELETE /v1/templates/{name}`.
    pub async fn delete_template(
        &self,
        name: &str,
        message: Option<&str>,
    ) -> Result<(), ClientError> {
        let request = self.named(Method::DELETE, "templates", name, [])?;
        self.transport
            .send(explained(request, message))
            .await
            .map(drop)
    }

    fn of_rule<const N: usize>(
        &self,
        method: Method,
        name: &str,
        rest: [&str; N],
    ) -> Result<RequestBuilder, ClientError> {
        self.named(method, "rules", name, rest)
    }

    fn named<const N: usize>(
        &self,
        method: Method,
        kind: &str,
        name: &str,
        rest: [&str; N],
    ) -> Result<RequestBuilder, ClientError> {
        if matches!(name, "." | "..") {
            return Err(ClientError::Name(name.to_owned()));
        }
        Ok(self
            .transport
            .request(method, ["v1", kind, name].into_iter().chain(rest), JSON))
    }
}
