//! The examination of an object that was compiled elsewhere. Its author is unknown, and an object
//! that is damaged on purpose can make the parser abort. So a separate process with little memory
//! and time reads the object first.

use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use twinprobe_ebpf_common::hook::Hook;

/// The limits of the process: memory in bytes, time on a CPU in seconds, and time in all.
const MEMORY: u64 = 1 << 30;
const CPU_TIME: u64 = 10;
const TIME: Duration = Duration::from_secs(20);
/// The size of the stack in bytes. The threads that load programs have a larger stack.
const STACK: usize = 1 << 20;

/// Goes through an object on standard input
#[derive(Debug, Args)]
pub struct Examine {
    /// Hook of the object's program
    #[arg(value_parser = |name: &str| Hook::from_name(name).ok_or("no hook"))]
    hook: Hook,
    /// Name of the program
    entry: Option<String>,
}

impl Examine {
    /// Reads the object as a load would. The result does not matter, as long as the process
    /// survives.
    pub fn run(self) -> io::Result<()> {
        for (resource, limit) in [
            (Resource::As, MEMORY),
            (Resource::Cpu, CPU_TIME),
            (Resource::Core, 0),
        ] {
            setrlimit(
                resource,
                Rlimit {
                    current: Some(limit),
                    maximum: Some(limit),
                },
            )?;
        }
        let mut elf = Vec::new();
        io::stdin().read_to_end(&mut elf)?;
        let examine = move || twinprobe_kernel::examine(&elf, self.hook, self.entry.as_deref());
        let thread = std::thread::Builder::new()
            .name("examination".into())
            .stack_size(STACK);
        let examined = thread.spawn(examine)?.join();
        examined.map_err(|_| io::Error::other("the examination panicked"))
    }
}

/// Reads the object `elf` in a separate process, as a load would for this hook and, if the
/// configuration names one, the program `entry`. The error is the message for an object that the
/// process has not survived.
pub async fn examine(hook: Hook, entry: Option<&str>, elf: &[u8]) -> Result<(), String> {
    let failed = |error: io::Error| format!("the object could not be examined: {error}");
    let mut child = Command::new("/proc/self/exe")
        .args(["examine", hook.name()])
        .args(entry)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let input = child.stdin.take();
    let whole = async {
        if let Some(mut input) = input {
            // A process that has ended stops reading: its status says why.
            let _ = input.write_all(elf).await;
        }
        child.wait().await
    };
    match tokio::time::timeout(TIME, whole).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(damaged(status)),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(format!(
            "the examination of the object takes more than {} s",
            TIME.as_secs()
        )),
    }
}

fn damaged(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal)
            if [Signal::KILL, Signal::XCPU]
                .map(Signal::as_raw)
                .contains(&signal) =>
        {
            format!(
                "the examination of the object takes more than {CPU_TIME} s, or more memory than there is"
            )
        }
        _ => "the object is damaged in a way that its parser does not survive; compile it again"
            .to_owned(),
    }
}
