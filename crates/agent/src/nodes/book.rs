//! The configured nodes, with a client for each of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use twinprobe_api::NodeProblem;
use twinprobe_client::{Client, ClientError, NamedServer, StatusCode};
use twinprobe_ebpf_common::finding::with_causes;

use crate::nodes::options::{CredentialDigest, NodeCredentials, NodesOptions};

/// The longest wait for the answer of each node.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most requests of clients that are answered at once. The nodes may send answers of some MiB
/// for each.
pub const PLACES: usize = 4;
/// The most characters of a node's own error text that an error shows.
const MOST_WORDS: usize = 300;

/// The memory for the answers to a request, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AnswerRoom {
    /// The most bytes of one answer.
    pub each: usize,
    /// The most bytes of the answers of all nodes together.
    pub all: usize,
}

/// The clients with valid credentials. They are made again once a file of credentials has other
/// content.
#[derive(Debug)]
struct KnownClients {
    digest: CredentialDigest,
    clients: Arc<Vec<Client>>,
}

/// The nodes that the operator has named.
#[derive(Debug)]
pub struct NodeBook {
    pub nodes: Vec<NamedServer>,
    credentials: NodeCredentials,
    known: Mutex<Option<KnownClients>>,
    /// The places for requests, which are shared with the nodes from earlier versions of the file.
    pub places: Arc<Semaphore>,
}

impl NodeBook {
    /// Reads the nodes and the files of credentials. An error names the option, the line and what
    /// is wrong.
    pub fn open(options: &NodesOptions, places: Arc<Semaphore>) -> Result<Self, String> {
        let (nodes, credentials) = (options.read()?, options.credentials.clone());
        let book = Self {
            nodes,
            credentials,
            known: Mutex::new(None),
            places,
        };
        book.clients()?;
        Ok(book)
    }

    /// Returns a client for each node. Reads the files of credentials.
    fn clients(&self) -> Result<Arc<Vec<Client>>, String> {
        let (credentials, digest) = self.credentials.read()?;
        let mut known = self.known.lock();
        if let Some(KnownClients { clients, .. }) =
            known.as_ref().filter(|known| known.digest == digest)
        {
            return Ok(Arc::clone(clients));
        }
        let clients = Client::many(self.nodes.iter().map(|node| &node.server), &credentials);
        let clients = Arc::new(clients.map_err(|error| with_causes(&error))?);
        *known = Some(KnownClients {
            digest,
            clients: Arc::clone(&clients),
        });
        Ok(clients)
    }

    /// Sends requests to nodes, which are given by their places, all at once. Each node has its own
    /// time limit, so that a node that hangs delays no other answer.
    pub async fn ask<T, F>(
        self: &Arc<Self>,
        places: &[usize],
        room: AnswerRoom,
        question: impl Fn(Client) -> F,
    ) -> Vec<Result<T, NodeProblem>>
    where
        F: Future<Output = Result<T, NodeProblem>>,
    {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let book = Arc::clone(self);
        let clients = spawn_blocking(move || book.clients()).await;
        let clients = clients.unwrap_or_else(|error| Err(error.to_string()));
        let clients = match clients {
            Ok(clients) => clients,
            Err(detail) => {
                let problem = NodeProblem {
                    detail,
                    status: None,
                };
                return places.iter().map(|_| Err(problem.clone())).collect();
            }
        };
        let most = room.each.min(room.all / places.len().max(1));
        let asked = places
            .iter()
            .map(|place| timeout(PATIENCE, question(clients[*place].clone().taking(most))));
        let late = |_| {
            let detail = format!("it has not answered within {} s", PATIENCE.as_secs());
            Err(NodeProblem {
                detail,
                status: None,
            })
        };
        join_all(asked)
            .await
            .into_iter()
            .map(|answer| answer.unwrap_or_else(late))
            .collect()
    }
}

/// Returns the reason why a node gives no answer, in few words, and what to do.
pub fn problem(error: &ClientError) -> NodeProblem {
    let (status, words) = match error {
        ClientError::Refused(problem) => {
            let words = if problem.detail.is_empty() {
                &problem.title
            } else {
                &problem.detail
            };
            (StatusCode::from_u16(problem.status).ok(), words.clone())
        }
        ClientError::Connect { server, source } => {
            (None, format!("{server} can't be reached: {source}"))
        }
        error => (None, with_causes(error)),
    };
    let words: String = words
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(MOST_WORDS)
        .collect();
    let advice = match status {
        Some(StatusCode::UNAUTHORIZED) => "; see --nodes-token-file of this daemon",
        Some(StatusCode::FORBIDDEN) => {
            "; --nodes-token-file of this daemon needs a token of that role"
        }
        _ => "",
    };
    NodeProblem {
        detail: format!("{words}{advice}"),
        status: status.map(|status| status.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_api::Problem;

    use super::*;

    #[test]
    fn problems_have_the_words_of_the_node_and_say_what_to_do() {
        let refused = |status, words: &str| {
            problem(&ClientError::Refused(Box::new(Problem::new(status, words))))
        };
        let long = refused(StatusCode::NOT_FOUND, &"there  is no probe\n".repeat(90));
        assert_eq!(
            (long.status, long.detail.chars().count()),
            (Some(404), MOST_WORDS)
        );
        assert!(long.detail.starts_with("there is no probe there"));
        assert!(
            refused(StatusCode::UNAUTHORIZED, "wrong")
                .detail
                .contains("wrong; see --nodes-token-file")
        );
        assert!(
            refused(StatusCode::FORBIDDEN, "no")
                .detail
                .contains("needs a token of that role")
        );
        let large = problem(&ClientError::TooLarge {
            call: "GET /x".to_owned(),
            most: 7,
        });
        assert_eq!(
            (large.status, &*large.detail),
            (None, "the answer to GET /x has more than 7 bytes")
        );
    }
}
