//! Captures, and requests that replay them.

use serde_json::Value;

use crate::{Daemon, Response};

const BOUNDARY: &str = "----packets";

/// Returns a pcap file with nanoseconds. A packet is its time in nanoseconds since the Unix epoch,
/// and its bytes.
pub fn pcap<'a>(packets: impl IntoIterator<Item = (u64, &'a [u8])>) -> Vec<u8> {
    let mut file = head(1);
    for (time, bytes) in packets {
        append(&mut file, time, bytes.len() as u32, bytes);
    }
    file
}

/// Returns the head of a pcap file with packets of this link type.
pub fn head(link_type: u32) -> Vec<u8> {
    [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 262_144, link_type]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect()
}

/// Appends a packet of this length with `bytes` captured bytes.
pub fn append(file: &mut Vec<u8>, time: u64, length: u32, bytes: &[u8]) {
    let (seconds, rest) = ((time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32);
    for word in [seconds, rest, bytes.len() as u32, length] {
        file.extend(word.to_le_bytes());
    }
    file.extend(bytes);
}

/// Replays captures: the names of their parts, and their bytes.
#[track_caller]
pub fn replay(daemon: &Daemon, config: &Value, captures: &[(&str, &[u8])]) -> Response {
    let config = config.to_string();
    let mut parts = vec![("config", config.as_bytes())];
    parts.extend(captures);
    request(daemon, "/v1/replay", &parts)
}

/// Sends parts of any names to `path`.
#[track_caller]
pub fn request(daemon: &Daemon, path: &str, parts: &[(&str, &[u8])]) -> Response {
    let (content_type, body) = body(parts);
    daemon.request("POST", path, &[("Content-Type", &content_type)], &body)
}

/// Returns the type and the bytes of a body with these parts.
pub fn body(parts: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, bytes) in parts {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n"
        );
        body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
    }
    body.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}
