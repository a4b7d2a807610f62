//! The record of requests: one line of JSON for each, written when the answer's head is known.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use twinprobe_client::ConfigDocument;

use crate::access::principal::Principal;
use crate::peer::{Origin, Peer};

/// The length in characters to which a path is cut: clients choose it.
const PATH_LIMIT: usize = 512;

/// The file of `--audit-log`.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    out: Mutex<Out>,
}

#[derive(Debug)]
struct Out {
    file: File,
    /// The reason why the last line could not be written as a whole.
    trouble: Option<io::ErrorKind>,
    /// True if the file may end in the middle of a line: this daemon has not written its last one, or not all of it.
    unsure: bool,
}

/// The facts about a request that its handler knows and the guard does not. The handler adds them while it works, so that
/// a refused request has them as well.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Note>>);

#[derive(Clone, Debug, Default)]
struct Note {
    probe: Option<String>,
    /// The SHA-256 of each direction's source, or of its object as it was sent, in base64.
    sources: BTreeMap<&'static str, String>,
}

impl Notes {
    /// Notes the probe and the sources that the request is about.
    pub fn set(&self, probe: &str, config: &ConfigDocument) {
        let digest =
            |source: &String| Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        let directions = [("ingress", &config.ingress), ("egress", &config.egress)];
        let sources = directions.into_iter().filter_map(|(name, direction)| {
            let direction = direction.as_ref()?;
            Some((name, digest(direction.source.as_ref().or(direction.object.as_ref())?)))
        });
        *self.0.lock() = Note { probe: Some(probe.to_owned()), sources: sources.collect() };
    }
}

/// The record of one request. A record that is dropped before it is ended tells of a client that has gone: what it
/// asked for may have been done.
#[derive(Debug)]
pub struct Record {
    log: Option<Arc<AuditLog>>,
    line: Line,
    pub notes: Notes,
}

#[derive(Debug, Serialize)]
struct Line {
    time: String,
    who: Option<String>,
    role: Option<&'static str>,
    from: Value,
    what: String,
    probe: Option<String>,
    sources: BTreeMap<&'static str, String>,
    /// The status of the answer; `null` if the client did not wait for it.
    outcome: Option<u16>,
}

impl Record {
    pub fn begin(log: Option<Arc<AuditLog>>, peer: &Peer, request: &Parts, probe: Option<String>) -> Self {
        let from = match &peer.origin {
            Origin::Unix { uid, gid, pid } => json!({ "uid": uid, "gid": gid, "pid": pid }),
            Origin::Tcp { client, encrypted, .. } => {
                json!({ "address": client.to_string(), "tls": encrypted })
            }
        };
        // The query is left out: it decides about no more than how an answer looks, and where a list begins.
        let path: String = request.uri.path().chars().take(PATH_LIMIT).collect();
        let line = Line {
            time: jiff::Timestamp::now().to_string(),
            who: None,
            role: None,
            from,
            what: format!("{} {path}", request.method),
            probe: probe.map(|probe| probe.chars().take(PATH_LIMIT).collect()),
            sources: BTreeMap::new(),
            outcome: None,
        };
        Self { log, line, notes: Notes::default() }
    }

    /// The record of a change that no request asks for, but a file.
    pub fn of_file(
        log: Option<Arc<AuditLog>>,
        by: &Principal,
        file: &Path,
        what: String,
        probe: &str,
    ) -> Self {
        let line = Line {
            time: jiff::Timestamp::now().to_string(),
            who: None,
            role: None,
            from: json!({ "file": file }),
            what,
            probe: Some(probe.to_owned()),
            sources: BTreeMap::new(),
            outcome: None,
        };
        let mut record = Self { log, line, notes: Notes::default() };
        record.set_principal(by);
        record
    }

    /// Records nothing.
    pub fn discard(mut self) {
        self.log = None;
    }

    pub fn set_principal(&mut self, principal: &Principal) {
        self.line.who = Some(principal.who.to_string());
        self.line.role = principal.role.map(|role| role.name());
    }

