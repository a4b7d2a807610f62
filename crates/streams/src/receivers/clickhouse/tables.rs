//! The creation of tables, and the addition of columns.

use std::collections::HashMap;

use super::columns::{ChColumn, ChTable, quoted, text};
use super::server::ChServer;
use crate::receiver::SendError;
use crate::rows::identifier::variant;

/// Makes the database if it is missing. The user needs the right to make a database only if it is
/// missing.
pub async fn ensure_database(server: &ChServer) -> Result<(), SendError> {
    let database = &server.options.database;
    let sql = format!(
        "SELECT 1 FROM system.databases WHERE name = {}",
        text(database)
    );
    if server.ask(&sql).await?.is_empty() {
        server
            .run(&format!(
                "CREATE DATABASE IF NOT EXISTS {}",
                quoted(database)
            ))
            .await?;
    }
    Ok(())
}

/// Makes the table, or adds the columns that it lacks. If a column has another type, a table with
/// another name takes its place. Returns the table, with its final name.
pub async fn ensure(server: &ChServer, mut table: ChTable) -> Result<ChTable, SendError> {
    let Some(conflict) = fit(server, &table).await? else {
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
    match fit(server, &table).await? {
        None => Ok(table),
        Some(conflict) => Err(SendError::new(conflict)),
    }
}

/// Creates or extends the table. Returns the differences that can't be changed.
async fn fit(server: &ChServer, table: &ChTable) -> Result<Option<String>, SendError> {
    let (database, address) = (
        &server.options.database,
        table.address(&server.options.database),
    );
    let mut found = columns(server, table).await?;
    if found.is_empty() {
        // Another stream may have made the table at the same time, with other columns.
        server.run(&table.creation(database)).await?;
        found = columns(server, table).await?;
    }
    let missing = table
        .columns
        .iter()
        .filter(|column| !found.contains_key(&column.name));
    let added: Vec<String> = missing
        .map(|column| format!("ADD COLUMN IF NOT EXISTS {}", column.definition()))
        .collect();
    if !added.is_empty() {
        let conflict = conflict(table, &address, &found);
        if conflict.is_some() {
            return Ok(conflict);
        }
        server
            .run(&format!("ALTER TABLE {address} {}", added.join(", ")))
            .await?;
        found = columns(server, table).await?;
    }
    Ok(conflict(table, &address, &found))
}

/// Returns the types of the columns that a table has, by name; none if there is no such table.
async fn columns(server: &ChServer, table: &ChTable) -> Result<HashMap<String, String>, SendError> {
    let (database, name) = (text(&server.options.database), text(&table.name));
    let sql = format!(
        "SELECT name, type FROM system.columns WHERE database = {database} AND table = {name}"
    );
    let rows = server.ask(&sql).await?.into_iter();
    let cell = |cell: Option<&serde_json::Value>| {
        cell.and_then(|cell| cell.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    Ok(rows
        .map(|row| (cell(row.first()), cell(row.get(1))))
        .collect())
}

/// Returns the mistake in the first column whose type differs.
fn conflict(table: &ChTable, address: &str, found: &HashMap<String, String>) -> Option<String> {
    let other = |column: &&ChColumn| {
        found
            .get(&column.name)
            .is_some_and(|kind| kind != column.kind)
    };
    let ChColumn { name, kind } = table.columns.iter().find(other)?;
    let found = &found[name];
    Some(format!(
        "the column {name} of {address} is {found}, not {kind}; rename that table, or choose another `database`"
    ))
}
