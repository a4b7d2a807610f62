//! The state of a connection to a server: the tables that are known to exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::columns::{ChMetric, ChTable, gaps, metric, text, windows};
use super::options::ClickhouseOptions;
use super::server::ChServer;
use super::tables::{ensure, ensure_database};
use crate::receiver::{ItemName, SendError, SeriesName, StreamWindow};

/// A server whose database and fixed tables are there.
pub struct ChLink {
    pub server: ChServer,
    metrics: HashMap<(String, String), Arc<[ChMetric]>>,
    /// For each table and series, the windows that the table already contained when this connection
    /// asked for them. The query covers the windows from the first one that the stream has of the
    /// series.
    held: HashMap<(String, Arc<SeriesName>), HashSet<u64>>,
}

impl ChLink {
    /// Makes the database and the fixed tables if they are missing.
    pub async fn open(options: &Arc<ClickhouseOptions>, stream: &str) -> Result<Self, SendError> {
        let server = ChServer::new(options, stream)?;
        ensure_database(&server).await?;
        for table in [windows(), gaps()] {
            ensure(&server, table).await?;
        }
        server.settle().await?;
        Ok(Self {
            server,
            metrics: HashMap::new(),
            held: HashMap::new(),
        })
    }

    /// Returns the tables of the metrics of a window.
    pub async fn metric_tables(
        &mut self,
        window: &StreamWindow,
    ) -> Result<Arc<[ChMetric]>, SendError> {
        let probe = &window.name.series.probe;
        let place = (probe.clone(), window.shape.digest.clone());
        if let Some(tables) = self.metrics.get(&place) {
            return Ok(Arc::clone(tables));
        }
        let mut tables = Vec::new();
        for shape in &window.shape.metrics {
            let wanted = metric(probe, shape);
            tables.push(ChMetric {
                table: ensure(&self.server, wanted.table).await?,
                ..wanted
            });
        }
        let tables: Arc<[ChMetric]> = tables.into();
        self.metrics.insert(place, Arc::clone(&tables));
        Ok(tables)
    }

    /// Queries which windows a table contains of series that are new to this connection.
    pub async fn look(&mut self, table: &ChTable, names: &[&ItemName]) -> Result<(), SendError> {
        let mut first: HashMap<&Arc<SeriesName>, u64> = HashMap::new();
        for name in names.iter().filter(|name| self.held(table, name).is_none()) {
            let seq = first.entry(&name.series).or_insert(name.seq);
            *seq = name.seq.min(*seq);
        }
        if first.is_empty() {
            return Ok(());
        }
        let conditions = first.iter().map(|(series, seq)| {
            let [node, probe, instance] =
                [&series.node, &series.probe, &series.instance].map(|name| text(name));
            format!("node = {node} AND probe = {probe} AND instance = {instance} AND seq >= {seq}")
        });
        let conditions = conditions.collect::<Vec<_>>().join(" OR ");
        let address = table.address(&self.server.options.database);
        let sql =
            format!("SELECT DISTINCT node, probe, instance, seq FROM {address} WHERE {conditions}");
        let rows = self.server.ask(&sql).await?;
        for series in first.into_keys() {
            self.held
                .insert((table.name.clone(), Arc::clone(series)), HashSet::new());
        }
        for row in rows {
            let cell = |at: usize| {
                row.get(at)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let series = SeriesName {
                node: cell(0),
                probe: cell(1),
                instance: cell(2),
            };
            let held = self.held.get_mut(&(table.name.clone(), Arc::new(series)));
            if let (Some(held), Some(seq)) = (held, row.get(3).and_then(Value::as_u64)) {
                held.insert(seq);
            }
        }
        Ok(())
    }

    /// Tells whether a table contains a window; `None` if this was not queried yet.
    pub fn held(&self, table: &ChTable, name: &ItemName) -> Option<bool> {
        let held = self
            .held
            .get(&(table.name.clone(), Arc::clone(&name.series)))?;
        Some(held.contains(&name.seq))
    }
}
