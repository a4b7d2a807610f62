//! The answers of all daemons to one question.

use serde_json::{Map, Value};
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::with_causes;

use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;

/// The answers, in the order of the daemons.
#[derive(Debug)]
pub struct NodeAnswers<'a, T> {
    /// An object for each daemon, for programs: its answer, or why it gave none.
    pub values: Vec<Value>,
    /// The names of the daemons that have answered, with their answers.
    pub found: Vec<(&'a str, T)>,
    total: usize,
}

impl<'a, T> NodeAnswers<'a, T> {
    /// Asks all daemons at the same time. `field` is the name of an answer for programs. Daemons
    /// that give none are named on stderr.
    pub async fn ask(
        session: &'a Session,
        field: &str,
        ask: impl AsyncFn(&'a Node) -> Result<(Value, T), ClientError>,
    ) -> Self {
        let nodes = session.fleet.nodes();
        let (mut values, mut found) = (Vec::new(), Vec::new());
        for (node, answer) in nodes.iter().zip(session.fleet.each(ask).await) {
            let mut fields = Map::new();
            fields.insert("server".to_owned(), node.name.clone().into());
            match answer {
                Ok((value, answer)) => {
                    fields.insert(field.to_owned(), value);
                    found.push((node.name.as_str(), answer));
                }
                Err(error) => {
                    print::complain(&format!("{}: {}", node.name, with_causes(&error)));
                    fields.insert("error".to_owned(), with_causes(&error).into());
                }
            }
            values.push(fields.into());
        }
        Self {
            values,
            found,
            total: nodes.len(),
        }
    }

    /// Fails if a daemon gave no answer.
    pub fn ended(&self) -> Result<(), CommandError> {
        let failed = self.total - self.found.len();
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::Nodes {
                failed,
                total: self.total,
            })
        }
    }
}
