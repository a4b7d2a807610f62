//! The receiver for Kafka: each node has a transaction of its own for its items.
//!
//! After any error, the receiver drops the producer. The next producer of the node waits until the
//! brokers have committed or aborted the last transaction, and reads from the cursors which of the
//! two they have done. So the stream can send a batch again if its outcome is unknown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::task::spawn_blocking;

use super::cursors::read;
use super::node::{KafkaPlace, NodeProducer, message_key};
use super::options::KafkaOptions;
use super::topics;
use crate::config::duration;
use crate::receiver::{BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, StreamItem};
use crate::receivers::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};

/// Items, each with its place in the batch.
type Items = Vec<(usize, Arc<StreamItem>)>;

/// A topic.
pub struct KafkaReceiver {
    place: KafkaPlace,
    limits: BatchLimits,
    /// True once the receiver has checked that the topics exist.
    is_ready: bool,
    nodes: HashMap<String, NodeProducer>,
}

/// Signals to a thread, on its drop, that the caller does not wait for the thread any more.
struct WaitGuard(Arc<AtomicBool>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl WaitGuard {
    /// Calls `work` in a thread that is allowed to block.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, SendError> + Send + 'static,
    ) -> Result<T, SendError> {
        let over = Arc::clone(&self.0);
        let called = spawn_blocking(move || work(&|| over.load(Ordering::Relaxed))).await;
        called.unwrap_or_else(|error| Err(SendError::caused("a thread of Kafka ended", &error)))
    }
}

impl KafkaReceiver {
    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let waiting = WaitGuard(Arc::default());
        if !self.is_ready {
            let options = Arc::clone(&self.place.options);
            waiting.call(move |_| topics::ensure(&options)).await?;
            self.is_ready = true;
        }
        let mut nodes: BTreeMap<String, Items> = BTreeMap::new();
        for (at, item) in batch.iter().enumerate() {
            nodes
                .entry(item.name().series.node.clone())
                .or_default()
                .push((at, Arc::clone(item)));
        }
        let opened = self.open(&waiting, nodes.keys()).await;
        if opened.is_err() {
            // Somebody may have removed the topics.
            self.is_ready = false;
        }
        opened?;
        let work = nodes.into_iter().filter_map(|(node, items)| {
            let mut producer = self.nodes.remove(&node)?;
            Some(waiting.call(move |is_over| {
                let stored = match producer.store(&items, is_over) {
                    Ok(fates) => Ok((producer, fates)),
                    Err(error) => {
                        producer.give_up();
                        Err(error)
                    }
                };
                Ok((node, items, stored))
            }))
        });
        let mut fates = vec![ItemFate::Pending("it was not sent".to_owned()); batch.len()];
        let (mut failure, mut is_any) = (None, false);
        for outcome in join_all(work).await {
            let (node, items, stored) = outcome?;
            match stored {
                Ok((producer, of_node)) => {
                    is_any = true;
                    of_node.into_iter().for_each(|(at, fate)| fates[at] = fate);
                    self.nodes.insert(node, producer);
                }
                Err(error) => {
                    items
                        .iter()
                        .for_each(|(at, _)| fates[*at] = ItemFate::Pending(error.to_string()));
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) if !is_any => Err(error),
            _ => Ok(Receipt(fates)),
        }
    }

    /// Makes the missing producers. After this the brokers refuse everything from earlier producers
    /// of the same nodes; only then does this function read the cursors.
    async fn open(
        &mut self,
        waiting: &WaitGuard,
        nodes: impl Iterator<Item = &String>,
    ) -> Result<(), SendError> {
        let missing: Vec<String> = nodes
            .filter(|node| !self.nodes.contains_key(*node))
            .cloned()
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let opening = missing.into_iter().map(|node| {
            let place = self.place.clone();
            waiting.call(move |is_over| Ok((NodeProducer::open(&place, &node, is_over)?, node)))
        });
        let opened: Vec<(NodeProducer, String)> = join_all(opening)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let place = self.place.clone();
        let opened = waiting.call(move |is_over| {
            let mut opened = opened;
            if let (true, Some((first, _))) = (place.options.exactly_once, opened.first()) {
                let cursors = read(&place.options, &place.stream, first.end()?, is_over)?;
                opened
                    .iter_mut()
                    .for_each(|(producer, _)| producer.begin_at(cursors.clone()));
            }
            Ok(opened)
        });
        self.nodes.extend(
            opened
                .await?
                .into_iter()
                .map(|(producer, node)| (node, producer)),
        );
        Ok(())
    }
}

