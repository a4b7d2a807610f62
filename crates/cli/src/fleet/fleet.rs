//! One daemon or many.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use twinprobe_client::{Client, Credentials, NamedServer, Server};

use crate::error::CommandError;

/// A daemon under the user's name for it.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub server: Server,
    pub client: Client,
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct Fleet {
    nodes: Vec<Node>,
}

impl Fleet {
    /// Prepares the connections to these daemons. Opens none yet.
    pub fn new(servers: Vec<NamedServer>, credentials: &Credentials) -> Result<Self, CommandError> {
        let node = |NamedServer {
                        name,
                        server,
                        labels,
                        ..
                    }: NamedServer| {
            Ok(Node {
                name,
                client: Client::new(server.clone(), credentials)?,
                server,
                labels,
            })
        };
        Ok(Self {
            nodes: servers
                .into_iter()
                .map(node)
                .collect::<Result<_, CommandError>>()?,
        })
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the only daemon; several are an error of usage.
    pub fn one(&self) -> Result<&Client, CommandError> {
        match &self.nodes[..] {
            [node] => Ok(&node.client),
            nodes => Err(CommandError::OneServer(nodes.len())),
        }
    }

    /// Calls all daemons at the same time.
    pub async fn each<'a, T>(&'a self, call: impl AsyncFn(&'a Node) -> T) -> Vec<T> {
        join_all(self.nodes.iter().map(|node| call(node))).await
    }
}
