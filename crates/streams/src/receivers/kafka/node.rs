//! The producer of one node, and its transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::client::{SETTLE, Told, producer};
use super::cursors::{Cursors, PARTITION, key};
use super::options::KafkaOptions;
use crate::names::part;
use crate::receiver::{ItemFate, SendError, SeriesName, StreamItem};

/// The number of bytes that headers and cursors may take in a message.
const OVERHEAD: usize = 1024;
/// The time that a step of a transaction may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two looks at whether the stream continues.
const SLICE: Duration = Duration::from_millis(200);

/// The destination of a stream's windows, and the name of the stream.
#[derive(Clone, Debug)]
pub struct KafkaPlace {
    pub options: Arc<KafkaOptions>,
    pub stream: Arc<str>,
}

/// A producer of one node. Unless there is a failure, only another producer of the same node can
/// disturb it.
pub struct NodeProducer {
    place: KafkaPlace,
    producer: BaseProducer<Told>,
    told: Told,
    /// The last stored window of each series of this node; `None` without transactions.
    cursors: Option<Cursors>,
}

/// The parts of a message other than its content.
struct MessageStamp {
    key: String,
    headers: OwnedHeaders,
}

impl NodeProducer {
    /// Makes a producer. With transactions, the new producer aborts the open transaction of an
    /// earlier producer of the node, and the brokers refuse everything later from that earlier
    /// producer.
    pub fn open(
        place: &KafkaPlace,
        node: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, SendError> {
        let (options, told) = (&place.options, Told::default());
        let id = format!(
            "twinprobe/{}/{}/{}",
            part(node),
            part(&place.stream),
            options.topic
        );
        let config = producer(options, options.exactly_once.then_some(&*id))?;
        let producer = config
            .create_with_context(told.clone())
            .map_err(|error| told.failed("no client", &error))?;
        let opened = Self {
            place: place.clone(),
            producer,
            told,
            cursors: None,
        };
        if options.exactly_once {
            opened.repeated("no transactions", is_over, || {
                opened.producer.init_transactions(SLICE)
            })?;
        }
        Ok(opened)
    }

    /// Returns the present end of the topic of cursors.
    pub fn end(&self) -> Result<i64, SendError> {
        let found = self.producer.client().fetch_watermarks(
            &self.place.options.cursors(),
            PARTITION,
            PATIENCE,
        );
        found
            .map(|(_, end)| end)
            .map_err(|error| self.failed("the cursors can't be read", &error))
    }

    /// Sets the cursors that this producer continues from.
    pub fn begin_at(&mut self, cursors: Cursors) {
        self.cursors = Some(cursors);
    }

    /// Sends items, and waits until the brokers have stored them for good. Drop this producer after
    /// an error.
    pub fn store(
        &mut self,
        items: &[(usize, Arc<StreamItem>)],
        is_over: &dyn Fn() -> bool,
    ) -> Result<Vec<(usize, ItemFate)>, SendError> {
        let (mut fates, mut sent) = (Vec::new(), Cursors::new());
        let mut refused: Vec<Arc<SeriesName>> = Vec::new();
        for (at, item) in items {
            let series = &item.name().series;
            let cursor = key(&self.place.stream, &self.place.options.topic, series);
            let after = sent
                .get(&cursor)
                .or_else(|| self.cursors.as_ref()?.get(&cursor))
                .copied();
            let Some(item) = rest(item, after.filter(|_| self.cursors.is_some())) else {
                fates.push((*at, ItemFate::Repeat));
                continue;
            };
            if let Some(reason) = self.too_large(&item, refused.contains(series)) {
                refused.push(Arc::clone(series));
                fates.push((*at, ItemFate::Pending(reason)));
                continue;
            }
            if sent.is_empty() && self.cursors.is_some() {
                self.producer
                    .begin_transaction()
                    .map_err(|error| self.failed("no transaction", &error))?;
            }
            self.enqueue(&item, is_over)?;
            sent.insert(cursor, last(&item));
            fates.push((*at, ItemFate::Stored));
        }
        if !sent.is_empty() {
            self.finish(sent, is_over)?;
        }
        Ok(fates)
    }

    /// Aborts the open transaction, so that readers of the topic do not wait for its end.
    pub fn give_up(self) {
        if self.cursors.is_some() {
            let _ = self.producer.abort_transaction(10 * SLICE);
        }
    }

    /// Writes the cursors of the series, and ends the transaction.
    fn finish(&mut self, sent: Cursors, is_over: &dyn Fn() -> bool) -> Result<(), SendError> {
        if self.cursors.is_some() {
            let topic = self.place.options.cursors();
            for (key, seq) in &sent {
                let seq = seq.to_string();
                self.put(is_over, || {
                    BaseRecord::to(&topic)
                        .partition(PARTITION)
                        .key(key.as_str())
                        .payload(seq.as_str())
                })?;
            }
        }
        self.drained(is_over)?;
        if self.cursors.is_some() {
            self.repeated("a transaction was not committed", is_over, || {
                self.producer.commit_transaction(SLICE)
            })?;
        }
        if let Some(cursors) = &mut self.cursors {
            cursors.extend(sent);
        }
        Ok(())
    }

    fn too_large(&self, item: &StreamItem, is_behind: bool) -> Option<String> {
        let (size, most) = (item.size() + OVERHEAD, self.place.options.max_message_bytes);
        match (is_behind, size > most) {
            (true, _) => Some("it waits for the earlier window".to_owned()),
            (_, true) => Some(format!(
                "it has {} bytes, more than maxMessageBytes; raise that, and max.message.bytes of the topic",
                item.size()
            )),
            _ => None,
        }
    }

    fn enqueue(&self, item: &StreamItem, is_over: &dyn Fn() -> bool) -> Result<(), SendError> {
        let topic = &self.place.options.topic;
        let record = if let StreamItem::Gap(gap) = item {
            gap.record().to_string()
        } else {
            String::new()
        };
        let content = if let StreamItem::Window(window) = item {
            &*window.document
        } else {
            record.as_bytes()
        };
        let MessageStamp { key, headers } = stamp(item);
        self.put(is_over, || {
            BaseRecord::to(topic)
                .key(key.as_str())
                .payload(content)
                .headers(headers.clone())
        })
    }

    /// Puts a message into the queue of the client, which may be full.
    fn put<'a, P: rdkafka::message::ToBytes + ?Sized + 'a>(
        &self,
        is_over: &dyn Fn() -> bool,
        record: impl Fn() -> BaseRecord<'a, str, P>,
    ) -> Result<(), SendError> {
        loop {
            match self.producer.send(record()) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if !is_over() =>
                {
                    self.producer.poll(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(self.failed("a message was not taken", &error)),
            }
        }
    }

    /// Waits until the brokers have stored all messages of the queue.
    fn drained(&self, is_over: &dyn Fn() -> bool) -> Result<(), SendError> {
        let until = Instant::now() + PATIENCE;
        while self.producer.in_flight_count() > 0 {
            if is_over() || Instant::now() > until {
                let late = KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut);
                return Err(self.failed("messages were not delivered", &late));
            }
            self.producer.poll(Duration::from_millis(1));
        }
        match self.told.take_undelivered() {
            Some(reason) => Err(SendError::new(format!(
                "a message was not delivered: {reason}"
            ))),
            None => Ok(()),
        }
    }

    /// Repeats a step of a transaction, which continues in the background, until the step has
    /// ended.
    fn repeated(
        &self,
        what: &str,
        is_over: &dyn Fn() -> bool,
        step: impl Fn() -> Result<(), KafkaError>,
    ) -> Result<(), SendError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Err(error) = step() else { return Ok(()) };
            let again = matches!(&error, KafkaError::Transaction(told) if told.is_retriable() && !told.is_fatal());
            if !again || is_over() || Instant::now() > until {
                return Err(self.failed(what, &error));
            }
        }
    }

    fn failed(&self, what: &str, error: &KafkaError) -> SendError {
        // The errors of connections arrive in the thread that polls the client.
        self.producer.poll(SETTLE);
        let told = self.told.failed(what, error);
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::Fenced
                | RDKafkaErrorCode::ProducerFenced
                | RDKafkaErrorCode::InvalidProducerEpoch,
            ) => SendError::new(format!(
                "{told}; another stream of the same name sends windows of this node"
            )),
            _ => told,
        }
    }
}

