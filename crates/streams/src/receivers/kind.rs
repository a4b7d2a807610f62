//! The names of a kind of receiver in configurations and in URLs.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::receiver::Receiver;

/// The options of one kind of receiver: an object in a configuration, or a URL.
pub trait ReceiverOptions: DeserializeOwned + Send + 'static {
    /// The name in a configuration: `to: [ { NAME: { ... } } ]`.
    const NAME: &'static str;
    /// The schemes of URLs of this kind.
    const SCHEMES: &'static [&'static str];

    /// Reads a URL, which has no user and no password in it. Errors name the expected form.
    fn from_url(url: &ReceiverUrl) -> Result<Self, String>;

    /// Checks the rules that types do not express. Returns the path of a field below the options, and its mistake.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// The receiver for logs and metrics, without secrets, as in `nats://HOST/STREAM`.
    fn target(&self) -> String;

    /// Everything that decides where windows go: two receivers with one identity would get the same windows twice. It is
    /// compared and never shown, because it may hold secrets.
    fn identity(&self) -> String {
        self.target()
    }

    /// Makes the receiver. Contacts nothing yet.
    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver>;
}

/// The facts about its stream that a receiver gets.
#[derive(Clone, Debug)]
pub struct ReceiverSetup {
    /// The name of the stream.
    pub stream: String,
    /// The most bytes of documents that are on their way to this receiver.
    pub memory: usize,
    /// True if the stream ends once nothing is left: batches need not wait for more.
    pub once: bool,
}

/// The parts of a URL that names a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl {
    pub scheme: String,
    /// Hosts with ports, unchanged; may be empty.
    pub authority: String,
    /// The path without its first slash.
    pub path: String,
}

/// A receiver that a configuration names.
pub struct Destination {
    /// The name of its kind, with a number if there are several.
    pub label: String,
    pub target: String,
    /// Everything that decides where windows go.
    pub identity: String,
    make: MakeReceiver,
}

type MakeReceiver = Box<dyn FnOnce(&ReceiverSetup) -> Box<dyn Receiver> + Send>;

/// A kind of receiver.
#[derive(Clone, Copy)]
pub struct ReceiverKind {
    pub name: &'static str,
    pub schemes: &'static [&'static str],
    pub read: fn(Value) -> Result<Destination, (String, String)>,
    pub read_url: fn(&ReceiverUrl) -> Result<Destination, String>,
}

impl ReceiverKind {
    /// The kind with these options.
    #[allow(dead_code, reason = "a build without receivers, as in the operator, makes none")]
    pub const fn of<O: ReceiverOptions>() -> Self {
        Self {
            name: O::NAME,
            schemes: O::SCHEMES,
            read: |value| {
                let options: O = serde_path_to_error::deserialize(value).map_err(|error| {
                    let path = error.path().to_string();
                    (if path == "." { String::new() } else { path }, error.into_inner().to_string())
                })?;
                options.check().map_err(|(field, message)| (field.to_owned(), message))?;
                Ok(Destination::new(options))
            },
            read_url: |url| {
                let options = O::from_url(url)?;
                options.check().map_err(|(_, message)| message)?;
                Ok(Destination::new(options))
            },
        }
    }
}

impl Destination {
    #[allow(dead_code, reason = "a build without receivers, as in the operator, makes none")]
    fn new<O: ReceiverOptions>(options: O) -> Self {
        Self {
            label: O::NAME.to_owned(),
            target: options.target(),
            identity: format!("{} {}", O::NAME, options.identity()),
            make: Box::new(move |setup| options.receiver(setup)),
        }
    }

    /// Makes the receiver.
    pub fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        (self.make)(setup)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("label", &self.label).field("target", &self.target).finish()
    }
}

impl fmt::Debug for ReceiverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
