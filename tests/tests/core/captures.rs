//! Captures are replayed by programs as this kernel runs them.

use anyhow::Result;
use serde_json::json;
use twinprobe_tests::replays::{pcap, replay};
use twinprobe_tests::sample::{COUNTER_MAPS, COUNTERS};
use twinprobe_tests::{Daemon, Topology};

use crate::every_kernel::counters;

/// Old kernels run programs on one packet at a time, and each sees the same.
#[test]
fn captures_are_replayed() -> Result<()> {
    const START: u64 = 1_700_000_000_000_000_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    // The low byte of the source port chooses the counter. Frames of several lengths follow each
    // other.
    let frames: Vec<Vec<u8>> = (0..100_u8)
        .map(|number| {
            let mut frame = vec![0; 60 + usize::from(number) * 7];
            (frame[12], frame[35]) = (0x08, number % 10);
            frame
        })
        .collect();
    let capture = pcap(
        frames
            .iter()
            .zip(START..)
            .map(|(frame, time)| (time, &frame[..])),
    );
    for (direction, hook) in [("ingress", "xdp"), ("ingress", "tc"), ("egress", "tc")] {
        let mut config = counters("mon0", direction, hook, None);
        let clock = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n__u64 clock;\n\
             static int now(void) { clock = bpf_ktime_get_ns(); return 0; }\n";
        config[direction]["source"] = json!(format!("{clock}{COUNTERS}"));
        config[direction]["defines"]["VERDICT"] = json!("now()");
        let metrics = config[direction]["metrics"]
            .as_array_mut()
            .expect("metrics");
        metrics.push(json!({ "name": "clock", "map": ".bss:clock" }));
        let document = replay(&daemon, &config, &[("capture", &capture)])
            .expect(200)
            .json();
        assert_eq!(
            document["replayed"],
            json!({ "packets": 100 }),
            "{direction} {hook}"
        );
        for (map, _) in COUNTER_MAPS {
            let entries = document[direction][map]["entries"]
                .as_array()
                .expect("entries");
            let counts = entries
                .iter()
                .filter_map(|entry| entry["value"].as_u64())
                .filter(|count| *count > 0);
            assert_eq!(counts.collect::<Vec<_>>(), [10; 10], "{map}");
        }
        assert_eq!(
            document[direction]["clock"]["entries"][0]["value"],
            START + 99
        );
    }
    Ok(())
}