/// Returns the number of the last window that an item is about.
const fn last(item: &StreamItem) -> u64 {
    match item {
        StreamItem::Window(window) => window.name.seq,
        StreamItem::Gap(gap) => gap.last,
    }
}

/// Returns the item without the windows up to `after`; `None` if nothing is left.
fn rest(item: &Arc<StreamItem>, after: Option<u64>) -> Option<Arc<StreamItem>> {
    let Some(after) = after else {
        return Some(Arc::clone(item));
    };
    match &**item {
        _ if last(item) <= after => None,
        StreamItem::Gap(gap) => gap.after(after).map(|rest| Arc::new(StreamItem::Gap(rest))),
        StreamItem::Window(_) => Some(Arc::clone(item)),
    }
}

/// Returns the key of the message, by which Kafka chooses the partition, and the headers that
/// identify its window.
fn stamp(item: &StreamItem) -> MessageStamp {
    let SeriesName {
        node,
        instance,
        probe,
    } = &*item.name().series;
    let seq = last(item).to_string();
    let mut headers = OwnedHeaders::new();
    for (key, value) in [
        ("Twinprobe-Node", node),
        ("Twinprobe-Probe", probe),
        ("Twinprobe-Instance", instance),
        ("Twinprobe-Seq", &seq),
    ] {
        headers = headers.insert(Header {
            key,
            value: Some(value.as_str()),
        });
    }
    if let StreamItem::Window(window) = item {
        headers = headers.insert(Header {
            key: "Twinprobe-Shape",
            value: Some(window.shape.digest.as_str()),
        });
    }
    MessageStamp {
        key: message_key(&item.name().series),
        headers,
    }
}

/// Returns the key of the messages of a series.
pub fn message_key(series: &SeriesName) -> String {
    format!("{}/{}", part(&series.node), part(&series.probe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::{ItemName, StreamGap};

    #[test]
    fn a_gap_loses_what_was_stored_before() {
        let series = SeriesName {
            node: "n".into(),
            instance: "i".into(),
            probe: "p".into(),
        };
        let name = ItemName {
            series: Arc::new(series),
            seq: 4,
            start: "".into(),
            end: "".into(),
        };
        let gap = Arc::new(StreamItem::Gap(StreamGap {
            name,
            last: 9,
            windows: 6,
        }));
        let shown = |after| {
            rest(&gap, after).map(|item| match &*item {
                StreamItem::Gap(gap) => (gap.name.seq, gap.last, gap.windows),
                StreamItem::Window(_) => unreachable!(),
            })
        };
        assert_eq!(
            (shown(None), shown(Some(3))),
            (Some((4, 9, 6)), Some((4, 9, 6)))
        );
        assert_eq!((shown(Some(6)), shown(Some(9))), (Some((7, 9, 3)), None));
    }
}
