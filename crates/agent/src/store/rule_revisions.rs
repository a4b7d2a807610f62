//! The table `rule_revisions`: the earlier and present documents of rules. A rule and its newest
//! document are stored in one commit.

use serde::{Deserialize, Serialize};
use twinprobe_api::{RuleDocument, RuleRevision};
use twinprobe_store::{Connection, Durable, params};

use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::rules::{StoredRule, write};

/// The number of documents of a rule that are kept, and the size of these documents together in
/// bytes. A rule can always go back by one revision, even if its documents are larger.
const REVISIONS: u64 = 32;
const BYTES: u64 = 4 << 20;
const LEAST: usize = 2;

/// A document of a rule, with the name of its sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredRuleRevision {
    /// RFC 3339.
    pub created: String,
    pub pushed_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub document: RuleDocument,
}

impl StoredRuleRevision {
    /// Returns the document of a rule that is being put.
    pub fn now(rule: &StoredRule, message: Option<String>) -> Self {
        let (pushed_by, document) = (rule.pushed_by.clone(), rule.document.clone());
        Self {
            created: jiff::Timestamp::now().to_string(),
            pushed_by,
            message,
            document,
        }
    }
}

impl Store {
    /// Stores a rule that is put, with its document as the newest revision. If there are too many
    /// revisions, the earliest are removed.
    pub fn put_rule(
        &self,
        name: &str,
        rule: &StoredRule,
        revision: &StoredRuleRevision,
    ) -> Result<(), StoreError> {
        let what = format!("rule {name}");
        let encoded =
            serde_json::to_vec(rule).and_then(|rule| Ok((rule, serde_json::to_vec(revision)?)));
        let (record, document) = encoded.map_err(|error| StoreError::Write {
            what: what.clone(),
            source: error.into(),
        })?;
        let (name, number) = (name.to_owned(), rule.revision);
        let change = move |connection: &Connection| {
            connection
                .prepare_cached("INSERT OR REPLACE INTO rule_revisions VALUES (?1, ?2, ?3)")?
                .execute(params![name, number, document])?;
            drop_oldest(connection, &name, number)?;
            write(connection, &name, &record)
        };
        let written = self.database.commit(Durable::Now, false, Box::new(change));
        written.map_err(|source| StoreError::Write { what, source })
    }

    /// Returns the kept documents of a rule, oldest first. A rule that an earlier version has
    /// stored has its present document.
    pub fn rule_revisions(
        &self,
        name: &str,
        rule: &StoredRule,
    ) -> Result<Vec<RuleRevision>, StoreError> {
        let sql = "SELECT revision, record FROM rule_revisions WHERE name = ?1 AND revision <= ?2 ORDER BY revision";
        let records = self.read("the revisions of a rule", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let row = |row: &twinprobe_store::Row<'_>| {
                Ok((row.get::<_, u64>(0)?, row.get::<_, Vec<u8>>(1)?))
            };
            statement
                .query_map(params![name, rule.revision], row)?
                .collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        let mut found = Vec::new();
        for (revision, record) in records {
            match serde_json::from_slice::<StoredRuleRevision>(&record) {
                Ok(kept) => found.push(shown(revision, rule.revision, kept)),
                Err(error) => {
                    tracing::warn!(rule = name, revision, %error, "a revision can't be read and is left out");
                }
            }
        }
        if !found.last().is_some_and(|last| last.current) {
            let (created, pushed_by) = (rule.created.clone(), rule.pushed_by.clone());
            let document = rule.document.clone();
            let present = StoredRuleRevision {
                created,
                pushed_by,
                message: None,
                document,
            };
            found.push(shown(rule.revision, rule.revision, present));
        }
        Ok(found)
    }
}

fn shown(revision: u64, current: u64, kept: StoredRuleRevision) -> RuleRevision {
    let StoredRuleRevision {
        created,
        pushed_by,
        message,
        document,
    } = kept;
    RuleRevision {
        revision,
        created,
        pushed_by,
        message,
        current: revision == current,
        rule: document,
    }
}

/// Removes the oldest documents of a rule if there are too many, or if they are too large together.
/// `newest` is the number of the last document.
fn drop_oldest(connection: &Connection, name: &str, newest: u64) -> twinprobe_store::Result<()> {
    let sizes: Vec<(u64, u64)> = {
        let sql = "SELECT revision, length(record) FROM rule_revisions WHERE name = ?1 ORDER BY revision DESC";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<twinprobe_store::Result<_>>()?
    };
    let mut bytes = 0;
    let kept = sizes
        .iter()
        .enumerate()
        .take_while(|(index, (revision, size))| {
            bytes += size;
            *index < LEAST || (newest - revision < REVISIONS && bytes <= BYTES)
        });
    let Some((_, (oldest, _))) = kept.last() else {
        return Ok(());
    };
    connection
        .prepare_cached("DELETE FROM rule_revisions WHERE name = ?1 AND revision < ?2")?
        .execute(params![name, oldest])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn rule(revision: u64, text: &str) -> StoredRule {
        let document = json!({ "watch": "p", "when": "true", "do": [{ "mark": format!("{revision}{text}") }] });
        let document = serde_json::from_value(document).unwrap();
        let mut rule = StoredRule::new(document, "uid:0".to_owned(), "admin", "i".to_owned(), 0);
        rule.revision = revision;
        rule
    }

    fn put(store: &Store, revision: u64, text: &str) {
        let rule = rule(revision, text);
        store
            .put_rule(
                "r",
                &rule,
                &StoredRuleRevision::now(&rule, Some(format!("why {revision}"))),
            )
            .unwrap();
    }

    fn kept(store: &Store, revision: u64) -> Vec<u64> {
        let list = store.rule_revisions("r", &rule(revision, "")).unwrap();
        assert_eq!(list.iter().filter(|revision| revision.current).count(), 1);
        list.iter().map(|revision| revision.revision).collect()
    }

    #[test]
    fn the_newest_documents_are_kept_within_their_number_and_size() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Duration::ZERO).unwrap();
        // A rule that an earlier version has stored has only its present document.
        store.keep_rule("r", &rule(7, ""), Durable::Now).unwrap();
        assert_eq!(kept(&store, 7), [7]);
        for revision in 8..=50 {
            put(&store, revision, "");
        }
        assert_eq!(kept(&store, 50), Vec::from_iter(19..=50));
        let list = store.rule_revisions("r", &rule(50, "")).unwrap();
        assert_eq!(list[0].message.as_deref(), Some("why 19"));
        let large = "x".repeat(1 << 20);
        for revision in 51..=54 {
            put(&store, revision, &large);
        }
        assert_eq!(kept(&store, 54), [52, 53, 54]);
        put(&store, 55, &large.repeat(5));
        assert_eq!(kept(&store, 55), [54, 55]);
        store.forget_rule("r").unwrap();
        assert_eq!(kept(&store, 1), [1]);
    }
}
