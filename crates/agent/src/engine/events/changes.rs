//! The messages about changes: the state of each probe, and each newly closed window.

use hyper::body::Bytes;
use serde::Serialize;
use twinprobe_access::{Principal, Role};
use twinprobe_api::ProbeStatus;
use twinprobe_ebpf_common::window::{WindowEntry, WindowStatistics};
use twinprobe_windows::Closed;

/// The first message to a client.
#[derive(Serialize)]
struct Hello<'a> {
    node: &'a str,
    version: &'a str,
    who: String,
    role: Option<String>,
    #[serde(flatten)]
    reach: ConsoleReach,
}

/// The additional sources of the console, for clients that may use them.
#[derive(Debug, Default, Serialize)]
pub struct ConsoleReach {
    /// The server for charts beyond the retained windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// The number of other daemons that the console shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
}

#[derive(Serialize)]
struct RemovedProbe<'a> {
    probe: &'a str,
}

#[derive(Serialize)]
struct ChangedWindow<'a> {
    probe: &'a str,
    window: &'a WindowEntry,
    /// The statistics of the windows; `None` if the probe was removed, as after the last window of
    /// a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<WindowStatistics>,
}

#[derive(Serialize)]
struct Missed {
    windows: u64,
}

/// The status of a probe as clients last received it.
#[derive(Debug, PartialEq, Eq)]
pub struct ToldStatus {
    /// The status without the figures about windows, which come with each window.
    status: String,
    pub windows: WindowStatistics,
}

impl ToldStatus {
    pub fn of(status: &ProbeStatus) -> Self {
        let mut rest = status.clone();
        let windows = std::mem::take(&mut rest.windows.statistics);
        Self {
            status: serde_json::to_string(&rest).unwrap_or_default(),
            windows,
        }
    }
}

/// The first message to a client.
pub fn hello(node: &str, by: &Principal, reach: ConsoleReach) -> Bytes {
    let hello = Hello {
        node,
        version: env!("CARGO_PKG_VERSION"),
        who: by.who.to_string(),
        role: by.role.map(|role| role.to_string()),
        reach: if by.need(Role::Collector).is_ok() {
            reach
        } else {
            ConsoleReach::default()
        },
    };
    message("hello", &hello)
}

pub fn probe(status: &ProbeStatus) -> Bytes {
    message("probe", status)
}

pub fn listed() -> Bytes {
    message("listed", &serde_json::Map::new())
}

pub fn removed(probe: &str) -> Bytes {
    message("removed", &RemovedProbe { probe })
}

pub fn window(closed: &Closed, windows: Option<WindowStatistics>) -> Bytes {
    message(
        "window",
        &ChangedWindow {
            probe: &closed.probe,
            window: &closed.window,
            windows,
        },
    )
}

pub fn missed(windows: u64) -> Bytes {
    message("missed", &Missed { windows })
}

/// Returns a server-sent event.
pub fn message(event: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\ndata: {data}\n\n").into()
}
