//! Credentials that come and go while clients use them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::http::{self, Address};
use twinprobe_tests::wait::{EndOnDrop, PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

use crate::guarded::{Scene, Token, Tokens};

const CLIENTS: usize = 64;

/// A new token is added, clients change over to it, and the old one is removed. No request of a
/// valid token fails, and no connection ends.
#[test]
fn tokens_are_exchanged_while_64_clients_read() -> Result<()> {
    let mut old = Token::new("reader", "viewer")?;
    let scene = Scene::new(&[&old], DaemonOptions::default())?;
    let current = RwLock::new(old.header().1);
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| -> Result<()> {
        let _end = EndOnDrop(&ended);
        let (scene, current, ended, answered) = (&scene, &current, &ended, &answered);
        let read = move || -> Result<()> {
            scene.namespace().enter(|| -> Result<()> {
                while !ended.load(Ordering::Acquire) {
                    let token = current.read().expect("no panic");
                    let header = [("authorization", &**token)];
                    let answer =
                        http::request(&Address::Tcp(scene.tcp), "GET", "/v1/probes", &header, b"")?;
                    ensure!(
                        answer.status == 200,
                        "{}",
                        String::from_utf8_lossy(&answer.body)
                    );
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })?
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(read)).collect();
        let mut kept = Kept::connect(scene)?;
        for round in 0..scaled(8, 80) {
            let new = Token::new("reader", "viewer")?;
            scene.tokens.write(&[&old, &new])?;
            scene.reload()?;
            kept.get(&old, 200)?;
            // Waits for the requests under way, which have the old token.
            *current.write().expect("no panic") = new.header().1;
            if round % 2 == 0 {
                // A file with a mistake changes nothing.
                fs::write(
                    &scene.tokens.path,
                    format!("{}\nreader viewer 12\n", new.line),
                )?;
                scene.reload()?;
                kept.get(&old, 200)?;
            }
            scene.tokens.write(&[&new])?;
            scene.reload()?;
            kept.get(&new, 200)?;
            kept.get(&old, 401)?;
            let before = answered.load(Ordering::Relaxed);
            wait_for("clients go on", PATIENCE, || {
                ensure!(
                    answered.load(Ordering::Relaxed) > before + 64
                        || clients.iter().any(|c| c.is_finished())
                );
                Ok(())
            })?;
            old = new;
        }
        ended.store(true, Ordering::Release);
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("no panic"))
    })
}

/// A connection that is used for one request after the other.
struct Kept(TcpStream);

impl Kept {
    fn connect(scene: &Scene) -> Result<Self> {
        Ok(Self(
            scene
                .namespace()
                .enter(|| TcpStream::connect(scene.tcp))??,
        ))
    }

    fn get(&mut self, token: &Token, status: u16) -> Result<()> {
        let (name, value) = token.header();
        write!(
            self.0,
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\n{name}: {value}\r\n\r\n"
        )?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0
                .read_exact(&mut byte)
                .context("the connection has ended")?;
            head.extend(byte);
        }
        let head = String::from_utf8(head)?.to_ascii_lowercase();
        ensure!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .context("a length")?;
        self.0.read_exact(&mut vec![0; length.parse()?])?;
        Ok(())
    }
}

/// Mistakes are reported with their line and without the text, which may be a secret.
#[test]
fn a_file_with_a_mistake_changes_nothing() -> Result<()> {
    let token = Token::new("a", "viewer")?;
    let scene = Scene::new(&[&token], DaemonOptions::default())?;
    let (name, value) = token.header();
    let known = || {
        scene
            .over_tcp("GET", "/v1/probes", &[(name, &value)], b"")
            .status
    };
    let secret = "tp_secret-in-the-wrong-place";
    for (content, says) in [
        (
            format!("# nobody\n\nb admin {secret}\n"),
            "line 3: the third word",
        ),
        (
            format!("{secret}\n"),
            "line 1: a line is NAME ROLE SHA256HEX",
        ),
        (
            format!("b root {}\n", &token.line[9..]),
            "line 1: the second word",
        ),
        (
            format!("{0}\n{0}\n", token.line),
            "line 2: another line already has this token",
        ),
    ] {
        fs::write(&scene.tokens.path, content)?;
        scene.reload()?;
        assert!(
            scene.daemon.wait_for_log(says, PATIENCE),
            "{says} in {}",
            scene.daemon.log()
        );
        assert_eq!(known(), 200);
    }
    fs::remove_file(&scene.tokens.path)?;
    scene.reload()?;
    assert!(scene.daemon.log().contains("can't be read"));
    assert_eq!(known(), 200);
    // The pipe has no writer, and the daemon would read no file again.
    ensure!(
        Command::new("mkfifo")
            .arg(&scene.tokens.path)
            .status()?
            .success()
    );
    scene.reload()?;
    assert!(
        scene.daemon.log().contains("it is a pipe and not a file"),
        "{}",
        scene.daemon.log()
    );
    assert_eq!(known(), 200);
    fs::remove_file(&scene.tokens.path)?;
    // A file without any token is a valid file.
    fs::write(&scene.tokens.path, "# nobody any more\n")?;
    scene.reload()?;
    assert_eq!(known(), 401);
    assert!(!scene.daemon.log().contains(secret) && !scene.daemon.log().contains(&token.secret));
    Ok(())
}

#[test]
fn a_daemon_does_not_start_with_a_mistake() -> Result<()> {
    let topology = Topology::new()?;
    for (option, content, says) in [
        (
            "--tokens",
            "a admin 12\n",
            "line 1: the third word is not a SHA-256",
        ),
        (
            "--client-roles",
            "a admin\na viewer\n",
            "line 2: an earlier line already has this name",
        ),
    ] {
        let file = Tokens::new(&[])?;
        fs::write(&file.path, content)?;
        let options = DaemonOptions::default()
            .argument(option)
            .argument(&file.path);
        let directories = std::sync::Arc::new(twinprobe_tests::Directories::new()?);
        let daemon = Daemon::spawn_in(topology.monitor(), &options, directories)?;
        assert!(!daemon.wait_for_start(PATIENCE));
        assert!(daemon.wait_for_log(says, PATIENCE), "{}", daemon.log());
    }
    Ok(())
}
