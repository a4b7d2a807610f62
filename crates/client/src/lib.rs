//! The REST API of a twinprobe daemon as calls. The documents are those of the crate `api`; the
//! command line makes the calls.

#![forbid(unsafe_code)]

mod answer;
mod captures;
mod client;
mod convert;
mod credentials;
mod deployed;
mod error;
mod names;
mod notifier;
mod pods;
mod rules;
mod samples;
mod server;
mod transport;

pub use answer::{Answer, EventStream};
pub use captures::Captures;
pub use client::documents::{WindowDocuments, WindowLine};
pub use client::windows::WindowQuery;
pub use client::{Client, Document, LargestEntries};
pub use convert::convert::convert;
pub use convert::converted::{ConvertError, Converted, Wishes};
pub use credentials::Credentials;
pub use deployed::{KnownDeployment, NodeAnswer, WantedProbe, deployed};
pub use error::{ClientError, HttpCause};
pub use notifier::{Notification, NotifyFault, SigningKeys, notify};
pub use reqwest::StatusCode;
pub use samples::answer::{SampleSeries, range_answer};
pub use samples::server::{RangeQuestion, SampleServer};
pub use server::{NamedServer, Server, ServerError};
