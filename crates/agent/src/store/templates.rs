//! The table `templates`: configurations that rules deploy.

use serde::{Deserialize, Serialize};
use twinprobe_api::ConfigDocument;
use twinprobe_store::{Connection, Durable, OptionalExtension as _, params};

use crate::store::Store;
use crate::store::error::StoreError;

/// A template in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredTemplate {
    pub revision: u64,
    /// The time when the template was first put, RFC 3339.
    pub created: String,
    /// The time when the present configuration of the template was put, RFC 3339.
    pub changed: String,
    pub pushed_by: String,
    pub config: ConfigDocument,
}

impl Store {
    /// Reads all templates, sorted by name. A template that can't be read is left out, and can be
    /// put again.
    pub fn templates(&self) -> Result<Vec<(String, StoredTemplate)>, StoreError> {
        let records = self.read("the templates", |connection| {
            let mut statement =
                connection.prepare_cached("SELECT name, record FROM templates ORDER BY name")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
            rows.collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        let parsed = records
            .into_iter()
            .map(|(name, record)| parse(&name, &record).map(|found| (name, found)));
        Ok(parsed.flatten().collect())
    }

    /// Reads a template; `None` if there is no template of this name.
    pub fn template(&self, name: &str) -> Result<Option<StoredTemplate>, StoreError> {
        let record = self.read("a template", |connection| {
            let mut statement =
                connection.prepare_cached("SELECT record FROM templates WHERE name = ?1")?;
            statement
                .query_row([name], |row| row.get::<_, Vec<u8>>(0))
                .optional()
        })?;
        Ok(record.and_then(|record| parse(name, &record)))
    }

    pub fn keep_template(&self, name: &str, template: &StoredTemplate) -> Result<(), StoreError> {
        let what = format!("template {name}");
        let encoded = serde_json::to_vec(template);
        let record = encoded.map_err(|error| StoreError::Write {
            what: what.clone(),
            source: error.into(),
        })?;
        let name = name.to_owned();
        let change = move |connection: &Connection| {
            connection
                .prepare_cached("INSERT OR REPLACE INTO templates VALUES (?1, ?2)")?
                .execute(params![name, record])
                .map(drop)
        };
        let written = self.database.commit(Durable::Now, false, Box::new(change));
        written.map_err(|source| StoreError::Write { what, source })
    }

    pub fn forget_template(&self, name: &str) -> Result<(), StoreError> {
        let of = name.to_owned();
        let change = move |connection: &Connection| {
            connection
                .prepare_cached("DELETE FROM templates WHERE name = ?1")?
                .execute([&of])
                .map(drop)
        };
        let written = self.database.commit(Durable::Now, true, Box::new(change));
        written.map_err(|source| StoreError::Write {
            what: format!("the removal of template {name}"),
            source,
        })
    }
}

fn parse(name: &str, record: &[u8]) -> Option<StoredTemplate> {
    let parsed = serde_json::from_slice(record);
    parsed
        .inspect_err(|error| {
            tracing::error!(template = name, %error, "a template can't be read; PUT it again");
        })
        .ok()
}
