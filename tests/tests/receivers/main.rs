//! Receivers of `twinprobe stream` against programs of others that read what they get: all agree with the documents.

mod flows;
mod ipfix;
mod ipfix_reading;
