//! A daemon under test: the real binary, in a namespace, with directories of its own.

use std::{
    env,
    ffi::OsString,
    fs,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    directories::Directories,
    http::{self, Address, Response},
    log::Log,
    netns::{Namespace, set_netns},
    pidfd::{open_pidfd, send_signal, wait_for_exit, wait_for_stop},
};

/// The time that a daemon may take to start, even on an emulated processor.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A daemon drains within 5 s; `security::connections` measures that.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Options of a daemon to start. The default is `twinprobe serve` with directories of its own.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// The arguments of `serve`, without those for the directories.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    /// The binary to run instead of [`binary`].
    pub binary: Option<PathBuf>,
}

impl DaemonOptions {
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// The number of lines of its log that a daemon leaves in the output of its test.
const LOG_LINES: usize = 200;

/// A running daemon. On drop it is stopped and everything it pinned is removed. The end of its log
/// is printed.
#[derive(Debug)]
pub struct Daemon {
    namespace: Namespace,
    directories: Arc<Directories>,
    child: Option<Child>,
    pidfd: OwnedFd,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts `twinprobe serve` inside `namespace` and waits until it listens.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        Self::start_with(namespace, &DaemonOptions::default())
    }

    /// Starts a daemon with these options in directories of its own and waits until it listens.
    pub fn start_with(namespace: &Namespace, options: &DaemonOptions) -> Result<Self> {
        Self::start_in(namespace, options, Arc::new(Directories::new()?))
    }

    /// Starts a daemon on the state and pins of an earlier one, see [`Daemon::kill`] and
    /// [`Daemon::terminate`].
    pub fn start_in(
        namespace: &Namespace,
        options: &DaemonOptions,
        directories: Arc<Directories>,
    ) -> Result<Self> {
        let daemon = Self::spawn_in(namespace, options, directories)?;
        ensure!(
            daemon.log.wait_for("listening on", START_LIMIT),
            "the daemon did not get ready:\n{}",
            daemon.log()
        );
        Ok(daemon)
    }

    /// Starts a daemon like [`Daemon::start_in`] without waiting until it listens.
    pub fn spawn_in(
        namespace: &Namespace,
        options: &DaemonOptions,
        directories: Arc<Directories>,
    ) -> Result<Self> {
        let mut command = Command::new(options.binary.clone().map_or_else(binary, Ok)?);
        // `make test-kernels` says so of kernels without Landlock.
        let expected = env::var("TWINPROBE_EXPECT").unwrap_or_default();
        let unconfined = expected
            .split(',')
            .any(|feature| feature == "confined=false");
        command
            .arg("serve")
            .arg("--listen")
            .arg(format!("unix:{}", directories.socket().display()))
            .arg("--state-dir")
            .arg(directories.state())
            .arg("--bpffs")
            .arg(directories.bpffs())
            .args(unconfined.then_some("--allow-unconfined-compiler"))
            .args(&options.arguments)
            .envs(
                options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        enter_on_exec(&mut command, namespace)?;
        let mut child = command.spawn().context("start twinprobe")?;
        let log = Arc::new(Log::default());
        let stderr = child
            .stderr
            .take()
            .context("the daemon has a standard error")?;
        let reader = thread::spawn({
            let log = Arc::clone(&log);
            move || log.collect(stderr)
        });
        let pidfd = open_pidfd(child.id())?;
        Ok(Self {
            namespace: namespace.clone(),
            directories,
            child: Some(child),
            pidfd,
            log,
            reader: Some(reader),
        })
    }

    /// Sends a request to the daemon's Unix socket; panics if there is no answer.
    #[track_caller]
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        match self.try_request(method, path, headers, body) {
            Ok(response) => response,
            Err(error) => panic!("{method} {path}: {error:#}"),
        }
    }

    /// Sends a request to the daemon's Unix socket. Fails if there is no answer.
    pub fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        http::request(&self.address(), method, path, headers, body)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    #[track_caller]
    pub fn put(&self, path: &str, document: &Value) -> Response {
        self.request("PUT", path, JSON, document.to_string().as_bytes())
    }

    #[track_caller]
    pub fn post(&self, path: &str, document: &Value) -> Response {
        self.request("POST", path, JSON, document.to_string().as_bytes())
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Response {
        self.request("DELETE", path, &[], b"")
    }

    /// Returns the body of an answer of status 200 as JSON; panics, showing the answer, at another
    /// status.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        self.get(path).expect(200).json()
    }

    /// Runs the same binary as a client of this daemon.
    pub fn client(&self, arguments: &[&str]) -> Result<std::process::Output> {
        self.client_command(arguments)?
            .output()
            .context("start twinprobe as a client")
    }

