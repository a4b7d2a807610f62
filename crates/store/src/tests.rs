//! The store alone: commits, errors, versions.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn put(name: &'static str, record: &'static [u8]) -> Change {
    Box::new(move |connection| {
        connection
            .execute(
                "INSERT OR REPLACE INTO probes VALUES (?1, ?2)",
                params![name, record],
            )
            .map(drop)
    })
}

fn names(database: &Database) -> Vec<String> {
    let read = |connection: &Connection| {
        let mut statement = connection.prepare("SELECT name FROM probes ORDER BY name")?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    database.read(read).unwrap()
}

#[test]
fn what_was_committed_is_there_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    database
        .commit(Durable::Now, false, put("a", b"1"))
        .unwrap();
    database
        .commit(Durable::Soon, false, put("b", b"2"))
        .unwrap();
    assert_eq!(names(&database), ["a", "b"]);
    // The process ends without closing the file.
    std::mem::forget(database);
    let database = Database::open(directory.path()).unwrap();
    assert_eq!(names(&database), ["a", "b"]);
    database.close();
    assert_eq!(names(&database), ["a", "b"]);
    let reader = Database::open_to_read(directory.path()).unwrap();
    assert_eq!(
        (reader.check().unwrap(), names(&reader).len()),
        (Vec::new(), 2)
    );
    reader
        .commit(Durable::Now, false, put("c", b"3"))
        .unwrap_err();
}

#[test]
fn one_change_that_fails_keeps_no_other_from_being_made() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let good = database.submit(Durable::Now, false, put("a", b"1"));
    let half = database.submit(
        Durable::Now,
        false,
        Box::new(|connection| {
            connection.execute("INSERT INTO probes VALUES ('half', x'00')", [])?;
            connection
                .execute("INSERT INTO probes VALUES ('half', x'00')", [])
                .map(drop)
        }),
    );
    let other = database.submit(Durable::Now, false, put("b", b"2"));
    database.wait(&other).unwrap();
    database.wait(&good).unwrap();
    database.wait(&half).unwrap_err();
    assert_eq!(names(&database), ["a", "b"]);
}

#[test]
fn changes_that_wait_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let open = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = |name: &'static str| -> Change {
        let open = std::sync::Arc::clone(&open);
        Box::new(move |connection| {
            assert!(!connection.is_autocommit());
            open.fetch_add(1, Ordering::Relaxed);
            put(name, b"1")(connection)
        })
    };
    let tickets = ["a", "b", "c"].map(|name| database.submit(Durable::Now, false, counted(name)));
    database.wait(&tickets[2]).unwrap();
    assert_eq!(
        open.load(Ordering::Relaxed),
        3,
        "the first who waits commits all"
    );
    assert!(tickets.iter().all(|ticket| database.wait(ticket).is_ok()));
}

#[test]
fn a_store_that_is_not_ours_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    drop(Database::open(directory.path()).unwrap());
    let whole = fs::read(&path).unwrap();
    let mut later = whole.clone();
    later[60..64].copy_from_slice(&9_u32.to_be_bytes());
    let mut foreign = whole;
    foreign[68] ^= 1;
    for (bytes, why) in [
        (&later[..], "format 9"),
        (&foreign, "not that of a store"),
        (b"text", "not that of a store"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = Database::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::write(&path, b"").unwrap();
    Database::open(directory.path()).unwrap();
}
