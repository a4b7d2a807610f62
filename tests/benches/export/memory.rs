//! Benchmark of the daemon's memory while it exports a million entries.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::{report, scaled};

use crate::million::{Content, METRICS, Million};

const TARGET_KIB: u64 = 64 << 10;
/// The pause of a slow client after each piece of at most 256 KiB.
const PAUSE: Duration = Duration::from_millis(2);

pub fn run() -> Result<()> {
    report::section(
        "Memory of an export",
        "VmHWM of the daemon during such a GET, reset before each, less the VmRSS of the daemon before the first one. \
         The most of all exports. The slow client pauses for 2 ms after each piece that it has read.",
    );
    report::table(&["table", "client", "exports", "idle, MiB", "peak, MiB", "grows by, MiB", "<= 64 MiB"]);
    for content in Content::ALL {
        let mut million = Million::new(content)?;
        let pid = million.daemon.pid();
        let idle = Resident::of(pid)?.total_kib;
        for (name, pause) in [("fast", None), ("slow", Some(PAUSE))] {
            let exports = scaled(5, 50);
            let mut peak = 0;
            for _ in 0..exports {
                Resident::reset_peak(pid)?;
                million.client.read(METRICS, |_| pause.into_iter().for_each(thread::sleep))?;
                peak = peak.max(Resident::of(pid)?.peak_kib);
            }
            let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
            let growth = peak.saturating_sub(idle);
            report::row(&[
                content.name(),
                name,
                &exports.to_string(),
                &mib(idle),
                &mib(peak),
                &mib(growth),
                report::verdict(growth <= TARGET_KIB),
            ]);
        }
    }
    Ok(())
}
