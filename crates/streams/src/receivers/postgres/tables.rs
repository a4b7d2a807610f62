//! Tables that are made, and that get new columns.

use std::collections::HashMap;

use tokio_postgres::Transaction;

use super::columns::{PgColumn, PgTable};
use super::options::PostgresOptions;
use crate::receiver::SendError;
use crate::rows::identifier::{quoted, variant};

/// The statement for the lock with which only one stream at a time changes tables.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('twinprobe stream'))";
const SCHEMA: &str = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
const COLUMNS: &str = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute \
    JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace \
    WHERE nspname = $1 AND relname = $2 AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped";

/// Creates missing tables and columns, in a separate transaction.
pub struct TableMaker<'a> {
    pub transaction: &'a Transaction<'a>,
    pub options: &'a PostgresOptions,
}

impl TableMaker<'_> {
    /// Waits for other streams, and makes the schema if it is missing.
    pub async fn begin(&self) -> Result<(), SendError> {
        self.run(LOCK).await?;
        let schema = &self.options.schema;
        let found = self.transaction.query_opt(SCHEMA, &[schema]).await;
        // PostgreSQL requires the right to make a schema even if the schema exists, so this
        // function first checks whether it does.
        match found.map_err(|error| self.options.failed(&error))? {
            Some(_) => Ok(()),
            None => self.run(&format!("CREATE SCHEMA {}", quoted(schema))).await,
        }
    }

    /// Makes the table, or adds the columns that it lacks. If a column has another type, a table
    /// with another name takes its place. Returns the table with its present name.
    pub async fn ensure(&self, mut table: PgTable) -> Result<PgTable, SendError> {
        let Some(conflict) = self.fit(&table).await? else {
            return Ok(table);
        };
        if !table.has_variants {
            return Err(SendError::new(conflict));
        }
        let layout: String = table
            .columns
            .iter()
            .map(|column| format!("{}\n", column.definition()))
            .collect();
        table.name = variant(&table.name, &layout);
        match self.fit(&table).await? {
            None => Ok(table),
            Some(conflict) => Err(SendError::new(conflict)),
        }
    }

    /// Creates or extends the table. Returns the differences that can't be changed.
    async fn fit(&self, table: &PgTable) -> Result<Option<String>, SendError> {
        let (schema, address) = (&self.options.schema, table.address(&self.options.schema));
        let rows = self
            .transaction
            .query(COLUMNS, &[schema, &table.name])
            .await;
        let mut found: HashMap<String, String> = HashMap::new();
        for row in rows.map_err(|error| self.options.failed(&error))? {
            let cell = |at| {
                row.try_get::<_, String>(at)
                    .map_err(|error| self.options.failed(&error))
            };
            found.insert(cell(0)?, cell(1)?);
        }
        if found.is_empty() {
            self.run(&table.creation(schema)).await?;
            return Ok(None);
        }
        let other = |column: &&PgColumn| {
            found
                .get(&column.name)
                .is_some_and(|kind| kind != column.kind)
        };
        if let Some(column) = table.columns.iter().find(other) {
            let (name, found, kind) = (&column.name, &found[&column.name], column.kind);
            let message = format!(
                "the column {name} of {address} is {found}, not {kind}; rename that table, or choose another `schema`"
            );
            return Ok(Some(message));
        }
        let missing = table
            .columns
            .iter()
            .filter(|column| !found.contains_key(&column.name));
        let added: Vec<String> = missing
            .map(|column| format!("ADD COLUMN IF NOT EXISTS {}", column.definition()))
            .collect();
        if !added.is_empty() {
            self.run(&format!("ALTER TABLE {address} {}", added.join(", ")))
                .await?;
        }
        Ok(None)
    }

    async fn run(&self, sql: &str) -> Result<(), SendError> {
        self.transaction
            .batch_execute(sql)
            .await
            .map_err(|error| self.options.failed(&error))
    }
}
