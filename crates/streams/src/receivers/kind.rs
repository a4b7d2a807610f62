//! How a kind of receiver stands in configurations and in URLs.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::list::KINDS;
use crate::receiver::Receiver;

/// The options of one kind of receiver: an object in a configuration, or a URL.
pub trait ReceiverOptions: DeserializeOwned + Send + 'static {
    /// The name in a configuration: `to: [ { NAME: { ... } } ]`.
    const NAME: &'static str;
    /// The schemes of URLs of this kind.
    const SCHEMES: &'static [&'static str];

    /// Reads a URL, which has no user and no password in it. Errors say what is expected.
    fn from_url(url: &ReceiverUrl) -> Result<Self, String>;

    /// Checks what the types do not say. Returns the path of a field below the options, and its mistake.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// The receiver for logs and metrics, without secrets, as in `nats://HOST/STREAM`.
    fn target(&self) -> String;

    /// Makes the receiver. Contacts nothing yet.
    fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver>;
}

/// What a receiver gets to know about its stream.
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
    /// Hosts with ports, as they stand there; may be empty.
    pub authority: String,
    /// The path without its first slash.
    pub path: String,
}

/// A receiver that a configuration names.
pub struct Destination {
    /// The name of its kind, with a number if there are several.
    pub label: String,
    pub target: String,
    make: MakeReceiver,
}

type MakeReceiver = Box<dyn FnOnce(&ReceiverSetup) -> Box<dyn Receiver> + Send>;

/// A kind of receiver.
#[derive(Clone, Copy)]
pub struct ReceiverKind {
    pub name: &'static str,
    pub schemes: &'static [&'static str],
    read: fn(Value) -> Result<Destination, (String, String)>,
    read_url: fn(&ReceiverUrl) -> Result<Destination, String>,
}

impl ReceiverKind {
    /// The kind with these options.
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
    fn new<O: ReceiverOptions>(options: O) -> Self {
        Self {
            label: O::NAME.to_owned(),
            target: options.target(),
            make: Box::new(move |setup| options.receiver(setup)),
        }
    }

    /// Makes the receiver.
    pub fn receiver(self, setup: &ReceiverSetup) -> Box<dyn Receiver> {
        (self.make)(setup)
    }

    /// Reads an element of `to`: `{NAME: {...}}`, or a URL. An error has the path below the element, and what is wrong.
    pub fn read(value: Value) -> Result<Self, (String, String)> {
        match value {
            Value::String(url) => Self::read_url(&url).map_err(|message| (String::new(), message)),
            Value::Object(object) if object.len() == 1 => {
                let Some((name, options)) = object.into_iter().next() else {
                    return Err((String::new(), expected()));
                };
                let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
                    return Err((
                        name.clone(),
                        format!("{name} is no receiver that this build knows; {}", known()),
                    ));
                };
                (kind.read)(options).map_err(|(path, message)| {
                    let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                    (format!("{name}{dot}{path}"), message)
                })
            }
            _ => Err((String::new(), expected())),
        }
    }

    /// Reads a URL.
    pub fn read_url(text: &str) -> Result<Self, String> {
        let url: ReceiverUrl = text.parse()?;
        match KINDS.iter().find(|kind| kind.schemes.contains(&url.scheme.as_str())) {
            Some(kind) => (kind.read_url)(&url),
            None => Err(format!("{}:// is no receiver that this build knows; {}", url.scheme, known())),
        }
    }
}

fn expected() -> String {
    format!("a URL is expected, or an object with one kind of receiver; {}", known())
}

/// The kinds that a message names.
fn known() -> String {
    let names: Vec<String> =
        KINDS.iter().map(|kind| format!("{} ({}://)", kind.name, kind.schemes.join("://, "))).collect();
    format!("it has {}", names.join(", "))
}

impl std::str::FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!("a URL such as nats://HOST/STREAM or file:///DIRECTORY is expected; {}", known())
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            // The text may hold a password, so no message repeats it.
            return Err("a URL can't have a user or a password: every user of the machine could read it. Write a \
                        configuration (-f FILE) that names a file with the secret, readable by the stream only"
                .to_owned());
        }
        if path.contains(['?', '#']) {
            return Err("a URL has no options behind ? or #; write a configuration (-f FILE)".to_owned());
        }
        Ok(Self { scheme: scheme.to_owned(), authority: authority.to_owned(), path: path.to_owned() })
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