    /// Returns the command of [`Daemon::client`], which the caller starts.
    pub fn client_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command
            .args(arguments)
            .env(
                "TWINPROBE_SERVER",
                format!("unix:{}", self.directories.socket().display()),
            )
            .stdin(Stdio::null());
        Ok(command)
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.directories.socket())
    }

    /// Returns the TCP addresses at which the daemon listens, inside its namespace.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        let log = self.log();
        let addresses = log
            .lines()
            .filter_map(|line| line.strip_prefix("listening on ")?.parse().ok());
        addresses.collect()
    }

    pub fn directories(&self) -> Arc<Directories> {
        Arc::clone(&self.directories)
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("runs until it is stopped").id()
    }

    /// Returns the resident memory in KiB.
    pub fn rss_kib(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the daemon runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("it has memory");
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse()
            .expect("VmRSS is a number")
    }

    /// Returns the number of open file descriptors.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("the daemon runs")
            .count()
    }

    /// Returns the number of connections of this test process to the daemon's socket.
    pub fn connections(&self) -> usize {
        /// `SS_CONNECTED`, the state of all sockets except listening ones.
        const CONNECTED: &str = "03";
        // The list shows the daemon's end of a connection in the namespace of the client.
        let sockets = fs::read_to_string("/proc/self/net/unix").expect("a list of sockets");
        let ours = |line: &&str| {
            let mut fields = line.split_whitespace().skip(5);
            fields.next() == Some(CONNECTED)
                && fields.nth(1).map(PathBuf::from) == Some(self.directories.socket())
        };
        sockets.lines().filter(ours).count()
    }

    /// Returns the daemon's log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until a line of the log contains `text`.
    pub fn wait_for_log(&self, text: &str, limit: Duration) -> bool {
        self.log.wait_for(text, limit)
    }

    /// Waits until the daemon listens or has ended. Returns true if it listens.
    pub fn wait_for_start(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if self.log.wait_for("listening on", Duration::from_millis(20)) {
                return true;
            }
            if wait_for_exit(&self.pidfd, Duration::ZERO) {
                return false;
            }
        }
        false
    }

    /// Returns a function that kills the daemon from any thread, and does nothing if the daemon has
    /// ended by itself.
    pub fn killer(&self) -> Result<impl FnOnce() + Send + 'static> {
        let pidfd = self.pidfd.try_clone()?;
        Ok(move || send_signal(&pidfd, libc::SIGKILL))
    }

    /// Stops the daemon by SIGTERM and waits. Pins and state stay for [`Daemon::start_in`] as long
    /// as the caller keeps the returned directories.
    pub fn terminate(mut self) -> Result<(ExitStatus, Arc<Directories>)> {
        let status = self.stop(libc::SIGTERM)?;
        Ok((status, self.directories()))
    }

    /// Stops the daemon by SIGKILL and waits. Pins and state stay as with [`Daemon::terminate`].
    pub fn kill(mut self) -> Result<Arc<Directories>> {
        self.stop(libc::SIGKILL)?;
        Ok(self.directories())
    }

    /// Stops the daemon by SIGTERM or SIGKILL, and starts another one on its state and pins.
    pub fn restart(self, signal: i32, options: &DaemonOptions) -> Result<Self> {
        let namespace = self.namespace.clone();
        let directories = if signal == libc::SIGKILL {
            self.kill()?
        } else {
            let (status, directories) = self.terminate()?;
            ensure!(status.success(), "the daemon failed: {status}");
            directories
        };
        Self::start_in(&namespace, options, directories)
    }

    /// Sends a signal without waiting for its effect.
    pub fn signal(&self, signal: i32) {
        send_signal(&self.pidfd, signal);
    }

    /// Stops all of the daemon's threads until [`Daemon::resume`]; its programs in the kernel
    /// continue.
    pub fn pause(&self) {
        send_signal(&self.pidfd, libc::SIGSTOP);
        wait_for_stop(&self.pidfd);
    }

    /// Lets a daemon continue that [`Daemon::pause`] has stopped.
    pub fn resume(&self) {
        send_signal(&self.pidfd, libc::SIGCONT);
    }

    fn stop(&mut self, signal: i32) -> Result<ExitStatus> {
        let Some(mut child) = self.child.take() else {
            bail!("the daemon was stopped before")
        };
        send_signal(&self.pidfd, signal);
        let in_time = wait_for_exit(&self.pidfd, STOP_LIMIT);
        if !in_time {
            child.kill().context("kill the daemon")?;
        }
        let status = child.wait().context("wait for the daemon")?;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        // Test runners show it where a test fails, by a panic or an error; tests/summary.py looks
        // for these lines.
        eprintln!(
            "--- log of the daemon {} ---\n{}\n---",
            child.id(),
            self.log.tail(LOG_LINES)
        );
        ensure!(in_time, "the daemon did not stop within {STOP_LIMIT:?}");
        Ok(status)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.is_some()
            && let Err(error) = self.stop(libc::SIGTERM)
        {
            eprintln!("{error:#}");
        }
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Returns the binary under test: `TWINPROBE_BIN`, else the one built beside this test executable.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("TWINPROBE_BIN") {
        return Ok(path.into());
    }
    helper("twinprobe")
}

/// Returns a binary of this workspace, built beside this test executable.
pub fn helper(name: &str) -> Result<PathBuf> {
    // This executable is target/PROFILE/deps/NAME-HASH, or target/PROFILE/NAME for a binary of this
    // crate.
    let executable = env::current_exe()?;
    let found = executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file());
    found.with_context(|| {
        format!(
            "no {name} beside {}: build it (cargo build) or set TWINPROBE_BIN",
            executable.display()
        )
    })
}

/// Makes a command enter a network namespace before exec. `ip netns exec` would mount /sys anew and
/// hide bpffs.
fn enter_on_exec(command: &mut Command, namespace: &Namespace) -> Result<()> {
    let namespace = namespace.as_fd().try_clone_to_owned()?;
    // SAFETY: between fork and exec only setns is called. It is a bare system call, and so
    // signal-safe.
    unsafe { command.pre_exec(move || set_netns(namespace.as_fd())) };
    Ok(())
}
