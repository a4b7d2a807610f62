//! Readings on their way to a client. What was taken out of the kernel is kept until a client has taken all of
//! it; a reading whose client went away is given to the next one.

use std::sync::{Arc, Mutex, PoisonError};

use twinprobe_exporter::{Document, Format};

/// Readings that no client has taken to its end, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Undelivered(Arc<Mutex<Vec<Arc<Document>>>>);

/// One reading and the duty to deliver it.
#[derive(Debug)]
pub struct Delivery {
    document: Arc<Document>,
    format: Format,
    undelivered: Undelivered,
}

impl Undelivered {
    /// The oldest reading that no client is taking now.
    pub(super) fn abandoned(&self, format: Format) -> Option<Delivery> {
        let readings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let document = readings.iter().find(|document| Arc::strong_count(document) == 1)?;
        Some(Delivery { document: Arc::clone(document), format, undelivered: self.clone() })
    }

    /// Hands out a reading; one that took nothing out of the kernel need not be `kept`.
    pub(super) fn deliver(&self, document: Document, format: Format, kept: bool) -> Delivery {
        let document = Arc::new(document);
        if kept {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&document));
        }
        Delivery { document, format, undelivered: self.clone() }
    }
}

impl Delivery {
    pub const fn document(&self) -> &Arc<Document> {
        &self.document
    }

    /// What the probe's configuration prefers.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The client has taken everything.
    pub fn complete(self) {
        let mut readings = self.undelivered.0.lock().unwrap_or_else(PoisonError::into_inner);
        readings.retain(|document| !Arc::ptr_eq(document, &self.document));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(probe: &str) -> Document {
        Document { probe: probe.into(), ..Document::default() }
    }

    #[test]
    fn what_was_not_taken_is_given_again_and_what_was_taken_is_not() {
        let undelivered = Undelivered::default();
        let first = undelivered.deliver(reading("1"), Format::Json, true);
        let second = undelivered.deliver(reading("2"), Format::Json, true);
        drop(undelivered.deliver(reading("live"), Format::Json, false));
        assert!(undelivered.abandoned(Format::Json).is_none(), "both are on their way");
        second.complete();
        drop(first);
        let again = undelivered.abandoned(Format::Json).expect("the first was given up");
        assert_eq!(again.document().probe, "1");
        again.complete();
        assert!(undelivered.abandoned(Format::Json).is_none());
    }
}
