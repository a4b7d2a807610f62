//! Any number of pairs of interfaces.

use anyhow::Result;
use twinprobe_tests::Topology;

/// Makes pairs of interfaces with both ends in the monitored namespace. Returns their names.
pub fn pairs(topology: &Topology, count: usize) -> Result<Vec<String>> {
    let names: Vec<String> = (0..count.next_multiple_of(2))
        .map(|number| format!("end{number}"))
        .collect();
    for pair in names.chunks(2) {
        topology.monitor().run(
            "ip",
            &[
                "link", "add", &pair[0], "type", "veth", "peer", "name", &pair[1],
            ],
        )?;
    }
    Ok(names)
}
