//! Tests of the store against real files.

use twinprobe_api::ConfigDocument;

use super::*;

const KEEP_HISTORY: Duration = Duration::from_secs(60);

fn probe(revision: u64, interface: &str) -> StoredProbe {
    let config = ConfigDocument {
        interface: Some(interface.into()),
        ..ConfigDocument::default()
    };
    StoredProbe {
        revision,
        created: "2026-01-01T00:00:00Z".into(),
        instance: Some("4f0c".into()),
        pushed_by: None,
        config,
        lease: None,
        running: None,
    }
}

fn removal(name: &str) -> HistoryEntry {
    let entry = r#"{"time":"2026-01-01T00:00:00Z","probe":"a","change":"removed","revision":1,"instance":"4f0c"}"#;
    HistoryEntry {
        probe: name.to_owned(),
        ..serde_json::from_str(entry).unwrap()
    }
}

/// No change of windows.
fn nothing() -> Change {
    Box::new(|_| Ok(()))
}

/// Writes a record, or a first revision, past the store.
fn put(store: &Store, table: &'static str, name: &'static str, record: &[u8]) {
    let values = if table == "revisions" {
        "?1, 1, ?2"
    } else {
        "?1, ?2"
    };
    let (sql, record) = (
        format!("INSERT OR REPLACE INTO {table} VALUES ({values})"),
        record.to_vec(),
    );
    let change: Change =
        Box::new(move |connection| connection.execute(&sql, params![name, record]).map(drop));
    store.database.commit(Durable::Now, false, change).unwrap();
}

/// Reads a record past the store.
fn record(store: &Store, table: &str, name: &str) -> Vec<u8> {
    let sql = format!("SELECT record FROM {table} WHERE name = ?1");
    store
        .database
        .read(|connection| connection.query_row(&sql, [name], |row| row.get(0)))
        .unwrap()
}

#[test]
fn what_was_committed_is_loaded_and_what_was_not_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    store
        .prepare("a.b", &probe(1, "eth0"), None)
        .unwrap()
        .commit()
        .unwrap();
    store
        .prepare("a.b", &probe(2, "eth1"), None)
        .unwrap()
        .commit()
        .unwrap();
    drop(store.prepare("a.b", &probe(3, "eth3"), None).unwrap());
    drop(store.prepare("other", &probe(1, "eth2"), None).unwrap());
    assert_eq!(
        store.load().unwrap(),
        vec![("a.b".to_owned(), Ok(probe(2, "eth1")))]
    );
    let revisions = store.revisions("a.b", 2).unwrap();
    let numbers: Vec<_> = revisions.iter().map(|r| (r.revision, r.current)).collect();
    assert_eq!(numbers, [(1, false), (2, true)]);
    store.remove(removal("a.b"), nothing()).unwrap();
    store.remove(removal("a.b"), nothing()).unwrap();
    assert!(store.load().unwrap().is_empty());
    assert!(store.revisions("a.b", 2).unwrap().is_empty());
}

#[test]
fn a_second_daemon_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    assert!(matches!(
        Store::open(dir.path(), KEEP_HISTORY),
        Err(StoreError::InUse(_))
    ));
    drop(first);
    Store::open(dir.path(), KEEP_HISTORY).unwrap();
}

#[test]
fn a_damaged_record_is_reported_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    put(&store, "probes", "bad", b"{\"interface\": ");
    let loaded = store.load().unwrap();
    assert!(matches!(&loaded[..], [(name, Err(_))] if name == "bad"));
}

#[test]
fn a_damaged_object_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    let name = store.keep_object(b"elf").unwrap();
    assert_eq!(store.object(&name).unwrap().as_deref(), Some(&b"elf"[..]));
    let path = dir.path().join(format!("objects/{name}.o"));
    fs::write(&path, b"elg").unwrap();
    assert_eq!(store.object(&name).unwrap(), None);
    // A probe that can't be read may use the object.
    put(&store, "probes", "bad", b"{");
    store.sweep_objects();
    assert!(path.exists());
    store.remove(removal("bad"), nothing()).unwrap();
    store.sweep_objects();
    assert!(!path.exists());
}

#[test]
fn a_damaged_object_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    let name = store.keep_object(b"elf").unwrap();
    let path = dir.path().join(format!("objects/{name}.o"));
    for damaged in [&b""[..], b"elg", b"elf and more"] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(store.keep_object(b"elf").unwrap(), name);
        assert_eq!(store.object(&name).unwrap().as_deref(), Some(&b"elf"[..]));
    }
    assert_eq!(fs::read_dir(dir.path().join("objects")).unwrap().count(), 1);
}

#[test]
fn a_damaged_revision_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    for damaged in [&b""[..], b"{\"version\": 1, \"crea", b"{}"] {
        put(&store, "revisions", "a", damaged);
        store
            .prepare("a", &probe(1, "eth0"), None)
            .unwrap()
            .commit()
            .unwrap();
        let revisions = store.revisions("a", 1).unwrap();
        assert_eq!(
            revisions
                .iter()
                .map(|r| r.config.clone())
                .collect::<Vec<_>>(),
            [probe(1, "eth0").config]
        );
    }
}

#[test]
fn what_a_killed_daemon_was_writing_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    let object = format!("objects/{}.o", store.keep_object(b"elf").unwrap());
    store
        .prepare("a", &probe(1, "eth0"), None)
        .unwrap()
        .commit()
        .unwrap();
    drop(store);
    let left = dir.path().join("objects/.new-x");
    fs::write(&left, b"{").unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    assert!(!left.exists() && dir.path().join(object).exists());
    assert_eq!(
        (store.load().unwrap().len(), store.last_revision("a")),
        (1, 1)
    );
}

#[test]
fn an_object_that_cannot_be_read_now_is_not_a_missing_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    let name = store.keep_object(b"elf").unwrap();
    let path = dir.path().join(format!("objects/{name}.o"));
    fs::remove_file(&path).unwrap();
    assert_eq!(store.object(&name).unwrap(), None);
    fs::create_dir(&path).unwrap();
    assert!(store.object(&name).is_err());
}

#[test]
fn what_cannot_be_read_stays_and_what_replaces_it_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), KEEP_HISTORY).unwrap();
    for (content, says) in [
        (&b"garbage"[..], "expected value"),
        (b"{\"version\": 99, \"revision\": 7}", "version 99"),
        (b"{\"version\": \"x\"}", "version"),
        (
            b"{\"revision\": 1, \"config\": {}, \"running\": {}}",
            "deployment",
        ),
    ] {
        put(&store, "probes", "a", content);
        let [(name, Err(Unread(reason)))] = &store.load().unwrap()[..] else {
            panic!("one, unreadable")
        };
        assert!(name == "a" && reason.contains(says), "{reason}");
        store.sweep_objects();
        assert_eq!(record(&store, "probes", "a"), content);
        drop(Store::prepare(&store, "a", &probe(1, "eth0"), None).unwrap());
        assert_eq!(record(&store, "probes", "a"), content);
        store
            .prepare("a", &probe(1, "eth0"), None)
            .unwrap()
            .commit()
            .unwrap();
        assert_eq!(record(&store, "unreadable", "a"), content);
        assert!(matches!(&store.load().unwrap()[..], [(_, Ok(_))]));
    }
    assert_eq!(store.last_revision("a"), 1);
    assert_eq!(store.last_revision("b"), 0);
}
