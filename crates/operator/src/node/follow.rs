//! Objects, as they are created, changed and deleted: a list, then a watch that continues where the
//! last watch ended.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{ObjectList, ObjectMeta, Request};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::node::server::{ApiServer, ApiServerError};

/// The longest time between two attempts.
const LONGEST: Duration = Duration::from_secs(30);
/// The pause after a watch that the server has cut, at most; longer in a fleet whose assignments
/// are spread over a longer time. A server that ends cuts the watches of all nodes at once.
const CUT: Duration = Duration::from_secs(5);
/// The largest assumed difference between the clocks of server and node: a watch that ends earlier
/// by at most this time has ended normally.
const SLACK: Duration = Duration::from_secs(2);

/// The objects to follow.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The path of the objects' kind at the API server.
    pub path: String,
    /// The selector of the objects by a field, such as `metadata.name=n1`.
    pub fields: Option<String>,
    /// True if the agent requests only the metadata of the objects.
    pub is_metadata: bool,
}

/// A change.
#[derive(Debug)]
pub enum Seen<K> {
    /// All objects.
    All(Vec<K>),
    One(K),
    Gone(K),
}

/// An object of any kind with metadata.
pub trait Described: DeserializeOwned + Clone {
    fn described(&self) -> &ObjectMeta;
}

impl<K: kube::Resource + DeserializeOwned + Clone> Described for K {
    fn described(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// Follows objects until the receiver of the changes has ended. After failures the attempts have
/// random pauses, so that not all nodes reconnect at the same moment.
pub async fn follow<K: Described>(server: &ApiServer, what: &Followed, changes: &Sender<Seen<K>>) {
    let mut version: Option<String> = None;
    let mut failures = 0;
    while !changes.is_closed() {
        let done = match &version {
            None => listed(server, what, changes).await,
            Some(from) => watched(server, what, from, changes).await,
        };
        match done {
            Ok(next) => {
                let is_cut = version.is_some() && next.is_cut;
                version = Some(next.version);
                failures = 0;
                if is_cut {
                    sleep(random(server.spread().max(CUT))).await;
                }
            }
            Err(error) => {
                if error.is_expired() {
                    version = None;
                } else {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a watch failed; it is tried again"
                    );
                }
                failures += 1;
                sleep(random(pause(failures))).await;
            }
        }
    }
}

/// Returns the longest pause after this many failures in a row.
pub fn pause(failures: u32) -> Duration {
    Duration::from_millis(500)
        .saturating_mul(1 << failures.min(7))
        .min(LONGEST)
}

/// Returns a random time of at most `most`.
pub fn random(most: Duration) -> Duration {
    let hash = RandomState::new().build_hasher().finish();
    most.mul_f64(hash as f64 / u64::MAX as f64)
}

/// The version of the objects that a list or watch has reached.
struct WatchPlace {
    version: String,
    /// True if a watch has ended before its time.
    is_cut: bool,
}

async fn listed<K: Described>(
    server: &ApiServer,
    what: &Followed,
    changes: &Sender<Seen<K>>,
) -> Result<WatchPlace, ApiServerError> {
    let list = ListParams {
        field_selector: what.fields.clone(),
        ..ListParams::default()
    };
    let request = Request::new(&*what.path);
    let request = if what.is_metadata {
        request.list_metadata(&list)?
    } else {
        request.list(&list)?
    };
    let all: ObjectList<K> = server.call(request).await?;
    let version = all.metadata.resource_version.unwrap_or_default();
    // The receiver ends with the program.
    let _ = changes.send(Seen::All(all.items)).await;
    Ok(WatchPlace {
        version,
        is_cut: false,
    })
}

/// Watches from a version. Returns the version from which the next watch continues.
async fn watched<K: Described>(
    server: &ApiServer,
    what: &Followed,
    from: &str,
    changes: &Sender<Seen<K>>,
) -> Result<WatchPlace, ApiServerError> {
    // The server ends each watch after a random time, so that not all nodes reconnect at the same
    // moment.
    let minutes = Duration::from_secs(300);
    let seconds = (minutes + random(minutes)).as_secs();
    let ends = Instant::now() + Duration::from_secs(seconds);
    let timeout = u32::try_from(seconds).ok();
    let watch = WatchParams {
        timeout,
        field_selector: what.fields.clone(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let request = Request::new(&*what.path);
    let request = if what.is_metadata {
        request.watch_metadata(&watch, from)?
    } else {
        request.watch(&watch, from)?
    };
    let mut events = server.watch::<K>(request).await?;
    let mut version = from.to_owned();
    while let Some(event) = events.next().await {
        // A watch that is cut continues where it was.
        let event = match event {
            Ok(event) => event,
            Err(ApiServerError::Watch(_)) if version != from => break,
            Err(error) => return Err(error),
        };
        let (change, newer) = match event {
            WatchEvent::Added(one) | WatchEvent::Modified(one) => {
                let newer = one.described().resource_version.clone();
                (Some(Seen::One(one)), newer)
            }
            WatchEvent::Deleted(one) => {
                let newer = one.described().resource_version.clone();
                (Some(Seen::Gone(one)), newer)
            }
            WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(_) => (None, None),
        };
        if let Some(newer) = newer {
            version = newer;
        }
        if let Some(change) = change
            && changes.send(change).await.is_err()
        {
            break;
        }
    }
    Ok(WatchPlace {
        version,
        is_cut: Instant::now() + SLACK < ends,
    })
}
