//! The parser of receivers in configurations and URLs.

use serde_json::Value;

use super::KINDS;
use super::kind::{Destination, ReceiverUrl};

impl Destination {
    /// Reads an element of `to`: `{NAME: {...}}`, or a URL. An error has the path below the
    /// element, and the mistake.
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
                        format!("this build has no receiver {name}; {}", known()),
                    ));
                };
                (kind.read)(options).map_err(|(path, message)| {
                    let dot = if path.is_empty() || path.starts_with('[') {
                        ""
                    } else {
                        "."
                    };
                    (format!("{name}{dot}{path}"), message)
                })
            }
            Value::Object(object) if object.len() > 1 => {
                let names = object
                    .keys()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", ");
                let rule = "one kind of receiver has its options below its name";
                Err((
                    String::new(),
                    format!("{rule}, and each receiver an item of `to`; this item has {names}"),
                ))
            }
            _ => Err((String::new(), expected())),
        }
    }

    /// Reads a URL.
    pub fn read_url(text: &str) -> Result<Self, String> {
        let url: ReceiverUrl = text.parse()?;
        match KINDS
            .iter()
            .find(|kind| kind.schemes.contains(&url.scheme.as_str()))
        {
            Some(kind) => (kind.read_url)(&url),
            None => Err(format!(
                "this build has no receiver {}://; {}",
                url.scheme,
                known()
            )),
        }
    }
}

fn expected() -> String {
    format!(
        "a URL is expected, or an object with one kind of receiver; {}",
        known()
    )
}

/// Returns the list of all kinds of receivers for error messages.
fn known() -> String {
    let names: Vec<String> = KINDS
        .iter()
        .map(|kind| format!("{} ({}://)", kind.name, kind.schemes.join("://, ")))
        .collect();
    format!("it has {}", names.join(", "))
}

impl std::str::FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            format!(
                "a URL such as nats://HOST/STREAM or file:///DIRECTORY is expected; {}",
                known()
            )
        })?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            // The text may hold a password, so no message repeats it.
            return Err("a URL can't have a user or a password: every user of the machine could read it. Write a \
                        configuration (-f FILE) that names a file with the secret, readable by the stream only"
                .to_owned());
        }
        if path.contains(['?', '#']) {
            return Err(
                "a URL has no options behind ? or #; write a configuration (-f FILE)".to_owned(),
            );
        }
        Ok(Self {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            path: path.to_owned(),
        })
    }
}