    pub fn end(mut self, status: StatusCode) {
        self.line.outcome = Some(status.as_u16());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(log) = &self.log else { return };
        let Note { probe, sources } = std::mem::take(&mut *self.notes.0.lock());
        self.line.sources = sources;
        self.line.probe = self.line.probe.take().or(probe);
        if let Ok(line) = serde_json::to_string(&self.line) {
            log.write(ascii(&line) + "\n");
        }
    }
}

impl AuditLog {
    pub fn open(path: &Path) -> io::Result<Self> {
        let out = Out { file: append(path)?, trouble: None, unsure: true };
        Ok(Self { path: path.to_owned(), out: Mutex::new(out) })
    }

    /// Opens the file again, which somebody may have renamed. After an error the log goes on in the present file.
    pub fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        let mut out = self.out.lock();
        (out.file, out.unsure) = (file, true);
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, line: String) {
        let mut out = self.out.lock();
        // A line that was cut off must not spoil the next one.
        let line = if out.unsure && is_cut(&out.file) { format!("\n{line}") } else { line };
        let trouble = out.file.write_all(line.as_bytes()).err().map(|error| error.kind());
        if let Some(kind) = trouble.filter(|_| trouble != out.trouble) {
            tracing::error!(path = %self.path.display(), %kind, "requests can't be recorded");
        }
        (out.trouble, out.unsure) = (trouble, trouble.is_some());
    }
}

/// Tells whether a file ends in the middle of a line, as it does after a full disk or a crash.
fn is_cut(file: &File) -> bool {
    let mut last = *b"\n";
    let length = file.metadata().map_or(0, |file| file.len());
    length > 0 && file.read_at(&mut last, length - 1).is_ok() && last != *b"\n"
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Escapes everything but printable ASCII: some readers take other characters for the end of a line.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn record(log: &Arc<AuditLog>, path: &str, probe: &str) -> Record {
        let client = "10.0.0.1:4711".parse().unwrap();
        let peer =
            Peer { origin: Origin::Tcp { client, local: client, encrypted: true }, names: Arc::new([]) };
        let request =
            Request::put(path).header("authorization", "Bearer secret").body(()).unwrap().into_parts().0;
        Record::begin(Some(Arc::clone(log)), &peer, &request, Some(probe.to_owned()))
    }

    #[test]
    fn each_request_is_one_line_and_a_renamed_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let log = Arc::new(AuditLog::open(&path).unwrap());
        let first = record(&log, "/v1/probes/a?token=secret", "a\nb\u{2028}\u{85}é\u{1f600}");
        first.end(StatusCode::FORBIDDEN);
        drop(record(&log, &format!("/{}", "x".repeat(9000)), "b"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(text.is_ascii() && !text.contains("secret") && text.len() < 2000, "{text}");
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["probe"], "a\nb\u{2028}\u{85}é\u{1f600}");
        assert_eq!((&lines[0]["outcome"], &lines[1]["outcome"]), (&json!(403), &Value::Null));
        assert_eq!(lines[0]["from"], json!({ "address": "10.0.0.1:4711", "tls": true }));
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        log.reopen().unwrap();
        record(&log, "/", "c").end(StatusCode::OK);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        for (before, lines) in [("", 1), ("{}\n", 2), ("{}\n{\"time\":\"20", 3)] {
            std::fs::write(&path, before).unwrap();
            let log = Arc::new(AuditLog::open(&path).unwrap());
            record(&log, "/", "a").end(StatusCode::OK);
            record(&log, "/", "b").end(StatusCode::OK);
            let text = std::fs::read_to_string(&path).unwrap();
            let whole = text.lines().skip(lines - 1).map(|line| serde_json::from_str::<Value>(line).unwrap());
            assert_eq!(whole.map(|line| line["probe"].clone()).collect::<Vec<_>>(), ["a", "b"], "{text}");
        }
    }
}
