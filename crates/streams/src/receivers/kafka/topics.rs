//! The creation and the check of topics.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer as _};
use tokio::runtime::Handle;

use super::client::{SETTLE, Told, producer, settings};
use super::options::KafkaOptions;
use crate::receiver::SendError;

/// The time that an answer of a broker may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The size of segments, which is small: Kafka compacts only closed segments, and each start of the
/// stream reads all messages.
const SEGMENT: &str = "4194304";
const COMPACTED: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", SEGMENT),
    ("min.cleanable.dirty.ratio", "0.1"),
];

/// Makes the missing topics, and checks that Kafka does not delete cursors. The caller must be a
/// thread that may block.
pub fn ensure(options: &KafkaOptions) -> Result<(), SendError> {
    let (told, cursors) = (Told::default(), options.cursors());
    let client: BaseProducer<Told> = producer(options, None)?
        .create_with_context(told.clone())
        .map_err(|error| told.failed("no client", &error))?;
    let names: Vec<&str> = [&*options.topic]
        .into_iter()
        .chain(options.exactly_once.then_some(&*cursors))
        .collect();
    let mut missing = Vec::new();
    for name in names {
        let found = client
            .client()
            .fetch_metadata(Some(name), PATIENCE)
            .map_err(|error| {
                client.poll(SETTLE);
                told.failed("no answer of Kafka", &error)
            })?;
        let error = found
            .topics()
            .first()
            .and_then(rdkafka::metadata::MetadataTopic::error)
            .map(RDKafkaErrorCode::from);
        match error {
            None => {}
            Some(RDKafkaErrorCode::UnknownTopicOrPartition) if options.create => missing.push(name),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {
                return Err(SendError::new(format!(
                    "there is no topic {name}; make it, or leave out `create: false`"
                )));
            }
            Some(error) => return Err(SendError::caused(&format!("topic {name}"), &error)),
        }
    }
    let admin: AdminClient<Told> = settings(options)?
        .create_with_context(told.clone())
        .map_err(|error| told.failed("no client", &error))?;
    for name in missing {
        make(&admin, name, if name == cursors { &COMPACTED } else { &[] })?;
    }
    if options.exactly_once {
        check(&admin, &cursors)
    } else {
        Ok(())
    }
}

fn make(admin: &AdminClient<Told>, name: &str, config: &[(&str, &str)]) -> Result<(), SendError> {
    // The topic of cursors has one partition. Other topics get the cluster's default number.
    let partitions = if config.is_empty() { -1 } else { 1 };
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
    for (setting, value) in config {
        topic = topic.set(setting, value);
    }
    let options = AdminOptions::new()
        .operation_timeout(Some(PATIENCE))
        .request_timeout(Some(PATIENCE));
    let made = Handle::current().block_on(admin.create_topics([&topic], &options));
    let what = format!("topic {name} can't be made");
    let made = made.map_err(|error| SendError::caused(&what, &error))?;
    match made.into_iter().next() {
        Some(Err((_, error))) if error != RDKafkaErrorCode::TopicAlreadyExists => {
            Err(SendError::caused(&what, &error))
        }
        _ => Ok(()),
    }
}

/// Refuses a topic that deletes old messages: it would lose the cursors of nodes.
fn check(admin: &AdminClient<Told>, cursors: &str) -> Result<(), SendError> {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let told = Handle::current()
        .block_on(admin.describe_configs([&ResourceSpecifier::Topic(cursors)], &options));
    // A client that is not allowed to read the settings of the topic skips this check.
    let Some(Ok(config)) = told.ok().and_then(|told| told.into_iter().next()) else {
        return Ok(());
    };
    match config
        .get("cleanup.policy")
        .and_then(|entry| entry.value.as_deref())
    {
        Some(policy) if policy != "compact" => Err(SendError::new(format!(
            "cleanup.policy of the topic {cursors} is {policy}: it would forget how far nodes are; set it to compact"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_does_not_listen_is_told() {
        let options = serde_json::json!({ "brokers": ["127.0.0.1:1"], "topic": "w" });
        let options: KafkaOptions = serde_json::from_value(options).unwrap();
        let error = ensure(&options).unwrap_err().to_string();
        assert!(
            error.contains("Connection refused") && error.contains("127.0.0.1:1"),
            "{error}"
        );
    }
}
