//! Random sequences of operations on several probes, compared with a model of the expected counts.

use anyhow::Result;
use twinprobe_tests::explore::Limits;
use twinprobe_tests::{model, scaled};

/// The first seed of a usual run.
const USUAL_SEED: u64 = 1004;

#[test]
fn whatever_is_done_every_packet_is_where_it_belongs() -> Result<()> {
    model::explore(&Limits::from_environment(
        USUAL_SEED,
        60,
        scaled(30, 3 * 3600),
    ))
}
