//! The HTTP interface of ClickHouse.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::columns::{ChTable, text};
use super::options::ClickhouseOptions;
use crate::http::access::{HttpAccess, HttpAnswer};
use crate::receiver::SendError;
use crate::receivers::kind::ReceiverOptions as _;

/// The most characters of an answer that an error shows.
const SHOWN: usize = 300;
/// The time between two looks at the queries that run on the server.
const LOOK: Duration = Duration::from_millis(50);
/// The limit that keeps the server from splitting an insert: so the table contains all rows of a
/// window, or none.
const UNCUT: &str = "1000000000";
/// The codes of errors, which answers have in the header `X-ClickHouse-Exception-Code`.
const ACCESS_DENIED: &str = "497";
const AUTHENTICATION: [&str; 4] = ["192", "193", "194", "516"];

/// A server.
pub struct ChServer {
    pub options: Arc<ClickhouseOptions>,
    access: HttpAccess,
    url: Url,
    /// The prefix of the ids of this stream's queries.
    queries: String,
}

impl ChServer {
    /// Reads the files that the options name. Contacts no server yet.
    pub fn new(options: &Arc<ClickhouseOptions>, stream: &str) -> Result<Self, SendError> {
        let http = options.http();
        let url = http
            .url
            .parse()
            .map_err(|error| SendError::caused(&http.url, &error))?;
        let (access, queries) = (
            HttpAccess::new(&http)?,
            format!("twinprobe stream {stream} "),
        );
        Ok(Self {
            options: Arc::clone(options),
            access,
            url,
            queries,
        })
    }

    /// Waits for the end of the inserts that run on the server: those of an earlier stream of this
    /// name, or of this one before a failure.
    pub async fn settle(&self) -> Result<(), SendError> {
        let beginning = text(&self.queries);
        let running = format!(
            "SELECT query_id FROM system.processes WHERE startsWith(query_id, {beginning})"
        );
        let names = async || match self.ask(&running).await {
            Ok(rows) => Ok(rows.into_iter().flatten().collect::<HashSet<Value>>()),
            // A user without the right to see queries can't wait. The merges of the tables remove
            // repeated rows.
            Err(error) if error.to_string().contains("ACCESS_DENIED") => Ok(HashSet::new()),
            Err(error) => Err(error),
        };
        let mut found = names().await?;
        while !found.is_empty() {
            tokio::time::sleep(LOOK).await;
            let now = names().await?;
            found.retain(|name| now.contains(name));
        }
        Ok(())
    }

    /// Inserts rows in the format RowBinary. The server ignores an insert whose token it knows.
    pub async fn insert(
        &self,
        table: &ChTable,
        token: &str,
        rows: Vec<u8>,
    ) -> Result<(), SendError> {
        let (address, names) = (table.address(&self.options.database), table.names());
        let sql = format!("INSERT INTO {address} ({names}) FORMAT RowBinary");
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("query", &sql)
            .append_pair("query_id", &format!("{}{token}", self.queries))
            .append_pair("insert_deduplicate", "1")
            .append_pair("insert_deduplication_token", token)
            .append_pair("async_insert", "0")
            .append_pair("max_insert_block_size", UNCUT)
            .append_pair("min_insert_block_size_rows", UNCUT)
            .append_pair("min_insert_block_size_bytes", "0")
            .append_pair("wait_end_of_query", "1");
        self.post(url, rows).await.map(drop)
    }

    /// Returns the rows that a query finds.
    pub async fn ask(&self, sql: &str) -> Result<Vec<Vec<Value>>, SendError> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("default_format", "JSONCompactEachRow")
            .append_pair("output_format_json_quote_64bit_integers", "0")
            .append_pair("wait_end_of_query", "1");
        let answer = self.post(url, sql.into()).await?;
        let lines = answer
            .body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let read = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        read.map_err(|error| {
            SendError::caused(&format!("{}: {sql}", self.options.target()), &error)
        })
    }

    pub async fn run(&self, sql: &str) -> Result<(), SendError> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("wait_end_of_query", "1");
        self.post(url, sql.into()).await.map(drop)
    }

    async fn post(&self, url: Url, body: Vec<u8>) -> Result<HttpAnswer, SendError> {
        let answer = self
            .access
            .post(url, &[("content-type", "application/octet-stream")], body)
            .await?;
        let code = answer
            .headers
            .get("x-clickhouse-exception-code")
            .and_then(|code| code.to_str().ok());
        if answer.status == StatusCode::OK && code.is_none() {
            return Ok(answer);
        }
        let told: String = String::from_utf8_lossy(&answer.body)
            .trim()
            .chars()
            .take(SHOWN)
            .collect();
        let hint = match code {
            Some(code) if AUTHENTICATION.contains(&code) => {
                "; see `user`, `passwordFile` and `cert`"
            }
            Some(ACCESS_DENIED) => {
                "; the user needs SELECT, INSERT, CREATE TABLE and ALTER ADD COLUMN on the database, and CREATE DATABASE unless it is there"
            }
            Some(_) => "",
            None => "; does `url` lead to the HTTP interface of ClickHouse?",
        };
        Err(SendError::new(format!(
            "{}: {} {told}{hint}",
            self.options.target(),
            answer.status
        )))
    }
}