impl Receiver for KafkaReceiver {
    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn send<'a>(
        &'a mut self,
        batch: &'a [Arc<StreamItem>],
    ) -> BoxFuture<'a, Result<Receipt, SendError>> {
        self.store(batch).boxed()
    }

    fn preview(&self, item: &ItemName) -> String {
        format!(
            "{item} -> {} key {}",
            self.place.options.target(),
            message_key(&item.series)
        )
    }
}

impl ReceiverOptions for KafkaOptions {
    const NAME: &'static str = "kafka";
    const SCHEMES: &'static [&'static str] = &["kafka"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        if url.authority.is_empty() || url.path.is_empty() || url.path.contains('/') {
            return Err("kafka://HOST:PORT,.../TOPIC is expected".to_owned());
        }
        let brokers: Vec<String> = url.authority.split(',').map(with_port).collect();
        let value = serde_json::json!({ "brokers": brokers, "topic": url.path });
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.checked()
    }

    fn target(&self) -> String {
        format!("kafka://{}/{}", self.brokers.join(","), self.topic)
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let plain = BatchLimits::default();
        let linger = if setup.once {
            duration::SOON.min(plain.linger)
        } else {
            Duration::from_millis(20)
        };
        // A transaction costs several round trips, so many windows share one.
        let limits = BatchLimits {
            items: 4096,
            bytes: plain.bytes.min(setup.memory / 4),
            linger,
        };
        let place = KafkaPlace {
            options: Arc::new(self),
            stream: setup.stream.as_str().into(),
        };
        Box::new(KafkaReceiver {
            place,
            limits,
            is_ready: false,
            nodes: HashMap::new(),
        })
    }
}

/// Returns a host with its port, which is Kafka's default port if the host has none.
fn with_port(host: &str) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    if has_port {
        host.to_owned()
    } else {
        format!("{host}:9092")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_url(url: &str) -> Result<KafkaOptions, String> {
        let options = KafkaOptions::from_url(&url.parse()?)?;
        options.check().map_err(|(_, message)| message)?;
        Ok(options)
    }

    #[test]
    fn urls_name_brokers_and_a_topic() {
        for (url, target, is_encrypted) in [
            (
                "kafka://a.example,b:9093/w",
                "kafka://a.example:9092,b:9093/w",
                true,
            ),
            ("kafka://127.0.0.1:1/w", "kafka://127.0.0.1:1/w", false),
            ("kafka://[::1]/w", "kafka://[::1]:9092/w", false),
        ] {
            let options = of_url(url).unwrap();
            assert_eq!(
                (&*options.target(), options.is_encrypted()),
                (target, is_encrypted)
            );
        }
        assert!(
            of_url("kafka://host")
                .unwrap_err()
                .contains("TOPIC is expected")
        );
        assert!(
            of_url("kafka://host:port/w")
                .unwrap_err()
                .contains("is not HOST:PORT")
        );
        assert!(
            of_url("kafka://user:secret@host/w")
                .unwrap_err()
                .contains("a password")
        );
    }

    #[test]
    fn mistakes_name_their_field() {
        for (more, field) in [
            (json!({ "brokers": [] }), "brokers"),
            (json!({ "brokers": ["u:p@b:1"] }), "brokers"),
            (json!({ "topic": "a/b" }), "topic"),
            (json!({ "cursorTopic": "w" }), "cursorTopic"),
            (json!({ "maxMessageBytes": 1 }), "maxMessageBytes"),
            (json!({ "user": "u" }), "user"),
            (json!({ "passwordFile": "/p" }), "passwordFile"),
            (json!({ "key": "/k" }), "key"),
            (json!({ "cert": "/c" }), "cert"),
            (json!({ "tls": "disable", "ca": "/c" }), "ca"),
        ] {
            let mut value = json!({ "brokers": ["b:1"], "topic": "w" });
            for (name, part) in more.as_object().unwrap() {
                value[name] = part.clone();
            }
            let options: KafkaOptions = serde_json::from_value(value).unwrap();
            assert_eq!(options.check().unwrap_err().0, field, "{more}");
        }
    }
}
