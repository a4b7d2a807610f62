use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use http::{Request, StatusCode};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::audit::log::AuditLog;
use crate::audit::record::Record;
use crate::peer::{Peer, PeerOrigin};
use crate::principal::{Principal, Who};
use crate::refusal::Refusal;
use crate::role::Role;

fn begin(log: &Arc<AuditLog>, client: &str, path: &str, probe: &str) -> Record {
    let client = client.parse().unwrap();
    let peer = Peer {
        origin: PeerOrigin::Tcp {
            client,
            local: client,
            encrypted: true,
        },
        names: Arc::new([]),
    };
    let request = Request::put(path)
        .header("authorization", "Bearer secret")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    Record::begin(
        Some(Arc::clone(log)),
        &peer,
        &request,
        Some(probe.to_owned()),
    )
}

fn record(log: &Arc<AuditLog>, path: &str, probe: &str) -> Record {
    let mut record = begin(log, "10.0.0.1:4711", path, probe);
    record.set_principal(&Principal {
        who: Who::Token("ci".to_owned()),
        role: Some(Role::Operator),
    });
    record
}

/// A request that is refused because it has no credential.
fn refused(log: &Arc<AuditLog>, client: &str, path: &str) {
    let mut record = begin(log, client, path, "p");
    record.refuse(&Refusal::NoCredential);
    record.end(StatusCode::UNAUTHORIZED);
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_request_is_one_line_and_a_renamed_file_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let log = AuditLog::open(&path, false).unwrap();
    let first = record(
        &log,
        "/v1/probes/a?token=secret",
        "a\nb\u{2028}\u{85}é\u{1f600}",
    );
    first.end(StatusCode::FORBIDDEN);
    drop(record(&log, &format!("/{}", "x".repeat(9000)), "b"));
    let text = std::fs::read_to_string(&path).unwrap();
    let found = lines(&path);
    assert!(
        text.is_ascii() && !text.contains("secret") && text.len() < 2000,
        "{text}"
    );
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["probe"], "a\nb\u{2028}\u{85}é\u{1f600}");
    assert_eq!(
        (&found[0]["outcome"], &found[1]["outcome"]),
        (&json!(403), &Value::Null)
    );
    assert_eq!(
        found[0]["from"],
        json!({ "address": "10.0.0.1:4711", "tls": true })
    );
    std::fs::rename(&path, dir.path().join("old")).unwrap();
    log.reopen().unwrap();
    record(&log, "/", "c").end(StatusCode::OK);
    assert_eq!(lines(&path).len(), 1);
}

#[test]
fn a_line_that_was_cut_off_spoils_no_other() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    for (before, lines) in [("", 1), ("{}\n", 2), ("{}\n{\"time\":\"20", 3)] {
        std::fs::write(&path, before).unwrap();
        let log = AuditLog::open(&path, false).unwrap();
        record(&log, "/", "a").end(StatusCode::OK);
        record(&log, "/", "b").end(StatusCode::OK);
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = text
            .lines()
            .skip(lines - 1)
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(
            whole.map(|line| line["probe"].clone()).collect::<Vec<_>>(),
            ["a", "b"],
            "{text}"
        );
    }
}

/// Clients without a credential determine neither the number of lines nor their length.
#[test]
fn refusals_of_one_kind_share_lines() {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let log = AuditLog::open(&path, false).unwrap();
    for n in 0..5000 {
        refused(
            &log,
            &format!("10.0.0.1:{}", 1024 + n),
            &format!("/v1/{n}/{}", "x".repeat(1000)),
        );
    }
    refused(&log, "10.0.0.2:1", "/v1/probes");
    record(&log, "/", "a").end(StatusCode::OK);
    let found = lines(&path);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(
        (&found[0]["outcome"], &found[0]["reason"]),
        (&json!(401), &json!("no_credential"))
    );
    log.end_interval();
    let found = lines(&path);
    assert_eq!(
        (found.len(), &found[3]["repeated"]),
        (4, &json!(4999)),
        "{found:#?}"
    );
    assert!(
        found[3]["from"]["address"]
            .as_str()
            .unwrap()
            .starts_with("10.0.0.1:"),
        "{found:#?}"
    );
    // In the end many clients count as one kind, and a network of IPv6 counts as one client.
    for n in 0..5000_u32 {
        refused(
            &log,
            &format!("[2001:db8:{:x}:{:x}::1]:80", n / 50, n % 50),
            "/",
        );
        refused(&log, &format!("[2001:db8:1:1::{n:x}]:80"), "/");
    }
    log.end_interval();
    let text = std::fs::read_to_string(&path).unwrap();
    let found = lines(&path);
    assert!(
        found.len() < 150 && text.len() < 100_000,
        "{} lines",
        found.len()
    );
    assert!(
        found.iter().any(|line| line["others"] == true),
        "{found:#?}"
    );
    let counted: u64 = found[4..]
        .iter()
        .map(|line| line["repeated"].as_u64().unwrap_or(1))
        .sum();
    assert_eq!(counted, 10_000, "none is left out");
}

/// A pipe without a reader delays no request, and in the end has room for changes.
#[test]
fn a_pipe_that_is_not_read_has_room_for_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let log = AuditLog::open(&path, true).unwrap();
    for n in 0..2000 {
        record(&log, &format!("/v1/probes/read{n}"), "p").end(StatusCode::OK);
    }
    let mut change = record(&log, "/v1/probes/change", "p");
    change.announce().unwrap();
    change.end(StatusCode::OK);
    // Changes fill the pipe, and then the daemon refuses changes.
    let refused = (0..2000)
        .filter(|_| record(&log, "/v1/probes/more", "p").announce().is_err())
        .count();
    assert!(refused > 1000, "{refused}");
    let mut reader = OpenOptions::new()
        .read(true)
        .custom_flags(0o4000)
        .open(&path)
        .unwrap();
    let mut text = vec![0; 1 << 20];
    let length = reader.read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    assert!(
        text.contains("/v1/probes/change") && text.contains("\"begun\":true"),
        "{length} bytes"
    );
    record(&log, "/v1/probes/change", "p").announce().unwrap();
}
