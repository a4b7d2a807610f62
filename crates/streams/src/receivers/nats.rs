//! NATS JetStream: a message for each window. Each probe of each node has a subject of its own.
//!
//! A message is stored once: within the stream's `duplicate_window` the server knows its
//! `Nats-Msg-Id`. After this time, each message names the last message of its subject that this
//! receiver has seen, and the server refuses it if there is a later one. After a failure, and at a
//! start, the receiver reads the last message of a subject; its headers say which window it is.

pub mod options;
pub mod tail;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{
    Context, ErrorCode, context::ContextBuilder, context::GetStreamErrorKind,
};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use self::options::NatsOptions;
use self::tail::{INSTANCE, LAST, Tail, message};
use super::kind::{ReceiverOptions, ReceiverSetup, ReceiverUrl};
use crate::names::part;
use crate::receiver::{
    BatchLimits, ItemFate, ItemName, Receipt, Receiver, SendError, SeriesName, StreamItem,
};

/// The time that an answer of the server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most subjects whose messages are being sent at the same time.
const SUBJECTS: usize = 256;

impl ReceiverOptions for NatsOptions {
    const NAME: &'static str = "nats";
    const SCHEMES: &'static [&'static str] = &["nats", "tls"];

    fn from_url(url: &ReceiverUrl) -> Result<Self, String> {
        Self::of_url(url)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.checked()
    }

    fn target(&self) -> String {
        let server = self.servers.join(",");
        let server = if server.contains("://") {
            server
        } else {
            format!("nats://{server}")
        };
        format!("{}/{}", server.trim_end_matches('/'), self.stream)
    }

    fn identity(&self) -> String {
        self.place()
    }

    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        let bytes = (4 << 20).min(setup.memory / 4);
        let limits = BatchLimits {
            items: 1024,
            bytes,
            linger: Duration::from_millis(5),
        };
        Box::new(JetStream {
            options: self,
            limits,
            connected: None,
            tails: HashMap::new(),
        })
    }
}

/// A stream of JetStream.
struct JetStream {
    options: NatsOptions,
    limits: BatchLimits,
    connected: Option<Connected>,
    /// The last message of each subject, if it is known for certain.
    tails: HashMap<String, Tail>,
}

#[derive(Clone)]
struct Connected {
    context: Context,
    stream: Stream,
}

/// The outcome for the items of one subject.
struct SubjectOutcome {
    subject: String,
    /// The last message of the subject; `None` if it is not known any more.
    tail: Option<Tail>,
    fates: Vec<(usize, ItemFate)>,
    /// True if the connection caused the failure.
    is_broken: bool,
}

impl JetStream {
    async fn connected(&mut self) -> Result<Connected, SendError> {
        if let Some(connected) = &self.connected {
            return Ok(connected.clone());
        }
        // A later answer over another connection may be outdated.
        self.tails.clear();
        let connected = connect(&self.options).await?;
        self.connected = Some(connected.clone());
        Ok(connected)
    }

    async fn store(&mut self, batch: &[Arc<StreamItem>]) -> Result<Receipt, SendError> {
        let connected = self.connected().await?;
        let mut subjects: HashMap<String, Vec<(usize, Arc<StreamItem>)>> = HashMap::new();
        for (at, item) in batch.iter().enumerate() {
            let subject = subject(&self.options.subject, &item.name().series);
            subjects
                .entry(subject)
                .or_default()
                .push((at, Arc::clone(item)));
        }
        let work = subjects.into_iter().map(|(subject, items)| {
            let tail = self.tails.remove(&subject);
            publish_all(connected.clone(), subject, tail, items)
        });
        let outcomes: Vec<SubjectOutcome> = stream::iter(work)
            .buffer_unordered(SUBJECTS)
            .collect()
            .await;
        let mut fates = vec![ItemFate::Pending("it was not sent".to_owned()); batch.len()];
        for SubjectOutcome {
            subject,
            tail,
            fates: of_subject,
            is_broken,
        } in outcomes
        {
            of_subject
                .into_iter()
                .for_each(|(at, fate)| fates[at] = fate);
            self.tails.extend(tail.map(|tail| (subject, tail)));
            if is_broken {
                self.connected = None;
            }
        }
        Ok(Receipt(fates))
    }
}

impl Receiver for JetStream {
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
        let subject = subject(&self.options.subject, &item.series);
        format!("{item} -> {} subject {subject}", self.options.target())
    }
}

/// Returns the subject of a series. No part of the subject contains a dot, whatever the names are.
fn subject(prefix: &str, series: &SeriesName) -> String {
    let part = |name: &str| part(name).replace('.', "%2E");
    format!("{prefix}.{}.{}", part(&series.node), part(&series.probe))
}

