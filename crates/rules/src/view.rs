//! A window as expressions see it: its document.

use serde_json::Value;
use twinprobe_ebpf_common::Direction;

/// The document of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowView<'a> {
    document: &'a Value,
    seconds: f64,
}

impl<'a> WindowView<'a> {
    /// An error names the missing part of the document.
    pub fn new(document: &'a Value) -> Result<Self, String> {
        let window = &document["window"];
        let seconds = match window["duration_ns"].as_f64() {
            Some(nanoseconds) => nanoseconds / 1e9,
            None => between(window).ok_or("the document has no window with a start and an end")?,
        };
        Ok(Self { document, seconds })
    }

    /// The length of the window.
    pub const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The number of the window, from 1.
    pub fn number(&self) -> f64 {
        self.document["window"]["seq"].as_f64().unwrap_or(0.0)
    }

    pub fn is_approximate(&self) -> bool {
        self.document.get("approximate").is_some()
    }

    pub fn lost(&self) -> f64 {
        self.document["window"]["lost_windows"]
            .as_f64()
            .unwrap_or(0.0)
    }

    /// Returns a metric; null if the window does not have it.
    pub fn metric(&self, direction: Direction, name: &str) -> &'a Value {
        &self.document[direction.name()][name]
    }
}

fn between(window: &Value) -> Option<f64> {
    let time = |name: &str| window[name].as_str()?.parse::<jiff::Timestamp>().ok();
    (time("end")? - time("start")?)
        .total(jiff::Unit::Second)
        .ok()
}
