//! The topic of cursors. For each series it contains the number of the last window in the topic of
//! windows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Told, settings};
use super::options::KafkaOptions;
use crate::names::part;
use crate::receiver::{SendError, SeriesName};

/// The partition that contains the cursors.
pub const PARTITION: i32 = 0;
/// The pause between two requests for the end of the committed messages.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause between two checks of whether the stream continues.
const SLICE: Duration = Duration::from_millis(200);

/// The last window of each series, by the key of its message.
pub type Cursors = HashMap<String, u64>;

/// Returns the key of a cursor's message.
pub fn key(stream: &str, topic: &str, series: &SeriesName) -> String {
    let SeriesName {
        node,
        instance,
        probe,
    } = series;
    format!(
        "{}/{topic}/{}/{}/{}",
        part(stream),
        part(node),
        part(instance),
        part(probe)
    )
}

/// Reads the cursors of a stream: the committed cursors up to `end`, and all cursors after it.
/// Stops once `is_over` returns true.
pub fn read(
    options: &KafkaOptions,
    stream: &str,
    end: i64,
    is_over: &dyn Fn() -> bool,
) -> Result<Cursors, SendError> {
    let (told, topic) = (Told::default(), options.cursors());
    let what = format!("topic {topic} can't be read");
    let failed = |error: &KafkaError| told.failed(&what, error);
    let late = || {
        SendError::new(format!(
            "{what}: a transaction of another producer does not end"
        ))
    };
    let consumer: BaseConsumer<Told> = consumer_settings(options, stream)?
        .create_with_context(told.clone())
        .map_err(|error| failed(&error))?;
    // Open transactions of other nodes hide the messages after their beginning.
    while consumer
        .fetch_watermarks(&topic, PARTITION, 10 * SLICE)
        .map_err(|error| failed(&error))?
        .1
        < end
    {
        if is_over() {
            return Err(late());
        }
        std::thread::sleep(PAUSE);
    }
    let mut partitions = TopicPartitionList::new();
    let added = partitions.add_partition_offset(&topic, PARTITION, Offset::Beginning);
    added
        .and_then(|()| consumer.assign(&partitions))
        .map_err(|error| failed(&error))?;
    let (mut cursors, start) = (
        Cursors::new(),
        format!("{}/{}/", part(stream), options.topic),
    );
    let begun = Instant::now();
    loop {
        match consumer.poll(SLICE) {
            Some(Ok(message)) => {
                let cursor = cursor_in(&message);
                cursors.extend(cursor.filter(|(key, _)| key.starts_with(&start)));
            }
            Some(Err(KafkaError::PartitionEOF(_))) => {
                tracing::debug!(topic, cursors = cursors.len(), took = ?begun.elapsed(), "the cursors are read");
                return Ok(cursors);
            }
            Some(Err(error)) => return Err(failed(&error)),
            None if is_over() => return Err(failed(&KafkaError::NoMessageReceived)),
            None => {}
        }
    }
}

/// Returns the settings of the consumer of a stream's cursors.
fn consumer_settings(options: &KafkaOptions, stream: &str) -> Result<ClientConfig, SendError> {
    let mut config = settings(options)?;
    // The client requires the name of a group, although this consumer joins no group.
    config
        .set("group.id", format!("twinprobe-{}", part(stream)))
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed");
    Ok(config)
}

/// Returns the key and the window of a cursor's message; `None` if the message is no cursor.
fn cursor_in(message: &BorrowedMessage<'_>) -> Option<(String, u64)> {
    let key = std::str::from_utf8(message.key()?).ok()?;
    let seq = std::str::from_utf8(message.payload()?).ok()?;
    Some((key.to_owned(), seq.parse().ok()?))
}
