//! Random objects: their relocations, sections, types and instructions are changed at random. An
//! admitted observing object changes neither frames, nor their metadata, nor their path, nor the
//! filter of another owner.

mod change;

use anyhow::{Context as _, Result, ensure};
use aya::Ebpf;
use aya::maps::Queue;
use aya::programs::tc::TcAttachType;
use aya::programs::{Xdp, XdpMode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use twinprobe_tests::egress::attach_clsact;
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::random::Random;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology, bpf, scaled};

use self::change::change;

const SUBJECT: &str = include_str!("../../bpf/subject.bpf.c");
const WITNESS: &str = include_str!("../../bpf/witness.bpf.c");
const PASS: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nSEC(\"xdp\") int pass(void *ctx) { return 2; }";
/// The forms of the subject.
const FORMS: u64 = 4;
/// The size of the witness's record of a packet.
const NOTED: usize = 9 * 4 + 96;

/// A place where a probe can be attached, and the path of packets to this place.
struct Place {
    name: &'static str,
    interface: &'static str,
    ingress: Value,
    is_tc: bool,
    /// True if packets come from the sink.
    is_backwards: bool,
}

fn places() -> [Place; 3] {
    let place = |name, interface, ingress, is_tc, is_backwards| Place {
        name,
        interface,
        ingress,
        is_tc,
        is_backwards,
    };
    [
        place(
            "native",
            "mon0",
            json!({ "hook": "xdp", "mode": "native" }),
            false,
            false,
        ),
        place(
            "generic",
            "mon1",
            json!({ "hook": "xdp", "mode": "generic" }),
            false,
            true,
        ),
        place(
            "tc",
            "mon0",
            json!({ "hook": "tc", "position": "first" }),
            true,
            false,
        ),
    ]
}

/// Another owner's filter at an interface.
struct Witness {
    ebpf: Ebpf,
    sender: Namespace,
    interface: &'static str,
    /// The filter's notes about the frames without any probe.
    expected: Vec<[u8; NOTED]>,
}

impl Witness {
    /// If `generic` is true, the expected frames are those after another loader's program that does
    /// nothing: generic XDP has packets in other buffers than the network stack.
    fn new(
        monitor: &Namespace,
        at: &str,
        sender: &Namespace,
        interface: &'static str,
        generic: bool,
    ) -> Result<Self> {
        let ebpf = monitor.enter(|| {
            let mut ebpf = bpf::load(WITNESS, &[])?;
            attach_clsact(&mut ebpf, "witness", at, TcAttachType::Ingress, 1000)?;
            anyhow::Ok(ebpf)
        })??;
        let mut witness = Self {
            ebpf,
            sender: sender.clone(),
            interface,
            expected: Vec::new(),
        };
        let mut pass = bpf::load(PASS, &[])?;
        if generic {
            let pass: &mut Xdp = pass.program_mut("pass").context("no program")?.try_into()?;
            pass.load()?;
            monitor.enter(|| pass.attach(at, XdpMode::Skb))??;
        }
        witness.expected = witness.send()?;
        ensure!(
            witness.send()? == witness.expected,
            "the witness notes something that differs by itself"
        );
        // The link is of an interface of that namespace.
        monitor.enter(|| drop(pass))?;
        Ok(witness)
    }

    /// Sends each frame, and returns the filter's records of them.
    fn send(&mut self) -> Result<Vec<[u8; NOTED]>> {
        let frames = frames();
        for frame in &frames {
            send_frames(&self.sender, self.interface, frame, 1)?;
        }
        let mut seen: Queue<_, [u8; NOTED]> =
            self.ebpf.map_mut("seen").context("no map")?.try_into()?;
        let mut noted = Vec::new();
        wait_for(
            "the frames at the filter of another owner",
            PATIENCE,
            || {
                while let Ok(packet) = seen.pop(0) {
                    noted.push(packet);
                }
                ensure!(
                    noted.len() >= frames.len(),
                    "{} of {} frames came",
                    noted.len(),
                    frames.len()
                );
                Ok(())
            },
        )?;
        Ok(noted)
    }
}

/// Frames of several kinds and sizes.
fn frames() -> Vec<Vec<u8>> {
    let frame = |kind: [u8; 2], length: usize| {
        let mut frame: Vec<u8> = (0..length).map(|byte| (byte * 7) as u8).collect();
        frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 2]);
        frame[12..14].copy_from_slice(&kind);
        frame
    };
    vec![frame([0x08, 0x00], 100), frame([0x88, 0xb5], 600)]
}

#[test]
fn objects_by_chance_change_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut witnesses = [
        Witness::new(
            topology.monitor(),
            "mon0",
            topology.generator(),
            "gen0",
            false,
        )?,
        Witness::new(topology.monitor(), "mon1", topology.sink(), "sink0", true)?,
    ];
    let subjects = |defines: &[&str]| -> Result<Vec<Vec<u8>>> {
        let form = |form| {
            let defines = defines
                .iter()
                .map(|name| (*name).to_owned())
                .chain([format!("FORM={form}")]);
            bpf::compile(SUBJECT, &defines.collect::<Vec<_>>())
        };
        (0..FORMS).map(form).collect()
    };
    let (of_xdp, of_tc) = (subjects(&[])?, subjects(&["TC"])?);
    let (places, mut random) = (places(), Random::new());
    let (mut admitted, count) = (0, scaled(2000, 100_000));
    for number in 0..count {
        let place = &places[random.below(places.len() as u64) as usize];
        let subjects = if place.is_tc { &of_tc } else { &of_xdp };
        let mut object = subjects[random.below(FORMS) as usize].clone();
        // The first objects are unchanged.
        let changes = if number < 10 {
            Vec::new()
        } else {
            change(&mut object, &mut random)
        };
        let mut ingress = place.ingress.clone();
        ingress["object"] = STANDARD.encode(&object).into();
        let config = json!({ "interface": place.interface, "ingress": ingress });
        let answer = daemon.put(&format!("/v1/probes/{}", place.name), &config);
        let what = || format!("object {number} at {}, {changes:?}", place.name);
        if answer.status == 422 {
            ensure!(!changes.is_empty(), "{}: {}", what(), answer.text());
            continue;
        }
        ensure!(
            [200, 201].contains(&answer.status),
            "{}: {} {}",
            what(),
            answer.status,
            answer.text()
        );
        admitted += 1;
        let witness = &mut witnesses[usize::from(place.is_backwards)];
        let noted = witness.send().with_context(what)?;
        let differs = noted
            .iter()
            .zip(&witness.expected)
            .position(|(noted, expected)| noted != expected);
        ensure!(
            noted == witness.expected,
            "{}: the filter behind it gets other packets: {:?}",
            what(),
            differs.map(|at| (&noted[at][..36], &witness.expected[at][..36]))
        );
    }
    println!("{admitted} of {count} objects are admitted");
    // The run shows nothing if most of the changed objects are refused, or if most changes have no
    // effect.
    ensure!(
        (count / 20..count * 9 / 10).contains(&admitted),
        "{admitted} of {count} objects are admitted"
    );
    Ok(())
}
