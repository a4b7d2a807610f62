//! Messages: a header, and sets of templates or records (RFC 7011, section 3).

use jiff::Timestamp;

const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// The longest message: the length in its header has 16 bits.
pub const LONGEST_MESSAGE: usize = 65_535;

/// Puts records into messages that are no longer than a limit.
#[derive(Debug)]
pub struct MessageWriter {
    limit: usize,
    domain: u32,
    /// The number of data records in the session before the open message.
    sequence: u32,
    /// The number of records in the open message.
    records: u32,
    open: Vec<u8>,
    /// The start of the open set, and its number.
    set: Option<(usize, u16)>,
    finished: Vec<Vec<u8>>,
}

/// The kind of a record. The sequence number counts data records only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Data,
    Template,
}

impl MessageWriter {
    /// Messages have at most `limit` octets, unless one record is longer.
    pub const fn new(limit: usize, domain: u32) -> Self {
        Self {
            limit,
            domain,
            sequence: 0,
            records: 0,
            open: Vec::new(),
            set: None,
            finished: Vec::new(),
        }
    }

    /// Returns the number of octets that a record may have to fit into a message.
    pub const fn room(&self) -> usize {
        self.limit - HEADER - SET_HEADER
    }

    /// Adds a record to the set of this number.
    pub fn add(&mut self, set: u16, record: &[u8], counted: Counted) {
        let header = if self.set.is_some_and(|(_, open)| open == set) {
            0
        } else {
            SET_HEADER
        };
        if self.open.len() + header + record.len() > self.limit {
            self.close();
        }
        if self.open.is_empty() {
            self.open.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(_, open)| open != set) {
            self.close_set();
            self.set = Some((self.open.len(), set));
            self.open.extend(set.to_be_bytes());
            self.open.extend([0, 0]);
        }
        self.open.extend(record);
        if counted == Counted::Data {
            self.records += 1;
        }
    }

    /// Ends the open message. Returns all finished messages.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.close();
        std::mem::take(&mut self.finished)
    }

    fn close_set(&mut self) {
        if let Some((start, _)) = self.set.take() {
            let length = (self.open.len() - start) as u16;
            self.open[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    fn close(&mut self) {
        self.close_set();
        if self.open.is_empty() {
            return;
        }
        let mut message = std::mem::take(&mut self.open);
        let length = message.len() as u16;
        message[..2].copy_from_slice(&VERSION.to_be_bytes());
        message[2..4].copy_from_slice(&length.to_be_bytes());
        message[4..8].copy_from_slice(&(Timestamp::now().as_second() as u32).to_be_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        message[12..16].copy_from_slice(&self.domain.to_be_bytes());
        // The sequence number returns to 0 after 2^32 records.
        self.sequence = self
            .sequence
            .wrapping_add(std::mem::take(&mut self.records));
        self.finished.push(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_within_the_limit_and_count_records_of_data() {
        let mut writer = MessageWriter::new(60, 7);
        writer.add(2, &[1; 8], Counted::Template);
        for _ in 0..5 {
            writer.add(256, &[2; 12], Counted::Data);
        }
        let messages = writer.take();
        let lengths: Vec<usize> = messages.iter().map(Vec::len).collect();
        // The first message has a template and two records, the second three records.
        assert_eq!(lengths, [16 + 12 + 4 + 24, 16 + 4 + 36]);
        let number =
            |message: &[u8], at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
        assert_eq!(
            messages
                .iter()
                .map(|message| number(message, 8))
                .collect::<Vec<_>>(),
            [0, 2]
        );
        assert!(messages.iter().all(|message| number(message, 12) == 7));
        assert_eq!(messages[0][16..20], [0, 2, 0, 12]);
        assert_eq!(messages[0][28..32], [1, 0, 0, 28]);
        writer.add(256, &[2; 12], Counted::Data);
        assert_eq!(number(&writer.take()[0], 8), 5);
    }

    #[test]
    fn a_long_record_has_a_message_of_its_own() {
        let mut writer = MessageWriter::new(60, 0);
        writer.add(256, &[1; 12], Counted::Data);
        writer.add(256, &[1; 100], Counted::Data);
        writer.add(256, &[1; 12], Counted::Data);
        assert_eq!(
            writer.take().iter().map(Vec::len).collect::<Vec<_>>(),
            [32, 120, 32]
        );
    }
}
