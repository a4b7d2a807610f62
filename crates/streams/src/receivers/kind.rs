//! A kind of receiver: its names in configurations and in URLs, and its options.

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

    /// Parses a URL, which contains no user and no password. Errors name the expected form.
    fn from_url(url: &ReceiverUrl) -> Result<Self, String>;

    /// Checks the rules that types do not express. Returns the path of a field below the options,
    /// and its mistake.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Returns the receiver's address for logs and metrics, without secrets, as in
    /// `nats://HOST/STREAM`.
    fn target(&self) -> String;

    /// Returns everything that decides where windows are sent: two receivers with the same identity
    /// would get the same windows twice. The identity is compared and never shown, because it may
    /// contain secrets.
    fn identity(&self) -> String {
        self.target()
    }

    /// Makes the receiver. Contacts no server yet.
    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver>;
}

/// The facts about a stream that its receiver gets.
#[derive(Clone, Debug)]
pub struct ReceiverSetup {
    /// The name of the stream.
    pub stream: String,
    /// The most bytes of documents that are on their way to this receiver.
    pub memory: usize,
    /// True if the stream ends after the last available window, so that batches need not wait for
    /// more windows.
    pub once: bool,
}

/// The parts of a URL that names a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverUrl {
    pub scheme: String,
    /// The hosts with their ports, unchanged; may be empty.
    pub authority: String,
    /// The path without the slash at its beginning.
    pub path: String,
}

/// A receiver that a configuration names.
pub struct Destination {
    /// The name of the receiver's kind, with a number if there are several receivers of this kind.
    pub label: String,
    pub target: String,
    /// Everything that decides where windows are sent.
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
    /// Returns the kind of receiver that has these options.
    #[allow(
        dead_code,
        reason = "a build without receivers, as in the operator, makes none"
    )]
    pub const fn of<O: ReceiverOptions>() -> Self {
        Self {
            name: O::NAME,
            schemes: O::SCHEMES,
            read: |value| {
                let options: O = serde_path_to_error::deserialize(value).map_err(|error| {
                    let path = error.path().to_string();
                    (
                        if path == "." { String::new() } else { path },
                        error.into_inner().to_string(),
                    )
                })?;
                options
                    .check()
                    .map_err(|(field, message)| (field.to_owned(), message))?;
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
    #[allow(
        dead_code,
        reason = "a build without receivers, as in the operator, makes none"
    )]
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
        f.debug_struct("Destination")
            .field("label", &self.label)
            .field("target", &self.target)
            .finish()
    }
}

impl fmt::Debug for ReceiverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
