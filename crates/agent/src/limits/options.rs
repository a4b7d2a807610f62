//! The limits, as options of `serve`.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use twinprobe_compiler::CompileLimits as Compilation;

#[derive(Clone, Debug, clap::Args)]
pub struct RequestLimits {
    /// The largest number of probes
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_probes: usize,
    /// The most memory of one probe's maps, twins counted twice, and of the maps of all probes;
    /// without ALL, both are the same
    #[arg(
        long,
        value_name = "EACH[,ALL]",
        default_value = "1073741824,4294967296"
    )]
    pub max_map_bytes: EachAndAll,
    /// The room on the disk for one probe's configuration, revisions and compiled sources, and for
    /// those of all probes (without ALL, both are the same); beyond it the daemon removes the
    /// oldest revisions
    #[arg(long, value_name = "EACH[,ALL]", default_value = "67108864,1073741824")]
    pub max_stored_bytes: EachAndAll,
    /// The largest number of a probe's maps, twins counted twice
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub max_maps: u64,
    /// The largest number of programs of all probes, twins counted twice
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_programs: u64,
    /// The largest number of instructions of one direction's code
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    pub max_instructions: u64,
    /// The largest size of a source, or of an object in base64, at most 1 MiB
    #[arg(long, value_name = "BYTES", default_value_t = SOURCE_BYTES,
        value_parser = clap::value_parser!(u64).range(1..=SOURCE_BYTES))]
    pub max_source_bytes: u64,
    /// The largest number of compilations at once; others wait for a while [default: the number of
    /// CPUs, or fewer if there is too little memory]
    #[arg(long, value_name = "N", default_value_t = compilations(), hide_default_value = true)]
    pub max_compilations: NonZeroUsize,
    /// The largest number of probes that the kernel verifies at once; others wait for a while
    /// [default: the number of CPUs]
    #[arg(long, value_name = "N", default_value_t = cpus(), hide_default_value = true)]
    pub max_loads: NonZeroUsize,
    /// The largest number of replays at once, their uploads included; others wait for a while
    #[arg(long, value_name = "N", default_value = "2")]
    pub max_replays: NonZeroUsize,
    /// The largest size of the captures of a replay, compressed and not; during the replay they are
    /// on the disk of the state directory
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub max_capture_bytes: u64,
    /// The largest number of open streams of events and changes, for one client and for all clients
    /// together
    #[arg(long, value_name = "EACH[,ALL]", default_value = "128,1024")]
    pub max_streams: EachAndAll,
    /// The longest time for the kernel to verify and load the programs of a probe
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 30_000)]
    pub max_verification_ms: u64,
    /// The longest time that the probes of all rules may take for a packet, by their trials; an
    /// action that would exceed it is refused
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 2000)]
    pub max_rule_ns_per_packet: u64,
    /// The room that windows leave free on the disk of the state directory, at most a twentieth of
    /// the disk; configurations leave twice as much
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub keep_free_bytes: u64,
    /// The time for which the daemon keeps the history of changes, also of deleted probes; it keeps
    /// at most 1000 changes of each name, and 50000 of all
    #[arg(long, value_name = "TIME", value_parser = time_to_keep, default_value = "90d")]
    pub keep_history: Duration,
}

/// Reads a time like 90d, 12h or 1w.
fn time_to_keep(text: &str) -> Result<Duration, String> {
    let span = text.parse::<Span>().ok();
    let time = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let time = time.and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| {
        format!("{text:?} is not a time such as 90d, 12h, 1w; months have no fixed length")
    })
}

/// The size that a source may have in any case, in bytes: two of them, with escapes, fit into the
/// body of a request.
const SOURCE_BYTES: u64 = 1 << 20;

fn compilations() -> NonZeroUsize {
    NonZeroUsize::new(Compilation::default().at_once).unwrap_or(NonZeroUsize::MIN)
}

fn cpus() -> NonZeroUsize {
    available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// A limit of each, and one of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EachAndAll {
    pub each: u64,
    pub all: u64,
}

impl FromStr for EachAndAll {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse()
                .map_err(|_| format!("{text:?} is not a number"))
        };
        let (each, all) = text.split_once(',').unwrap_or((text, text));
        Ok(Self {
            each: number(each)?,
            all: number(all)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_keep_have_days() {
        let day = 24 * 60 * 60;
        for (text, seconds) in [
            ("90d", 90 * day),
            ("0s", 0),
            ("12h", day / 2),
            ("1w", 7 * day),
        ] {
            assert_eq!(
                time_to_keep(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for bad in ["", "90", "-1d", "1mo", "forever"] {
            assert!(time_to_keep(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_are_one_number_or_two() {
        assert_eq!("7".parse(), Ok(EachAndAll { each: 7, all: 7 }));
        assert_eq!("7,9".parse(), Ok(EachAndAll { each: 7, all: 9 }));
        for bad in ["", ",", "7,", ",7", "7,8,9", "-1", "1MiB"] {
            assert!(bad.parse::<EachAndAll>().is_err(), "{bad}");
        }
    }
}
