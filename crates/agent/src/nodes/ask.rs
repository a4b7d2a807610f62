//! The three requests to nodes. Each request consists of one or two GETs of paths in this file, and
//! changes nothing at the node.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::spawn_blocking;
use twinprobe_api::{
    NodeChart, NodeCharts, NodeDocument, NodeDocuments, NodeList, NodeProbe, NodeProblem,
    NodeStatus, ProbeList, ProbeTraffic,
};
use twinprobe_client::{Answer, Client, ClientError, LargestEntries, NamedServer};

use crate::nodes::book::{AnswerRoom, NodeBook, problem};
use crate::nodes::query::{NodeChartQuery, NodeWindowQuery};

const LISTS: AnswerRoom = AnswerRoom {
    each: 4 << 20,
    all: 32 << 20,
};
const CHARTS: AnswerRoom = AnswerRoom {
    each: 4 << 20,
    all: 32 << 20,
};
/// The room for documents. They are parsed without a type, and take several times their size in
/// memory.
const DOCUMENTS: AnswerRoom = AnswerRoom {
    each: 512 << 10,
    all: 8 << 20,
};

impl NodeBook {
    /// Requests the version and the probes of each node.
    pub async fn list(self: &Arc<Self>) -> NodeList {
        let places: Vec<usize> = (0..self.nodes.len()).collect();
        let answers = self.ask(&places, LISTS, probes).await;
        let status = |(
            NamedServer {
                name,
                server,
                labels,
                ..
            },
            answer,
        ): (&NamedServer, Result<ToldProbes, NodeProblem>)| {
            let mut status = NodeStatus {
                name: name.clone(),
                server: server.to_string(),
                labels: labels.clone(),
                problem: None,
                node: String::new(),
                version: String::new(),
                traffic: None,
                probes: Vec::new(),
            };
            match answer {
                Ok(told) => {
                    (status.node, status.version, status.traffic) =
                        (told.node, told.version, told.traffic);
                    status.probes = told.probes;
                }
                Err(problem) => status.problem = Some(problem),
            }
            status
        };
        NodeList {
            nodes: self.nodes.iter().zip(answers).map(status).collect(),
        }
    }

    /// Requests the same chart from nodes.
    pub async fn charts(self: &Arc<Self>, query: NodeChartQuery) -> NodeCharts {
        let NodeChartQuery {
            probe,
            places,
            chart,
        } = query;
        let parameters = chart.parameters();
        let answers = self.ask(&places, CHARTS, async |client| {
            read(client.series(&probe, &parameters).await).await
        });
        let answers = answers.await;
        let shown = places.iter().zip(answers).map(|(place, answer)| {
            let (chart, problem) = parted(answer);
            NodeChart {
                name: self.nodes[*place].name.clone(),
                chart,
                problem,
            }
        });
        NodeCharts {
            nodes: shown.collect(),
        }
    }

    /// Requests the newest window of a probe from nodes, with its largest entries.
    pub async fn windows(self: &Arc<Self>, query: NodeWindowQuery) -> NodeDocuments {
        let NodeWindowQuery { probe, places, top } = query;
        let answers = self
            .ask(&places, DOCUMENTS, async |client| {
                newest(&client, &probe, top).await
            })
            .await;
        let shown = places.iter().zip(answers).map(|(place, answer)| {
            let (document, problem) = parted(answer);
            NodeDocument {
                name: self.nodes[*place].name.clone(),
                document,
                problem,
            }
        });
        NodeDocuments {
            nodes: shown.collect(),
        }
    }
}

/// The list of a node's probes, with few fields.
struct ToldProbes {
    node: String,
    version: String,
    traffic: Option<ProbeTraffic>,
    probes: Vec<NodeProbe>,
}

async fn probes(client: Client) -> Result<ToldProbes, NodeProblem> {
    let ProbeList {
        node,
        version,
        traffic,
        probes,
    } = read(client.probes_and_traffic().await).await?;
    Ok(ToldProbes {
        node,
        version,
        traffic,
        probes: probes.into_iter().map(NodeProbe::from).collect(),
    })
}

async fn newest(client: &Client, probe: &str, top: usize) -> Result<Value, NodeProblem> {
    let status = read(client.status(probe).await).await?;
    let Some(seq) = status.windows.statistics.newest else {
        let detail = "the probe has no window yet".to_owned();
        return Err(NodeProblem {
            detail,
            status: Some(404),
        });
    };
    let largest = LargestEntries {
        top: Some(top),
        by: None,
    };
    read(client.window(probe, seq, "application/json", largest).await).await
}

/// Reads the answer of a node on another thread: some MiB of numbers take a while.
async fn read<T: DeserializeOwned + Send + 'static>(
    answer: Result<Answer<T>, ClientError>,
) -> Result<T, NodeProblem> {
    let answer = answer.map_err(|error| problem(&error))?;
    let content = spawn_blocking(move || answer.read().map_err(|error| problem(&error))).await;
    content.unwrap_or_else(|error| {
        Err(NodeProblem {
            detail: error.to_string(),
            status: None,
        })
    })
}

fn parted<T>(answer: Result<T, NodeProblem>) -> (Option<T>, Option<NodeProblem>) {
    match answer {
        Ok(content) => (Some(content), None),
        Err(problem) => (None, Some(problem)),
    }
}
