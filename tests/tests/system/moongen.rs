//! Tests of MoonGen's script, run by LuaJIT with a stub of MoonGen's API:
//! `tests/traffic/moongen/stub.lua`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use twinprobe_tests::traffic::{Frame, FrameOptions, Spread};

const FRAME: usize = 60;

/// Runs the script with these arguments in an environment of the stub.
fn run(arguments: &str, environment: &[(&str, &str)]) -> Result<Output> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("traffic/moongen");
    // The stub itself ends a script that hangs; the limit is for a loop in the script.
    Command::new("timeout")
        .args(["60", "luajit", "stub.lua", "syn-sessions.lua"])
        .args(arguments.split_whitespace())
        .envs(environment.iter().copied())
        .current_dir(directory)
        .output()
        .context("start luajit")
}

/// The frames of one queue, in the order sent.
struct Sent {
    device: u8,
    queue: u8,
    frames: Vec<Vec<u8>>,
}

/// Runs the script, which must succeed. Returns the frames of each queue.
fn frames(arguments: &str, environment: &[(&str, &str)]) -> Result<Vec<Sent>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("frames");
    let path = path.to_str().context("a path")?;
    let output = run(arguments, &[environment, &[("STUB_FRAMES", path)]].concat())?;
    let said = said(&output);
    assert!(output.status.success(), "{arguments}: {said}");
    let mut sent: Vec<Sent> = Vec::new();
    for record in fs::read(path)?.chunks(2 + FRAME) {
        let (device, queue) = (record[0], record[1]);
        let frame = record[2..].to_vec();
        match sent
            .iter_mut()
            .find(|sent| (sent.device, sent.queue) == (device, queue))
        {
            Some(sent) => sent.frames.push(frame),
            None => sent.push(Sent {
                device,
                queue,
                frames: vec![frame],
            }),
        }
    }
    let total: usize = sent.iter().map(|sent| sent.frames.len()).sum();
    assert!(
        said.contains(&format!("{total} packets sent\n")),
        "{total} frames, but: {said}"
    );
    Ok(sent)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Checks that frames are those that `traffic` sends, one after the other.
fn assert_same(sent: &Sent, frame: &Frame, spread: &Spread) {
    for (number, sent) in sent.frames.iter().enumerate() {
        let (address, port) = spread.source(number as u64);
        assert_eq!(*sent, frame.from_source(address, port), "packet {number}");
    }
}

#[test]
fn its_frames_are_those_of_traffic() -> Result<()> {
    // The senders send one packet of each session, and then begin with the first sessions again.
    for accepted in ["1000", "5"] {
        let sent = frames("0 --count 25000", &[("STUB_ACCEPT", accepted)])?;
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].frames.len(), 25_000);
        assert_same(&sent[0], &Frame::default(), &Spread::default());
    }
    let options = FrameOptions {
        destination_mac: [0x0a, 1, 2, 3, 4, 0xff],
        source_mac: [0x0e, 0, 0, 0, 0, 9],
        destination: Ipv4Addr::new(255, 255, 1, 254),
        destination_port: 65_535,
        ..FrameOptions::default()
    };
    let spread = Spread {
        addresses: 3,
        ports: 2,
        base_address: Ipv4Addr::new(255, 255, 255, 253),
        base_port: 65_534,
    };
    let sent = frames(
        "1 -a 3 -p 2 --base-address 255.255.255.253 --base-port 65534 -d 255.255.1.254 --destination-port 65535 \
         --mac 0A:01:02:03:04:FF --source-mac 0e-0-0-0-0-9 -n 13",
        &[],
    )?;
    assert_eq!(
        (sent.len(), sent[0].device, sent[0].frames.len()),
        (1, 1, 13)
    );
    assert_same(&sent[0], &Frame::build(&options)?, &spread);
    Ok(())
}

#[test]
fn it_sends_as_many_as_it_is_asked_for_and_ends() -> Result<()> {
    for (arguments, per_queue) in [
        ("0 --count 1", &[1][..]),
        (
            "0 1 --threads 3 --count 1000",
            &[167, 167, 167, 167, 166, 166],
        ),
        // Some senders have nothing to do.
        ("0 1 --threads 2 --count 3", &[1, 1, 1]),
    ] {
        let sent = frames(arguments, &[])?;
        let counts: Vec<usize> = sent.iter().map(|sent| sent.frames.len()).collect();
        assert_eq!(counts, per_queue, "{arguments}");
        for sent in &sent {
            assert_same(sent, &Frame::default(), &Spread::default());
        }
    }
    Ok(())
}

#[test]
fn it_goes_on_until_it_is_interrupted() -> Result<()> {
    let output = run("0 --threads 2", &[("STUB_INTERRUPT", "5000")])?;
    assert!(output.status.success(), "{}", said(&output));
    // The script has not sent as many packets as the user has asked for.
    let output = run("0 --count 9000", &[("STUB_INTERRUPT", "5000")])?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("interrupted before all of 9000 packets"),
        "{}",
        said(&output)
    );
    Ok(())
}

