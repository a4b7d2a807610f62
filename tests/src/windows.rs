//! A client and a collector of windows, and a probe whose windows can be checked to the packet.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http::{self, Address, Response};
use crate::sample::{total, window};
use crate::{
    Daemon,
    wait::{PATIENCE, wait_for},
};

/// An eBPF source that counts packets in several maps and queues serial numbers.
pub const SOURCE: &str = include_str!("../bpf/windows.bpf.c");

/// The maps of [`SOURCE`] that agree in every window.
const COUNTED: [&str; 4] = ["in_array", "in_hash", "in_percpu_array", "in_percpu_hash"];

/// Returns a configuration with [`SOURCE`] at mon0, which drops the packets that it has counted.
/// Its metrics are those of the windows, the cumulative `total` and the live `live`; with `queued`
/// in `defines` also the queue `serials` and the number of serials that did not fit, `unqueued`.
pub fn config(window_config: &Value, defines: &[(&str, &str)]) -> Value {
    let mut metrics: Vec<Value> = COUNTED.iter().map(|map| window(map, map)).collect();
    for metric in metrics.iter_mut().skip(2) {
        metric["agg"] = json!("sum");
    }
    metrics.push(json!({ "name": "total", "map": "total", "snapshot": true }));
    metrics.push(json!({ "name": "live", "map": "live" }));
    if defines.iter().any(|(name, _)| *name == "QUEUED") {
        metrics.push(window("serials", "serials"));
        metrics.push(json!({ "name": "unqueued", "map": ".bss:unqueued" }));
    }
    let mut ingress = json!({ "verdict": "enforce", "source": SOURCE, "defines": { "VERDICT": "XDP_DROP" }, "metrics": metrics });
    for (name, value) in defines {
        ingress["defines"][*name] = json!(value);
    }
    json!({ "interface": "mon0", "ingress": ingress, "window": window_config })
}

/// Returns the number of packets in a window of [`config`].
///
/// # Panics
/// Panics if the window's maps disagree.
pub fn packets(document: &Value) -> u64 {
    let counts = COUNTED.map(|map| total(document, "ingress", map));
    assert_eq!(
        counts,
        [counts[0]; COUNTED.len()],
        "maps disagree in window {}",
        document["window"]
    );
    counts[0]
}

/// Returns the values of a metric of [`config`].
///
/// # Panics
/// Panics if the metric is not in the document, or its values are not numbers.
pub fn values(document: &Value, metric: &str) -> Vec<u64> {
    let entries = document["ingress"][metric]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no {metric} in {document}"));
    entries
        .iter()
        .map(|entry| entry["value"].as_u64().expect("a number"))
        .collect()
}

/// A client of the windows of one probe.
#[derive(Clone, Debug)]
pub struct Windows {
    address: Address,
    path: String,
}

/// A window in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub seq: u64,
    pub start: String,
    pub end: String,
    pub bytes: u64,
}

/// The list of retained windows, with the number of lost ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    pub windows: Vec<Listed>,
    pub lost: u64,
}

impl List {
    pub fn seqs(&self) -> Vec<u64> {
        self.windows.iter().map(|window| window.seq).collect()
    }

    fn parse(document: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let window = |window: &Value| {
            Some(Listed {
                seq: window["seq"].as_u64()?,
                start: text(&window["start"])?,
                end: text(&window["end"])?,
                bytes: window["bytes"].as_u64()?,
            })
        };
        let windows = document["windows"].as_array().context("windows")?;
        let windows: Option<_> = windows.iter().map(window).collect();
        let lost = document["lost_windows"].as_u64();
        Ok(Self {
            windows: windows.with_context(|| format!("a list: {document}"))?,
            lost: lost.with_context(|| format!("lost_windows in {document}"))?,
        })
    }
}

impl Windows {
    /// Makes a client for the probe of this name, which need not exist. It also works with later
    /// daemons on the same socket.
    pub fn of(daemon: &Daemon, probe: &str) -> Self {
        Self::at(daemon.address(), probe)
    }

    /// Makes a client like [`Windows::of`] for the daemon that listens at an address.
    pub fn at(address: Address, probe: &str) -> Self {
        Self {
            address,
            path: format!("/v1/probes/{probe}/windows"),
        }
    }

    pub fn path(&self, seq: u64) -> String {
        format!("{}/{seq}", self.path)
    }

    /// Sends a request. A daemon that answers 503 because it is still starting counts as an error.
    pub fn request(&self, method: &str, path: &str) -> Result<Response> {
        let answer = http::request(&self.address, method, path, &[], b"")?;
        ensure!(answer.status != 503, "the daemon is starting");
        Ok(answer)
    }

