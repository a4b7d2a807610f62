//! The records of the log:
//!
//! | bytes | |
//! |---|---|
//! | 4, 1, 1, 2 | mark, kind, form, length of the probe's name |
//! | 8, 8, 8 | generation of the segment, number of the window, length of the content |
//! | 16 | the first half of the SHA-256 of all that comes before and after it in the record |
//! | n, n | the probe's name, the content |
//!
//! Numbers are little-endian. The records of one write begin at a multiple of [`BLOCK`], so that no write touches a
//! block of an earlier one.

use sha2::{Digest as _, Sha256};

use crate::file::directory::Form;

/// The unit of writes, in bytes.
pub const BLOCK: usize = 4096;
const MARK: &[u8; 4] = b"tprc";
const HEAD: usize = 4 + 1 + 1 + 2 + 8 + 8 + 8;
const DIGEST: usize = 16;
/// The longest content that a record may have, in bytes: larger windows are synced by themselves.
pub const LONGEST: usize = 256 * 1024;

/// A change of one probe's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A window's file was written, with this content.
    Written { seq: u64, content: &'a [u8] },
    /// A window's file has this form now.
    Renamed { seq: u64, form: Form },
    /// A window's file was removed.
    Removed { seq: u64 },
    /// `state.json` was replaced.
    State { content: &'a [u8] },
    /// All files were removed together with the probe.
    AllRemoved,
}

/// A change of the files of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub probe: &'a str,
    pub change: Change<'a>,
}

impl<'a> Record<'a> {
    /// Appends the record to `bytes`.
    pub fn encode(&self, generation: u64, bytes: &mut Vec<u8>) {
        let (kind, form, seq, content): (u8, u8, u64, &[u8]) = match self.change {
            Change::Written { seq, content } => (1, 0, seq, content),
            Change::Renamed { seq, form } => (2, number_of(form), seq, &[]),
            Change::Removed { seq } => (3, 0, seq, &[]),
            Change::State { content } => (4, 0, 0, content),
            Change::AllRemoved => (5, 0, 0, &[]),
        };
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(MARK);
        head.extend_from_slice(&[kind, form]);
        head.extend_from_slice(&(self.probe.len() as u16).to_le_bytes());
        for number in [generation, seq, content.len() as u64] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let digest = digest(&head, self.probe.as_bytes(), content);
        for part in [&head, &digest[..], self.probe.as_bytes(), content] {
            bytes.extend_from_slice(part);
        }
    }

    /// Decodes the record at the beginning of `bytes`. Returns it and its length; `None` if there is no whole record of
    /// this generation.
    pub fn decode(bytes: &'a [u8], generation: u64) -> Option<(Self, usize)> {
        let head = bytes.get(..HEAD)?;
        let number =
            |at: usize| head[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        if head[..4] != *MARK || number(8) != generation {
            return None;
        }
        let (kind, form, name) = (head[4], head[5], usize::from(u16::from_le_bytes([head[6], head[7]])));
        let length = usize::try_from(number(24)).ok().filter(|length| *length <= LONGEST)?;
        let content_at = HEAD + DIGEST + name;
        let (probe, content) = bytes.get(HEAD + DIGEST..content_at + length)?.split_at(name);
        if digest(head, probe, content) != bytes[HEAD..HEAD + DIGEST] {
            return None;
        }
        let seq = number(16);
        let change = match kind {
            1 => Change::Written { seq, content },
            2 => Change::Renamed { seq, form: form_of(form)? },
            3 => Change::Removed { seq },
            4 => Change::State { content },
            5 => Change::AllRemoved,
            _ => return None,
        };
        Some((Record { probe: str::from_utf8(probe).ok()?, change }, content_at + length))
    }
}

fn digest(head: &[u8], probe: &[u8], content: &[u8]) -> [u8; DIGEST] {
    let mut digest = Sha256::new();
    [head, probe, content].into_iter().for_each(|part| digest.update(part));
    let mut half = [0; DIGEST];
    half.copy_from_slice(&digest.finalize()[..DIGEST]);
    half
}

const FORMS: [Form; 4] = [Form::Window, Form::Taken, Form::Acked, Form::Damaged];

fn number_of(form: Form) -> u8 {
    FORMS.iter().position(|known| *known == form).map_or(0, |at| at as u8)
}

fn form_of(number: u8) -> Option<Form> {
    FORMS.get(usize::from(number)).copied()
}
