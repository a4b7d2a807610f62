//! One run of clang: its input, its output and its limits.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::confine::confine::Confinement;
use crate::limits::CompileLimits;

/// The length of a tick in `/proc/PID/stat`, in milliseconds. It is the same on all machines that
/// run eBPF.
const TICK: u64 = 10;

/// The outcome of a run.
pub enum ChildOutcome {
    /// The run has ended. `cpu_time` is the used processor time, or zero if it is not known.
    Ended {
        status: ExitStatus,
        elf: Vec<u8>,
        log: String,
        cpu_time: Duration,
    },
    TimedOut,
    ObjectTooLarge,
}

/// Runs `clang`, confined, on `input`, which a client wrote. The child inherits the files in memory
/// of `inherited`, beside those of the confinement. The child has ended when this function returns:
/// at a limit it is killed and reaped, and with this future it is killed.
pub async fn run(
    clang: &Path,
    arguments: &[OsString],
    input: &[u8],
    limits: CompileLimits,
    confinement: &Confinement,
    inherited: &Arc<[OwnedFd]>,
) -> io::Result<ChildOutcome> {
    let mut command = command(clang);
    confinement.apply_with(&mut command, Arc::clone(inherited));
    let mut child = Command::from(command)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let whole_run = async {
        let Some((elf, log)) = talk(&mut child, input, limits).await? else {
            return Ok(ChildOutcome::ObjectTooLarge);
        };
        // The time is readable because nothing has waited for the child yet, even after a kill.
        let cpu_time = child.id().and_then(cpu_time).unwrap_or_default();
        // The child has closed its pipes, but may still run: the time limit covers the wait for its
        // end too.
        Ok(ChildOutcome::Ended {
            status: child.wait().await?,
            elf,
            log,
            cpu_time,
        })
    };
    let outcome = tokio::time::timeout(limits.time, whole_run)
        .await
        .unwrap_or(Ok(ChildOutcome::TimedOut));
    if !matches!(outcome, Ok(ChildOutcome::Ended { .. })) {
        child.kill().await?;
    }
    outcome
}

/// Returns the processor time that a process has taken, user and system together.
fn cpu_time(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the process, in parentheses, may have spaces.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * TICK))
}

/// Returns the command for `clang`, independent of the daemon's directory and environment.
pub fn command(clang: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(clang);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .current_dir("/");
    command
}

/// Writes and reads at the same time, because clang may fill one pipe before it has emptied the
/// other. Returns `None` if the object is too large.
async fn talk(
    child: &mut Child,
    input: &[u8],
    limits: CompileLimits,
) -> io::Result<Option<(Vec<u8>, String)>> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("a pipe to the compiler is missing"));
    };
    let feed = async move {
        match stdin.write_all(input).await {
            // clang may stop reading after a refusal of the source; its log has the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    };
    let object = async {
        let mut elf = Vec::new();
        let limit = limits.object as u64 + 1;
        stdout.take(limit).read_to_end(&mut elf).await?;
        // An error ends the other two futures of `try_join!` as well.
        if elf.len() > limits.object {
            Err(io::ErrorKind::FileTooLarge.into())
        } else {
            Ok(elf)
        }
    };
    match tokio::try_join!(feed, object, read_log(stderr, limits.log)) {
        Ok(((), elf, log)) => Ok(Some((elf, log))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the first `limit` bytes. The rest is read as well, so that the child does not block on a
/// full pipe.
async fn read_log(mut stderr: impl AsyncRead + Unpin, limit: usize) -> io::Result<String> {
    let mut log = Vec::new();
    (&mut stderr)
        .take(limit as u64)
        .read_to_end(&mut log)
        .await?;
    let dropped = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    let mut text = String::from_utf8_lossy(&log).into_owned();
    if dropped > 0 {
        text.push_str(&format!("\n[{dropped} more bytes]\n"));
    }
    Ok(text)
}
