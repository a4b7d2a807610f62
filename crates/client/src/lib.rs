//! The REST API of a twinprobe daemon as Rust types and calls. The daemon answers with the types of this crate; the
//! command line makes the calls.

#![forbid(unsafe_code)]

mod answer;
mod captures;
mod client;
mod config;
mod convert;
mod credentials;
mod error;
mod problem;
mod server;
mod status;
mod transport;

pub use answer::{Answer, EventStream};
pub use captures::Captures;
pub use client::{Client, Document, WindowQuery};
pub use config::document::{
    ConfigDocument, DirectionDocument, MergeDocument, MetricDocument, Object, WindowDocument,
};
pub use config::error::ParseError;
pub use config::parse::{parse_document, parse_yaml};
pub use convert::convert::convert;
pub use convert::converted::{ConvertError, Converted, Wishes};
pub use credentials::Credentials;
pub use error::{Cause, ClientError};
pub use problem::hint::hint;
pub use problem::problem::{Problem, finding_line};
pub use reqwest::StatusCode;
pub use server::{Server, ServerError};
pub use status::{
    AttachmentStatus, CostStatus, EventStatus, JoinStatus, LiveCost, MetricReport, ProbeList, ProbeStatus,
    ProgramStatus, Revision, RevisionList, Rollback, SharedMapStatus, SumStatus, ValidationReport,
    WindowStatus, Word,
};
