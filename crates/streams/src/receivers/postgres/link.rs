//! A connection to PostgreSQL, and the tables that are known to exist.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::columns::{PgMetric, PgTable, gaps, metric, windows};
use super::options::PostgresOptions;
use super::tables::TableMaker;
use crate::receiver::{SendError, StreamWindow};
use crate::tls::ReceiverTls;

/// The longest time that the opening of a connection may take, or that sent bytes may stay
/// unconfirmed.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open connection. It is closed on drop, even during a statement.
pub struct PgLink {
    pub client: Client,
    task: JoinHandle<()>,
    /// The tables of windows and of gaps.
    pub fixed: Option<(PgTable, PgTable)>,
    /// The tables of the metrics of a probe, by the probe and the digest of the shape.
    pub metrics: HashMap<(String, String), Arc<[PgMetric]>>,
}

impl PgLink {
    /// Connects to the first server that accepts writes.
    pub async fn open(options: &PostgresOptions) -> Result<Self, SendError> {
        let config = configured(options)?;
        let failed = |error| options.failed(&error);
        let (client, task) = if options.is_encrypted() {
            let tls = ReceiverTls {
                ca: options.ca.clone(),
                cert: options.cert.clone(),
                key: options.key.clone(),
            };
            let tls = MakeRustlsConnect::new(Arc::unwrap_or_clone(tls.config()?));
            let (client, connection) = config.connect(tls).await.map_err(failed)?;
            (client, driven(connection))
        } else {
            let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
            (client, driven(connection))
        };
        let link = Self {
            client,
            task,
            fixed: None,
            metrics: HashMap::new(),
        };
        let row = link
            .client
            .query_one("SELECT current_setting('server_encoding')", &[])
            .await;
        let encoding: String = row.and_then(|row| row.try_get(0)).map_err(failed)?;
        if encoding != "UTF8" {
            let database = &options.database;
            let message = format!(
                "the encoding of the database {database} is {encoding}; make one with UTF8"
            );
            return Err(SendError::new(message));
        }
        Ok(link)
    }

    /// Returns the tables of windows and of gaps.
    pub async fn fixed_tables(
        &mut self,
        options: &PostgresOptions,
    ) -> Result<(PgTable, PgTable), SendError> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let made = self.made(options, vec![windows(), gaps()]).await?;
        let [windows, gaps] = <[PgTable; 2]>::try_from(made)
            .map_err(|_| SendError::new("a table for windows and one for gaps are expected"))?;
        self.fixed = Some((windows.clone(), gaps.clone()));
        Ok((windows, gaps))
    }

    /// Returns the tables of the metrics of a window.
    pub async fn metric_tables(
        &mut self,
        options: &PostgresOptions,
        window: &StreamWindow,
    ) -> Result<Arc<[PgMetric]>, SendError> {
        let probe = &window.name.series.probe;
        let place = (probe.clone(), window.shape.digest.clone());
        if let Some(tables) = self.metrics.get(&place) {
            return Ok(Arc::clone(tables));
        }
        let wanted: Vec<PgMetric> = window
            .shape
            .metrics
            .iter()
            .map(|shape| metric(probe, shape))
            .collect();
        let made = self
            .made(
                options,
                wanted.iter().map(|wanted| wanted.table.clone()).collect(),
            )
            .await?;
        let tables: Arc<[PgMetric]> = wanted
            .into_iter()
            .zip(made)
            .map(|(metric, table)| PgMetric { table, ..metric })
            .collect();
        self.metrics.insert(place, Arc::clone(&tables));
        Ok(tables)
    }

    async fn made(
        &mut self,
        options: &PostgresOptions,
        tables: Vec<PgTable>,
    ) -> Result<Vec<PgTable>, SendError> {
        let failed = |error| options.failed(&error);
        let transaction = self.client.transaction().await.map_err(failed)?;
        let maker = TableMaker {
            transaction: &transaction,
            options,
        };
        maker.begin().await?;
        let mut made = Vec::new();
        for table in tables {
            made.push(maker.ensure(table).await?);
        }
        transaction.commit().await.map_err(failed)?;
        Ok(made)
    }
}

impl Drop for PgLink {
    fn drop(&mut self) {
        // A task that waits for the server must not keep the connection open: the server would keep
        // its transaction.
        self.task.abort();
    }
}

fn configured(options: &PostgresOptions) -> Result<Config, SendError> {
    let mut config = Config::new();
    for place in options.places() {
        if place.is_socket() {
            config.host_path(&place.host);
        } else {
            config.host(&place.host);
        }
        config.port(place.port);
    }
    if options.hosts.len() > 1 {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let user = options
        .user
        .clone()
        .or_else(|| std::env::var("PGUSER").ok().filter(|user| !user.is_empty()));
    if let Some(user) = user {
        config.user(user);
    }
    if let Some(path) = &options.password_file {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
        config.password(text.trim_end_matches(['\r', '\n']));
    }
    config
        .dbname(&options.database)
        .application_name("twinprobe stream");
    config
        .connect_timeout(PATIENCE)
        .tcp_user_timeout(PATIENCE)
        .keepalives_idle(PATIENCE);
    config.ssl_mode(if options.is_encrypted() {
        SslMode::Require
    } else {
        SslMode::Disable
    });
    Ok(config)
}

/// Transfers the bytes of a connection until it ends. An error of the connection reaches the task
/// that waits for an answer.
fn driven<S>(connection: Connection<Socket, S>) -> JoinHandle<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    })
}
