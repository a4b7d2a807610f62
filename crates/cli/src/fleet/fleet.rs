//! One daemon or many.

use futures_util::future::join_all;
use twinprobe_client::{Client, Credentials, Server};

use crate::error::CommandError;

/// A daemon under the name by which the user knows it.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub server: Server,
    pub client: Client,
}

#[derive(Debug)]
pub struct Fleet {
    nodes: Vec<Node>,
}

impl Fleet {
    /// Prepares the connections to these daemons. Opens none yet.
    pub fn new(servers: Vec<(String, Server)>, credentials: &Credentials) -> Result<Self, CommandError> {
        let node = |(name, server): (String, Server)| {
            Ok(Node { name, client: Client::new(server.clone(), credentials)?, server })
        };
        Ok(Self { nodes: servers.into_iter().map(node).collect::<Result<_, CommandError>>()? })
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
