//! The line of a request in the log.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub time: String,
    pub who: Option<String>,
    pub role: Option<&'static str>,
    pub from: Value,
    pub what: String,
    pub probe: Option<String>,
    pub sources: BTreeMap<&'static str, String>,
    /// The sender's reason for a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The status of the answer; `null` if the client did not wait for it, or if it is not known
    /// yet.
    pub outcome: Option<u16>,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// True for the line that is written before a change is made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// The number of requests that the line stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
    /// True if the line also stands for requests of other clients.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
}

impl Line {
    pub fn new(what: String, probe: Option<String>) -> Self {
        Self {
            time: jiff::Timestamp::now().to_string(),
            who: None,
            role: None,
            from: Value::Null,
            what,
            probe,
            sources: BTreeMap::new(),
            message: None,
            outcome: None,
            reason: None,
            begun: false,
            repeated: None,
            others: false,
        }
    }

    /// Returns the line for this many requests; with `others`, also for requests of other clients.
    pub fn counted(self, repeated: u64, others: bool) -> Self {
        Self {
            repeated: Some(repeated),
            others,
            ..self
        }
    }

    /// Renders the line in ASCII: some readers end a line at other characters.
    pub fn render(&self) -> String {
        ascii(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Escapes everything but printable ASCII.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}