    /// Closes a window. Returns the answer with any status.
    pub fn try_close(&self) -> Result<Response> {
        self.request("POST", &self.path)
    }

    /// Closes a window and returns it; panics if that fails.
    #[track_caller]
    pub fn close(&self) -> Value {
        self.try_close().expect("an answer").expect(201).json()
    }

    /// Lists the windows. `query` has no `?`.
    pub fn try_list(&self, query: &str) -> Result<List> {
        let answer = self.request("GET", &format!("{}?{query}", self.path))?;
        ensure!(
            answer.status == 200,
            "{}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        List::parse(&answer.json())
    }

    /// Lists the windows; panics if that fails. `query` has no `?`.
    #[track_caller]
    pub fn list(&self, query: &str) -> List {
        self.try_list(query).expect("a list")
    }

    #[track_caller]
    pub fn seqs(&self) -> Vec<u64> {
        self.list("").seqs()
    }

    /// Reads a window. Returns the answer with any status.
    pub fn try_get(&self, seq: u64) -> Result<Response> {
        self.request("GET", &self.path(seq))
    }

    /// Returns a window's document; panics if there is none.
    #[track_caller]
    pub fn get(&self, seq: u64) -> Value {
        self.try_get(seq).expect("an answer").expect(200).json()
    }

    /// Returns a window in this format (`json`, `xml`, `openmetrics`).
    #[track_caller]
    pub fn bytes(&self, seq: u64, format: &str) -> Vec<u8> {
        let answer = self.request("GET", &format!("{}?format={format}", self.path(seq)));
        answer.expect("an answer").expect(200).body
    }

    /// Begins to read a window and hangs up after this many bytes of the answer, header included.
    /// Returns true if there were that many.
    pub fn read_and_hang_up(&self, method: &str, seq: Option<u64>, bytes: usize) -> Result<bool> {
        let path = seq.map_or_else(|| self.path.clone(), |seq| self.path(seq));
        http::take(&self.address, method, &path, bytes)
    }

    /// Acknowledges windows up to `seq`, for one collector or for all.
    pub fn acknowledge(&self, seq: u64, collector: Option<&str>) -> Result<Response> {
        let query = collector
            .map(|name| format!("?collector={name}"))
            .unwrap_or_default();
        self.request("DELETE", &(self.path(seq) + &query))
    }
}

/// A collector that takes every window once and acknowledges it, even if the daemon is killed
/// meanwhile.
#[derive(Debug)]
pub struct Collector {
    pub windows: Windows,
    pub name: Option<String>,
    /// The last window that the collector has received whole.
    pub taken: u64,
    acknowledged: u64,
}

impl Collector {
    /// Makes a collector that has taken no window yet.
    pub fn new(windows: Windows, name: Option<&str>) -> Self {
        Self {
            windows,
            name: name.map(str::to_owned),
            taken: 0,
            acknowledged: 0,
        }
    }

    /// Takes all new windows, or waits up to `wait` seconds for one, and returns their number. An
    /// error of the connection can be tried again; everything else that is wrong is a panic.
    pub fn round(&mut self, wait: f64, mut take: impl FnMut(&Value)) -> Result<usize> {
        self.settle()?;
        let list = self
            .windows
            .try_list(&format!("after={}&wait={wait}", self.taken))?;
        assert_eq!(list.lost, 0, "windows were lost");
        for (n, window) in list.windows.iter().enumerate() {
            assert_eq!(
                window.seq,
                self.taken + 1,
                "windows are numbered without gaps: {:?}",
                list.seqs()
            );
            let answer = self.windows.try_get(window.seq)?.expect(200).json();
            assert_eq!(answer["window"]["seq"], window.seq);
            assert_eq!(answer["window"].get("lost_windows"), None);
            take(&answer);
            self.taken = window.seq;
            // Some acknowledgements are for one window, some for several.
            if n % 3 == 0 {
                self.settle()?;
            }
        }
        self.settle()?;
        Ok(list.windows.len())
    }

    fn settle(&mut self) -> Result<()> {
        if self.acknowledged < self.taken {
            self.windows
                .acknowledge(self.taken, self.name.as_deref())?
                .expect(204);
            self.acknowledged = self.taken;
        }
        Ok(())
    }
}

/// Waits until the status of a probe's windows is as wanted, and returns it.
pub fn wait_for_status(
    daemon: &Daemon,
    probe: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait_for("the status of the windows", PATIENCE, || {
        let status = daemon.json(&format!("/v1/probes/{probe}"))["windows"].clone();
        ensure!(wanted(&status), "{status}");
        Ok(status)
    })
}