async fn connect(options: &NatsOptions) -> Result<Connected, SendError> {
    let connection = options
        .credentials()?
        .name("twinprobe stream")
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .connect(&options.servers)
        .await
        .map_err(|error| {
            let what = match options.is_encrypted() {
                true => "no connection with TLS to NATS (see `tls` and `ca`)",
                false => "no connection to NATS",
            };
            SendError::caused(what, &error)
        })?;
    let context = ContextBuilder::new().timeout(PATIENCE).build(connection);
    let found = match context.get_stream(&options.stream).await {
        Err(error) if options.create && is_missing(&error.kind()) => {
            let config = Config {
                name: options.stream.clone(),
                subjects: vec![format!("{}.>", options.subject)],
                ..Config::default()
            };
            context.create_stream(config).await.map_err(|error| {
                SendError::caused(&format!("stream {} can't be made", options.stream), &error)
            })?
        }
        found => found
            .map_err(|error| SendError::caused(&format!("stream {}", options.stream), &error))?,
    };
    Ok(Connected {
        context,
        stream: found,
    })
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Publishes the items of one subject, one after the other: each item names the message of the
/// previous item.
async fn publish_all(
    connected: Connected,
    subject: String,
    tail: Option<Tail>,
    items: Vec<(usize, Arc<StreamItem>)>,
) -> SubjectOutcome {
    let mut outcome = SubjectOutcome {
        subject,
        tail,
        fates: Vec::new(),
        is_broken: false,
    };
    for (at, item) in items {
        match publish(&connected, &outcome.subject, &mut outcome.tail, &item).await {
            Ok(fate) => outcome.fates.push((at, fate)),
            Err(error) => {
                // The items after this item are sent later.
                outcome.fates.push((at, ItemFate::Pending(error.message)));
                outcome.is_broken = error.is_broken;
                outcome.tail = outcome.tail.filter(|_| !error.is_broken);
                break;
            }
        }
    }
    outcome
}

/// The reason why an item was not published.
struct PublishFailure {
    message: String,
    is_broken: bool,
}

async fn publish(
    connected: &Connected,
    subject: &str,
    tail: &mut Option<Tail>,
    item: &Arc<StreamItem>,
) -> Result<ItemFate, PublishFailure> {
    // The server refuses an item that an earlier, unanswered attempt has published. Then this
    // function reads the last message of the subject again.
    for _ in 0..3 {
        let known = match tail.take() {
            Some(known) => known,
            None => read_tail(connected, subject).await?,
        };
        if known.has(item) {
            *tail = Some(known);
            return Ok(ItemFate::Repeat);
        }
        let item = &known.rest_of(item);
        let (headers, payload) = message(item);
        let message = PublishMessage::build()
            .headers(headers)
            .payload(payload)
            .message_id(item.identity())
            .expected_last_subject_sequence(known.sequence);
        let sent = async {
            connected
                .context
                .send_publish(subject.to_owned(), message)
                .await?
                .await
        };
        match sent.await {
            // The last message of the subject is unknown now: it may be later than this message.
            Ok(ack) if ack.duplicate => return Ok(ItemFate::Repeat),
            Ok(ack) => {
                *tail = Some(Tail::after(item, ack.sequence));
                return Ok(ItemFate::Stored);
            }
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
            Err(error) => {
                let failure = not_taken(&error, item.size());
                *tail = Some(known).filter(|_| !failure.is_broken);
                return Err(failure);
            }
        }
    }
    let message = "another program publishes on the subject".to_owned();
    Err(PublishFailure {
        message,
        is_broken: false,
    })
}

/// Returns the failure for a message of this size that the server did not take. A message that is
/// too large does not break the connection.
fn not_taken(error: &PublishError, size: usize) -> PublishFailure {
    let is_large = error.kind() == PublishErrorKind::MaxPayloadExceeded;
    let message = if is_large {
        format!("it has {size} bytes, more than the server's max_payload; raise that")
    } else {
        SendError::caused("NATS did not take it", error).to_string()
    };
    PublishFailure {
        message,
        is_broken: !is_large,
    }
}

async fn read_tail(connected: &Connected, subject: &str) -> Result<Tail, PublishFailure> {
    match connected
        .stream
        .get_last_raw_message_by_subject(subject)
        .await
    {
        Ok(message) => {
            let header = |name: &str| {
                message
                    .headers
                    .get(name)
                    .map(|value| value.as_str().to_owned())
            };
            let instance = header(INSTANCE).unwrap_or_default();
            let last = header(LAST)
                .and_then(|seq| seq.parse().ok())
                .unwrap_or_default();
            Ok(Tail {
                sequence: message.sequence,
                instance,
                last,
            })
        }
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => {
            Ok(Tail::default())
        }
        Err(error) => {
            let message =
                SendError::caused("the last message of the subject can't be read", &error)
                    .to_string();
            Err(PublishFailure {
                message,
                is_broken: true,
            })
        }
    }
}

#[cfg(test)]
mod tests;
