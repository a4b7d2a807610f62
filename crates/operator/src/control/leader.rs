//! One operator at a time: the holder of the Lease.

use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep};

const NAME: &str = "twinprobe-operator";
/// The time after which another operator takes over.
const DURATION: Duration = Duration::from_secs(15);
const RENEWAL: Duration = Duration::from_secs(3);
/// The time after which an operator that can't renew the Lease ends; another operator takes the
/// Lease later.
const SURRENDER: Duration = Duration::from_secs(10);

/// The Lease of the operators of a namespace.
pub struct Leadership {
    leases: Api<Lease>,
    identity: String,
}

impl Leadership {
    pub fn new(client: Client, namespace: &str, identity: String) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            identity,
        }
    }

    /// Waits until this operator has the Lease.
    pub async fn acquire(&self) {
        loop {
            match self.take().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the Lease can't be taken; the operator tries again"
                    );
                }
            }
            sleep(RENEWAL).await;
        }
    }

    /// Renews the Lease until that fails for too long. Then this operator must end.
    pub async fn keep(&self) -> anyhow::Result<()> {
        let mut renewed = Instant::now();
        loop {
            sleep(RENEWAL).await;
            match self.take().await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => bail!("another operator has taken the Lease {NAME}"),
                Err(error) if renewed.elapsed() < SURRENDER => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the Lease can't be renewed; the operator tries again"
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes or renews the Lease. Returns true if this operator has the Lease now.
    async fn take(&self) -> kube::Result<bool> {
        let now = Timestamp::now();
        let Some(mut lease) = self.leases.get_opt(NAME).await? else {
            let metadata = ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            };
            let lease = Lease {
                metadata,
                spec: Some(self.spec(None, now)),
            };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let duration = spec.lease_duration_seconds.unwrap_or_default().max(1);
        let is_held = spec
            .renew_time
            .as_ref()
            .is_some_and(|renewed| now.duration_since(renewed.0).as_secs() < i64::from(duration));
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() && is_held {
            return Ok(false);
        }
        lease.spec = Some(self.spec(Some(&spec), now));
        // The write names the version that was read: if two operators take the Lease at the same
        // time, the API server refuses one of them.
        let name = lease.name_any();
        won(self
            .leases
            .replace(&name, &PostParams::default(), &lease)
            .await)
    }

    fn spec(&self, before: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
        let same = before.filter(|it| it.holder_identity.as_ref() == Some(&self.identity));
        let changes = before
            .and_then(|it| it.lease_transitions)
            .unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: same
                .and_then(|it| it.acquire_time.clone())
                .or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(changes + i32::from(before.is_some() && same.is_none())),
            ..LeaseSpec::default()
        }
    }
}

fn won(done: kube::Result<Lease>) -> kube::Result<bool> {
    match done {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
