//! What was taken out of a map and is kept until a client has it. The one who reads the map writes; those who
//! render follow, and can start before the map has been read to its end.

use std::sync::Arc;

use tokio::sync::watch;
use twinprobe_ebpf_common::RawTable;

/// The rest of a table can't be had.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

#[derive(Debug, Default)]
pub(super) struct Spool(watch::Sender<Content>);

#[derive(Debug, Default)]
struct Content {
    /// As they were read: one after the other they are the table.
    chunks: Vec<Arc<RawTable>>,
    end: End,
}

#[derive(Debug, Default)]
enum End {
    /// There may be more to come.
    #[default]
    Open,
    Complete,
    Failed(Broken),
}

impl Spool {
    /// One that nothing comes into.
    pub fn empty() -> Self {
        let spool = Self::default();
        spool.complete();
        spool
    }

    pub fn push(&self, chunk: &RawTable) {
        self.0.send_modify(|content| content.chunks.push(Arc::new(chunk.clone())));
    }

    pub fn complete(&self) {
        self.end(End::Complete);
    }

    /// Those who follow give up; what was read stays.
    pub fn fail(&self, reason: &str) {
        self.end(End::Failed(Broken(reason.to_owned())));
    }

    /// After a failure: reading goes on.
    pub fn reopen(&self) {
        self.end(End::Open);
    }

    /// Waits for the chunk; `None` after the last one.
    pub async fn chunk(&self, index: usize) -> Result<Option<Arc<RawTable>>, Broken> {
        let mut content = self.0.subscribe();
        let ready = content
            .wait_for(|content| content.chunks.len() > index || !matches!(content.end, End::Open))
            .await
            .map_err(|_| Broken("the reading was given up".into()))?;
        match (ready.chunks.get(index), &ready.end) {
            (Some(chunk), _) => Ok(Some(Arc::clone(chunk))),
            (None, End::Failed(reason)) => Err(reason.clone()),
            (None, _) => Ok(None),
        }
    }

    fn end(&self, end: End) {
        self.0.send_modify(|content| content.end = end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(value: u8) -> RawTable {
        RawTable { values: vec![value], ..RawTable::default() }
    }

    #[tokio::test]
    async fn a_follower_sees_what_was_read_before_and_after_a_failure() {
        let spool = Arc::new(Spool::default());
        spool.push(&chunk(1));
        let early = spool.chunk(0).await.expect("no failure").expect("a chunk");
        assert_eq!(*early, chunk(1));

        let follower = tokio::spawn({
            let spool = Arc::clone(&spool);
            async move { spool.chunk(1).await }
        });
        spool.fail("no memory");
        assert_eq!(follower.await.expect("no panic").expect_err("a failure").0, "no memory");
        assert!(spool.chunk(0).await.is_ok(), "what was read stays");

        spool.reopen();
        spool.push(&chunk(2));
        spool.complete();
        assert_eq!(*spool.chunk(1).await.expect("no failure").expect("a chunk"), chunk(2));
        assert!(spool.chunk(2).await.expect("no failure").is_none());
    }
}