#[test]
fn a_sender_that_fails_ends_the_others_with_an_error() -> Result<()> {
    for arguments in ["0 --threads 3", "0 --threads 3 --count 100000"] {
        let output = run(arguments, &[("STUB_FAIL", "1")])?;
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains("sender 2 has failed"),
            "{arguments}: {}",
            said(&output)
        );
    }
    Ok(())
}

#[test]
fn a_rate_is_kept_without_a_limiter() -> Result<()> {
    // 10 Mbit/s are 19,531 frames of 64 bytes per second: 2,000 of them take 102 ms.
    for (arguments, least) in [
        ("0 --rate 10", 0.102),
        ("0 --rate 10 --threads 4", 0.101),
        ("0 --rate 0.5", 2.04),
    ] {
        let output = run(&format!("{arguments} --count 2000"), &[])?;
        assert!(output.status.success(), "{arguments}: {}", said(&output));
        let said = said(&output);
        let time = said
            .split_once("2000 frames, ")
            .and_then(|(_, rest)| rest.split(' ').next());
        let time: f64 = time.context("the stub says how long it took")?.parse()?;
        // The last burst covers a millisecond and is sent before the end of that time.
        assert!(
            (least - 0.005..least + 0.02).contains(&time),
            "{arguments}: {time} s"
        );
    }
    Ok(())
}

#[test]
fn options_that_make_no_sense_are_refused() -> Result<()> {
    for (arguments, named) in [
        ("", "port"),
        ("zero", "port"),
        ("0.5", "port"),
        ("0 1 0", "port 0 is named twice"),
        ("0 --threads 0", "--threads"),
        ("0 --threads 1.5", "--threads"),
        ("0 --addresses 0", "--addresses"),
        ("0 --addresses 4294967297", "--addresses"),
        (
            "0 --addresses 256 --base-address 255.255.255.1",
            "255.255.255.255",
        ),
        ("0 --ports 0", "--ports"),
        ("0 --ports 65537", "--ports"),
        ("0 --base-port 65500", "65535"),
        ("0 --base-port 65536", "--base-port"),
        ("0 --destination-port 65536", "--destination-port"),
        ("0 --destination-port http", "--destination-port"),
        ("0 --count 1.5", "--count"),
        ("0 --count=-1", "--count"),
        ("0 --count 1e30", "--count"),
        ("0 --count nan", "--count"),
        ("0 --count many", "--count"),
        ("0 --rate=-1", "--rate"),
        ("0 --rate fast", "--rate"),
        ("0 --rate inf", "--rate"),
        ("0 --mac zz", "--mac"),
        ("0 --mac 02:00:00:00:00", "--mac"),
        ("0 --mac 02:00:00:00:00:02:03", "--mac"),
        ("0 --source-mac 02:00:00:00:00:gg", "--source-mac"),
        ("0 --base-address 198.18.0", "--base-address"),
        ("0 --base-address 198.18.0.256", "--base-address"),
        ("0 --base-address 2001:db8::1", "--base-address"),
        ("0 --destination localhost", "--destination"),
        ("0 --speed 3", "--speed"),
    ] {
        let output = run(arguments, &[("STUB_INTERRUPT", "1000")])?;
        assert!(!output.status.success(), "{arguments}: {}", said(&output));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("Error:") && error.contains(named),
            "{arguments}: {error}"
        );
        assert!(
            !said(&output).contains("frames"),
            "{arguments} came as far as sending"
        );
    }
    Ok(())
}

#[test]
fn what_the_machine_lacks_is_an_error() -> Result<()> {
    for (arguments, environment, message) in [
        (
            "0 1 --threads 2",
            &[("STUB_CORES", "4")][..],
            "4 sending threads take 5 cores",
        ),
        ("0 1", &[("STUB_LINKS", "1")], "no link"),
        ("9", &[], "there are only 2 ports"),
    ] {
        let output = run(
            arguments,
            &[environment, &[("STUB_INTERRUPT", "1000")]].concat(),
        )?;
        assert_eq!(
            output.status.code(),
            Some(1),
            "{arguments}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(message),
            "{arguments}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains("0 frames"),
            "{arguments}: {}",
            said(&output)
        );
    }
    Ok(())
}

#[test]
fn help_shows_each_default() -> Result<()> {
    let output = run("--help", &[])?;
    assert!(output.status.success());
    // Lines are broken in other places by MoonGen's version of the parser.
    let help = said(&output)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for (description, default) in [
        ("Source addresses.", "256"),
        ("Source ports per address.", "97"),
        ("First source address.", "198.18.0.0"),
        ("First source port.", "1024"),
        ("Destination address.", "198.19.0.1"),
        ("Destination port.", "80"),
        (
            "Ethernet address of the receiving port.",
            "02:00:00:00:00:02",
        ),
        ("Ethernet address of the sender.", "02:00:00:00:00:01"),
        ("0 is as fast as possible.", "0"),
        ("and one more is needed.", "1"),
        ("0 is until interrupted.", "0"),
    ] {
        assert!(
            help.contains(&format!("{description} (default: {default})")),
            "{description}: {help}"
        );
    }
    assert_eq!(help.matches("(default: ").count(), 11, "{help}");
    Ok(())
}
