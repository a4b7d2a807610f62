//! One run of clang: fed, read and limited.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::Limits;
use crate::compiler::confine::confine::Confinement;

/// How a run ended.
pub(super) enum Outcome {
    Ended { status: ExitStatus, elf: Vec<u8>, log: String },
    TimedOut,
    ObjectTooLarge,
}

/// Runs `clang` on `input`, which somebody else wrote, confined. Whatever happens the child is gone afterwards: killed and reaped where a limit
/// was hit, killed when this future is dropped.
pub(super) async fn run(
    clang: &Path,
    arguments: &[OsString],
    input: &[u8],
    limits: Limits,
    confinement: &Confinement,
) -> io::Result<Outcome> {
    let mut command = command(clang);
    confinement.apply(&mut command);
    let mut child = Command::from(command)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let outcome = tokio::time::timeout(limits.time, talk(&mut child, input, limits)).await;
    match outcome {
        Ok(Ok(Some((elf, log)))) => {
            // Both pipes are at their end, so the child has exited or is about to; a child that closes
            // them and lingers is not waited for.
            match tokio::time::timeout(limits.time, child.wait()).await {
                Ok(status) => Ok(Outcome::Ended { status: status?, elf, log }),
                Err(_) => end(child, Outcome::TimedOut).await,
            }
        }
        Ok(Ok(None)) => end(child, Outcome::ObjectTooLarge).await,
        Ok(Err(error)) => {
            child.kill().await?;
            Err(error)
        }
        Err(_) => end(child, Outcome::TimedOut).await,
    }
}

/// `clang`, the same wherever the daemon was started.
pub(super) fn command(clang: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(clang);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .current_dir("/")
        // Ctrl-C in the daemon's terminal is the daemon's to handle.
        .process_group(0);
    command
}

async fn end(mut child: Child, outcome: Outcome) -> io::Result<Outcome> {
    child.kill().await?;
    Ok(outcome)
}

/// Writes and reads at the same time, because clang may fill one pipe before it has emptied the other.
/// `None` if the object is too large.
async fn talk(child: &mut Child, input: &[u8], limits: Limits) -> io::Result<Option<(Vec<u8>, String)>> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("a pipe to the compiler is missing"));
    };
    let feed = async move {
        match stdin.write_all(input).await {
            // It has read enough to refuse; its words say why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    };
    let object = async {
        let mut elf = Vec::new();
        let limit = limits.object as u64 + 1;
        stdout.take(limit).read_to_end(&mut elf).await?;
        // An early error ends the other two futures as well.
        if elf.len() > limits.object { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(elf) }
    };
    match tokio::try_join!(feed, object, read_log(stderr, limits.log)) {
        Ok(((), elf, log)) => Ok(Some((elf, log))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first `limit` bytes; the rest is read too, so that the child does not block on it.
async fn read_log(mut stderr: impl AsyncRead + Unpin, limit: usize) -> io::Result<String> {
    let mut log = Vec::new();
    (&mut stderr).take(limit as u64).read_to_end(&mut log).await?;
    let dropped = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    let mut text = String::from_utf8_lossy(&log).into_owned();
    if dropped > 0 {
        text.push_str(&format!("\n[{dropped} more bytes]\n"));
    }
    Ok(text)
}
