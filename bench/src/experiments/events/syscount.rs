//! The tool that only counts: only a table goes to user space, on request.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{HashMap, Map, MapData};
use twinprobe_tests::measure::{Sample, processor_seconds};

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::table::Table;
use crate::scenes::events::consumer::Consumer;
use crate::scenes::events::ledger::process_time;
use crate::scenes::events::ours::PROBE;
use crate::scenes::events::peers::{Process, bcc_command};
use crate::scenes::events::stand::{Load, Stand};
use crate::scenes::events::tool::{Shape, Tool};

/// The number of readings whose mean makes one value. A single short reading takes less than a step
/// of the clock.
const READINGS: u32 = 20;

/// The values of one consumer: the processor time of a reading in microseconds, and that of a
/// packet in nanoseconds.
#[derive(Default)]
struct Values {
    reading: Sample,
    packet: Sample,
    packets: u64,
}

/// Measures the cost of a count for packets and of a reading for each consumer, and checks the
/// counts against the packets.
pub fn measure(bench: &Bench, stand: &Stand, consumers: &[Consumer]) -> Result<Table> {
    let mut table = Table::new(&[
        "hook",
        "consumer",
        "packets, all counted",
        "us CPU for a reading of 256 entries",
        "packet, ns",
    ]);
    let load = Load::Steady {
        rate: 1,
        duration: Duration::from_millis(bench.times(300, 60)),
    };
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let tool = Tool {
            hook,
            shape: Shape::Syscount,
            ring: 0,
            interval: 0,
        };
        let readers = [
            Consumer::Libbpf,
            Consumer::Aya,
            Consumer::Bcc,
            Consumer::Twinprobe,
        ];
        for consumer in readers
            .into_iter()
            .filter(|reader| consumers.contains(reader))
        {
            let mut values = Values::default();
            for _ in 0..bench.rounds(7, 1) {
                if consumer == Consumer::Twinprobe {
                    by_probe(stand, tool, load, &mut values)?;
                } else {
                    by_pin(stand, consumer, tool, load, &mut values)?;
                }
            }
            table.row([
                hook.to_owned(),
                consumer
                    .name()
                    .split(',')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                values.packets.to_string(),
                Estimate::of(&values.reading).show(1),
                Estimate::of(&values.packet).show(1),
            ]);
        }
    }
    Ok(table)
}

fn by_pin(
    stand: &Stand,
    consumer: Consumer,
    tool: Tool,
    load: Load,
    values: &mut Values,
) -> Result<()> {
    let attached = tool.attach(stand.topology.monitor())?;
    let sent = stand.send(load)?;
    let pin = attached.pin("counts");
    let (sum, cpu) = if consumer == Consumer::Aya {
        aya(&pin)?
    } else {
        let mut command = if consumer == Consumer::Bcc {
            bcc_command()
        } else {
            Command::new(&stand.consumer)
        };
        command.arg(&pin).arg("table");
        let mut process = Process::start(command)?;
        let (mut sum, mut cpu) = (0, 0);
        for _ in 0..READINGS {
            let said = process.ask()?;
            sum = said["sum"].as_u64().context("a sum")?;
            cpu += said["cpu"].as_u64().context("a time")?;
        }
        (sum, cpu)
    };
    ensure!(
        sum == sent.packets,
        "{} packets were sent, {} counted {sum}",
        sent.packets,
        consumer.name()
    );
    values.packets += sum;
    values.reading.add(cpu as f64 / 1e3 / f64::from(READINGS));
    values.packet.add(sent.per_packet.context("too short")?);
    Ok(())
}

/// Returns the sum of the counts, and the nanoseconds of all readings.
fn aya(pin: &Path) -> Result<(u64, u64)> {
    let counts: HashMap<_, u32, u64> = HashMap::try_from(Map::HashMap(MapData::from_pin(pin)?))?;
    let begun = process_time();
    let mut sum = 0;
    for _ in 0..READINGS {
        sum = 0;
        for entry in counts.iter() {
            sum += entry?.1;
        }
    }
    Ok((sum, process_time() - begun))
}

fn by_probe(stand: &Stand, tool: Tool, load: Load, values: &mut Values) -> Result<()> {
    let daemon = &stand.daemon;
    daemon.put(PROBE, &tool.config()).expect(201);
    let sent = stand.send(load)?;
    let before = processor_seconds(daemon.pid())?;
    let mut counts = serde_json::Value::Null;
    for _ in 0..READINGS {
        counts = daemon.json(&format!("{PROBE}/metrics"));
    }
    let cpu = processor_seconds(daemon.pid())? - before;
    let entries = counts["ingress"]["counts"]["entries"]
        .as_array()
        .context("entries")?;
    let sum: u64 = entries
        .iter()
        .filter_map(|entry| entry["value"].as_u64())
        .sum();
    ensure!(
        sum == sent.packets,
        "{} packets were sent, {sum} counted",
        sent.packets
    );
    daemon.delete(PROBE).expect(204);
    values.packets += sum;
    values.reading.add(1e6 * cpu / f64::from(READINGS));
    values.packet.add(sent.per_packet.context("too short")?);
    Ok(())
}
