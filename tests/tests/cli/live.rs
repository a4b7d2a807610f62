//! `watch` and `top` beside traffic.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::Scene;

#[test]
fn a_watch_closes_the_windows_of_a_probe_without_an_interval() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    let command =
        scene
            .daemon
            .client_command(&["watch", "count", "--interval", "300ms", "-o", "json"]);
    let mut watch = command?
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let stdout = watch.stdout.take().context("stdout")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let (mut seen, mut windows) = (0, 0);
    for round in 1..=3 {
        scene.generator.send(1_000)?;
        // Each packet is in one of the following windows.
        while seen < 1_000 * round {
            let line = lines.next().context("the watch has ended")??;
            let document: Value = serde_json::from_str(&line)?;
            windows += 1;
            assert_eq!(
                document["window"]["seq"], windows,
                "only the watch closes windows, and it shows each"
            );
            seen += document["ingress"]["seen"]["entries"][0]["value"]["packets"]
                .as_u64()
                .unwrap_or_default();
        }
        assert_eq!(seen, 1_000 * round);
    }
    watch.kill()?;
    watch.wait()?;
    Ok(())
}

#[test]
fn a_watch_shows_rates_sorted_once() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    let words = "watch count --interval 1s --sort bytes --top 10 --rate --from now --once";
    let words: Vec<&str> = words.split(' ').collect();
    let watch = scene
        .daemon
        .client_command(&words)?
        .stdout(Stdio::piped())
        .spawn()?;
    // The watch first closes a window of its own.
    wait_for("a window of the watch", PATIENCE, || {
        ensure!(
            !scene.daemon.json("/v1/probes/count")["windows"]["newest"].is_null(),
            "none is closed"
        );
        Ok(())
    })?;
    scene.generator.send(5_000)?;
    let output = watch.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    assert!(
        output.status.success() && text.contains("packets/s") && text.contains(", per second)"),
        "{text}"
    );
    let row = text.lines().last().context("a row")?;
    let rate = row.split_whitespace().nth(1).context("a rate")?;
    let (number, unit) = rate
        .strip_suffix("k/s")
        .map_or((rate, 1.0), |number| (number, 1000.0));
    let rate = number.trim_end_matches("/s").parse::<f64>()? * unit;
    let window = scene.daemon.json("/v1/probes/count/windows/2");
    let packets = window["ingress"]["seen"]["entries"][0]["value"]["packets"]
        .as_f64()
        .context("packets")?;
    let seconds = window["window"]["duration_ns"]
        .as_f64()
        .context("a duration")?
        / 1e9;
    assert!(
        (0.99..=1.01).contains(&(rate * seconds / packets)),
        "{packets} in {seconds} s: {text}"
    );
    let refused = scene.run("metrics count --sort nonsense")?;
    assert!(
        refused.code == 0 || refused.err.contains("there are key, packets, bytes"),
        "{}",
        refused.err
    );
    Ok(())
}

/// A table without rows does not tell its columns, and one metric of several can be shown.
#[test]
fn a_column_of_an_empty_table_and_one_metric_are_chosen() -> Result<()> {
    let scene = Scene::new()?;
    scene.succeed("apply --probe top-talkers --interface mon0");
    // Without packets, only the metric with a fixed entry has columns, and `first` is not one of
    // them.
    scene.succeed("watch top-talkers --interval 300ms --once --sort first");
    let newest = || scene.daemon.json("/v1/probes/top-talkers")["windows"]["newest"].clone();
    let before = newest();
    for (arguments, reason) in [
        (
            "--metric talkers",
            "top-talkers has no metric talkers; it has talker, talkers_all",
        ),
        ("--metric talker -o xml", "table, wide, json and yaml"),
    ] {
        let refused = scene.run(&format!("metrics top-talkers {arguments}"))?;
        ensure!(
            refused.code != 0 && refused.err.contains(reason),
            "{}",
            refused.err
        );
    }
    ensure!(newest() == before, "what is refused closes no window");
    let shown = scene.succeed("metrics top-talkers --metric talkers_all -o json");
    let document: Value = serde_json::from_str(&shown)?;
    for direction in ["ingress", "egress"] {
        let names: Vec<&String> = document[direction]
            .as_object()
            .context(direction)?
            .keys()
            .collect();
        ensure!(names == ["talkers_all"], "{names:?}");
    }
    let table = scene.succeed("metrics top-talkers --metric talkers_all");
    ensure!(
        table.contains("ingress talkers_all") && !table.contains("ingress talker "),
        "{table}"
    );
    Ok(())
}

/// Applies a probe like a user who has logged in with the number 4242 and then calls `sudo`.
/// Returns the number in the kernel: some machines refuse to set it.
fn apply_logged_in(scene: &Scene) -> Result<String> {
    let command = scene
        .daemon
        .client_command(&["apply", "-f", "count.yaml"])?;
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .collect();
    let words = words
        .iter()
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let script =
        "{ echo 4242 > /proc/self/loginuid; } 2> /dev/null; cat /proc/self/loginuid; echo;";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{script} exec {words}")])
        .current_dir(scene.folder.path());
    shell.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = scene.daemon.namespace().enter(|| shell.output())??;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text.lines().next().context("a number")?.to_owned())
}

