//! Tests of the commands `twinprobe windows` and `twinprobe watch`.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::packets;
use twinprobe_tests::{Daemon, DaemonOptions};

use crate::scene::{PROBE, Scene};

impl Scene {
    /// Returns the output of a command that succeeds, else its status and error.
    fn run(&self, arguments: &str) -> Result<String, (i32, String)> {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let output = self.daemon.client(&arguments).expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        match output.status.code() {
            Some(0) => Ok(text(output.stdout)),
            code => Err((code.unwrap_or(-1), text(output.stderr))),
        }
    }
}

/// A running `watch`, killed on drop.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(daemon: &Daemon, arguments: &str) -> Result<Self> {
        let arguments: Vec<&str> = ["watch", "p"]
            .into_iter()
            .chain(arguments.split_whitespace())
            .collect();
        let mut command = daemon.client_command(&arguments)?;
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("no more lines")??)
    }

    fn window(&mut self) -> Result<(u64, u64)> {
        let document: Value = serde_json::from_str(&self.line()?)?;
        Ok((
            document["window"]["seq"].as_u64().context("seq")?,
            packets(&document),
        ))
    }

    fn interrupt(&self) {
        // SAFETY: no pointers are passed; the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
    }

    /// Waits for the end. Returns the exit status, the unread lines and the errors.
    fn end(mut self) -> Result<(Option<i32>, Vec<String>, String)> {
        wait_for("the end of watch", PATIENCE, || {
            self.child.try_wait()?.context("it goes on")
        })?;
        let mut complaint = String::new();
        self.child
            .stderr
            .take()
            .context("stderr")?
            .read_to_string(&mut complaint)?;
        let rest = self.lines.by_ref().collect::<Result<_, _>>()?;
        Ok((self.child.wait()?.code(), rest, complaint))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn windows_are_listed_shown_closed_and_acknowledged() -> Result<()> {
    let mut scene = Scene::new(&json!({ "retain": 3, "collectors": ["a", "b"] }))?;
    assert_eq!(scene.run("windows p"), Ok("no windows\n".to_owned()));
    for count in 1..=4 {
        scene.close(count)?;
    }
    let table = scene.run("windows p").expect("a table");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["SEQ", "START", "END", "DURATION", "BYTES"]
    );
    assert!(
        lines.len() == 5 && lines[1].trim().starts_with("2 "),
        "{table}"
    );
    assert_eq!(lines[4], "1 window was lost before it was acknowledged");
    let list: Value =
        serde_json::from_str(&scene.run("windows p --after 3 -o json").expect("a list"))?;
    assert_eq!(
        (&list["windows"][0]["seq"], &list["lost_windows"]),
        (&json!(4), &json!(0))
    );
    for (option, format) in [
        ("json", "json"),
        ("xml", "xml"),
        ("openmetrics", "openmetrics"),
    ] {
        let shown = scene
            .run(&format!("windows p --get 3 -o {option}"))
            .expect("a document");
        assert_eq!(
            shown.trim_end(),
            String::from_utf8(scene.windows.bytes(3, format))?.trim_end(),
            "{option}"
        );
    }
    let shown = scene.run("windows p --get 3").expect("a table");
    assert!(
        shown.starts_with("window 3: ") && shown.contains("ingress in_array (array)"),
        "{shown}"
    );
    scene.generator.send(5)?;
    let closed: Value =
        serde_json::from_str(&scene.run("windows p --close -o json").expect("a document"))?;
    assert_eq!((&closed["window"]["seq"], packets(&closed)), (&json!(5), 5));
    scene
        .run("windows p --ack 4 --collector a")
        .expect("acknowledged");
    let left = scene
        .run("windows p --collector a -o json")
        .expect("a list");
    assert!(
        left.contains("\"seq\":5") && !left.contains("\"seq\":4"),
        "{left}"
    );
    scene.run("windows p --ack 5").expect("acknowledged");
    assert_eq!(scene.windows.seqs(), [0; 0]);
    for (arguments, status, reason) in [
        ("windows p --get 3", 1, "acknowledged"),
        ("windows p --get 77", 1, "77"),
        ("windows p --ack 77", 1, "5"),
        ("windows p --ack 5 --collector c", 1, "collector c"),
        ("windows q", 1, "no probe named q"),
        ("windows q --close", 1, "no probe named q"),
        ("watch q", 1, "no probe named q"),
        ("windows p -o xml", 2, "--get"),
        ("windows p --get 1 --ack 1", 2, "--ack"),
        ("watch", 2, "NAME"),
    ] {
        let (code, complaint) = scene.run(arguments).expect_err(arguments);
        assert!(
            code == status && complaint.contains(reason),
            "{arguments}: {code}, {complaint}"
        );
    }
    scene.bystanders.finish()
}

/// A watch prints the retained windows and each new one once, through restarts, and the next watch
/// continues after it.
#[test]
fn a_watch_prints_each_window_once_through_restarts() -> Result<()> {
    let mut scene = Scene::new(&json!({ "collectors": ["a"] }))?;
    scene.close(1)?;
    scene.close(2)?;
    let mut watch = Watch::start(&scene.daemon, "-o json --ack --collector a")?;
    for seq in 1..=8 {
        if seq > 2 {
            scene.close(seq)?;
        }
        assert_eq!(watch.window()?, (seq, seq));
        if let Some(signal) = [(4, libc::SIGTERM), (6, libc::SIGKILL)]
            .iter()
            .find_map(|(at, s)| (*at == seq).then_some(*s))
        {
            scene.daemon = scene.daemon.restart(signal, &DaemonOptions::default())?;
        }
    }
    wait_for("the acknowledgement", PATIENCE, || {
        ensure!(
            scene.windows.seqs().is_empty(),
            "{:?}",
            scene.windows.seqs()
        );
        Ok(())
    })?;
    watch.interrupt();
    let (status, rest, complaint) = watch.end()?;
    assert_eq!((status, rest), (Some(0), vec![]), "{complaint}");
    assert!(complaint.contains("trying again"), "{complaint}");
    // Another watch continues after the same window. Without --ack it acknowledges nothing.
    scene.close(9)?;
    for _ in 0..2 {
        let mut watch = Watch::start(&scene.daemon, "-o json --collector a")?;
        assert_eq!(watch.window()?, (9, 9));
    }
    scene.close(10)?;
    let mut watch = Watch::start(&scene.daemon, "--after 9")?;
    assert!(watch.line()?.starts_with("window 10: "));
    scene.daemon.delete(PROBE).expect(204);
    let (status, _, complaint) = watch.end()?;
    assert_eq!(status, Some(1));
    assert!(complaint.contains("probe p was deleted"), "{complaint}");
    scene.bystanders.finish()
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() -> Result<()> {
    let mut scene = Scene::new(&json!({}))?;
    scene.close(1)?;
    let mut child = scene
        .daemon
        .client_command(&["watch", "p", "-o", "json", "--ack"])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(child.stdout.take().context("stdout")?);
    let mut line = String::new();
    out.read_line(&mut line)?;
    drop(out);
    wait_for("the first acknowledgement", PATIENCE, || {
        ensure!(scene.windows.seqs().is_empty());
        Ok(())
    })?;
    scene.close(2)?;
    let output = child.wait_with_output()?;
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).as_ref()
        ),
        (Some(0), "")
    );
    // No client has read the window.
    assert_eq!(scene.windows.seqs(), [2]);
    scene.bystanders.finish()
}