/// Windows and changes are found by the clock of this machine. Changes show the user that has
/// logged in.
#[test]
fn times_choose_windows_and_changes() -> Result<()> {
    let scene = Scene::new()?;
    let login = apply_logged_in(&scene)?;
    for _ in 0..2 {
        scene.succeed("windows count --close");
    }
    let json =
        |arguments: &str| -> Result<Value> { Ok(serde_json::from_str(&scene.succeed(arguments))?) };
    let all = json("windows count -o json")?;
    let begin = all["windows"][1]["start"]
        .as_str()
        .context("the begin of window 2")?;
    assert_eq!(
        json(&format!("windows count --at {begin} -o json"))?["window"]["seq"],
        2
    );
    assert_eq!(
        json("windows count --from yesterday --to now -o json")?,
        all
    );
    let first = json(&format!("windows count --to {begin} -o json"))?;
    assert_eq!(first["windows"], serde_json::json!([all["windows"][0]]));
    assert_eq!(
        scene.succeed("windows count --to yesterday"),
        "no windows\n"
    );
    assert_eq!(scene.succeed("history --to yesterday"), "no changes\n");
    let changes = json("history count --from yesterday -o json")?;
    let created = &changes["history"][0];
    assert_eq!(created["change"], "created");
    let shown = created["from"]["login"].as_str();
    match login == "4294967295" {
        true => assert_eq!(shown, None, "a service has no login"),
        false => assert!(
            login != "4242" || shown == Some("4242"),
            "{login}: {created}"
        ),
    }
    let table = scene.succeed("series count seen --field packets --from yesterday");
    assert!(!table.contains('Z'), "times are short: {table}");
    assert_eq!(
        scene.succeed("series count --field packets --from yesterday"),
        table,
        "the only metric"
    );
    let missing = scene.run("windows count --at yesterday")?;
    assert!(
        missing.code == 1 && missing.err.contains("the oldest one, window 1, began at"),
        "{}",
        missing.err
    );
    for wrong in [
        "windows count --at soon",
        "series count seen --from 2pm",
        "history --from 25:00",
    ] {
        let refused = scene.run(wrong)?;
        assert!(
            refused.code == 2 && refused.err.contains("`yesterday 14:00`"),
            "{}",
            refused.err
        );
    }
    Ok(())
}

/// Returns the text that a terminal was told to write, without spaces, because spaces that are on
/// the screen already are not written again.
fn written(text: &str) -> String {
    let mut written = String::new();
    for (i, part) in text.split("\u{1b}[").enumerate() {
        let end = part
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(part.len(), |end| end + 1);
        written.push_str(if i == 0 { part } else { &part[end..] });
    }
    written.replace(' ', "")
}

/// A program that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_shows_probes_live_until_q() -> Result<()> {
    let mut scene = Scene::new()?;
    scene.succeed("apply -f count.yaml");
    let command = scene.daemon.client_command(&[])?;
    let line = format!(
        "stty cols 120 rows 20; exec {} top --interval 250ms",
        command.get_program().to_string_lossy()
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm");
    script.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    script.stderr(Stdio::null());
    let mut child = Ended(scene.daemon.namespace().enter(|| script.spawn())??);
    let mut screen = child.0.stdout.take().context("stdout")?;
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            let _ = send.send(piece[..read].to_vec());
        }
    });
    let mut text = String::new();
    let mut wait_for =
        |what: &str, generator: Option<&mut twinprobe_tests::traffic::Generator>| -> Result<()> {
            let begun = Instant::now();
            let mut generator = generator;
            while !text.contains(what) && !written(&text).contains(&what.replace(' ', "")) {
                if begun.elapsed() > PATIENCE {
                    bail!("{what:?} does not come: {text:?}");
                }
                if let Some(generator) = &mut generator {
                    generator.send(1_000)?;
                }
                if let Ok(piece) = receive.recv_timeout(Duration::from_millis(50)) {
                    text.push_str(&String::from_utf8_lossy(&piece));
                }
            }
            text.clear();
            Ok(())
        };
    let mut keys = child.0.stdin.take().context("stdin")?;
    wait_for("mon0 (xdp native)", None)?;
    // Packets per second by thousands: the interfaces are those of this namespace.
    wait_for("k packets/s", Some(&mut scene.generator))?;
    keys.write_all(b"\r")?;
    wait_for("count: 0 entries", None)?;
    keys.write_all(b"?")?;
    wait_for("refresh more often", None)?;
    keys.write_all(b"?")?;
    keys.write_all(b" ")?;
    wait_for("paused", None)?;
    keys.write_all(b"q")?;
    // The screen is given back.
    wait_for("\u{1b}[?1049l", None)?;
    let status = child.0.wait()?;
    assert!(status.success(), "{status}");
    let _ = reader.join();
    let piped = scene.run("top")?;
    assert!(
        piped.code == 1 && piped.err.contains("terminal"),
        "{}",
        piped.err
    );
    Ok(())
}
