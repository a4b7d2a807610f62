//! `unit [--without WORD]... COMMAND...` runs a command with the rights that
//! `deploy/twinprobe.service` leaves to the daemon, as systemd 252 reads it: capabilities, system
//! calls, file mode mask. WORD is a capability (`CAP_KILL`) or a system call that the command must
//! not have either.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};

const UNIT: &str = include_str!("../../../deploy/twinprobe.service");
/// The list that `systemd-analyze syscall-filter @system-service` of systemd 252 prints.
const SYSTEM_SERVICE: &str = include_str!("../../golden/system-service");
/// The files in which distributions have the numbers of system calls.
const HEADERS: [&str; 3] = [
    "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "/usr/include/asm/unistd_64.h",
    "/usr/include/asm-generic/unistd.h",
];
/// The names of capabilities, in the order of their numbers.
const CAPABILITIES: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP \
     LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO \
     SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE \
     AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF \
     CHECKPOINT_RESTORE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("unit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: &[String]) -> Result<std::convert::Infallible> {
    let mut without = Vec::new();
    while let [flag, word, rest @ ..] = arguments
        && flag == "--without"
    {
        without.push(word.as_str());
        arguments = rest;
    }
    let [program, arguments @ ..] = arguments else {
        bail!("no command")
    };
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    if settings("LimitMEMLOCK").any(|word| word == "infinity") {
        // SAFETY: a structure that outlives the call. Without CAP_SYS_RESOURCE the limit does not
        // change.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) };
    }
    for mask in settings("UMask") {
        // SAFETY: the call takes a number and always succeeds.
        unsafe { libc::umask(libc::mode_t::from_str_radix(mask, 8)?) };
    }
    let kept: Vec<&str> = settings("CapabilityBoundingSet")
        .filter(|name| !without.contains(name))
        .collect();
    for (number, name) in CAPABILITIES.split_whitespace().enumerate() {
        if !kept.contains(&format!("CAP_{name}").as_str()) {
            // SAFETY: the call takes numbers. It fails for capabilities that this kernel does not
            // know.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0_u64, 0_u64, 0_u64) };
        }
    }
    if settings("NoNewPrivileges").any(|word| word == "yes") {
        // SAFETY: the call takes numbers.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) })?;
    }
    let filter = filter(&without)?;
    apply_filter(&filter).context("enter the filter")?;
    Err(Command::new(program).args(arguments).exec()).context(program.clone())
}

/// The words of all lines of the unit that set `name`.
fn settings(name: &'static str) -> impl Iterator<Item = &'static str> {
    let value = move |line: &'static str| line.strip_prefix(name)?.strip_prefix('=');
    UNIT.lines()
        .filter_map(value)
        .flat_map(str::split_whitespace)
}

fn filter(without: &[&str]) -> Result<seccompiler::BpfProgram> {
    let header = HEADERS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .context("no numbers of system calls")?;
    let number = |line: &str| {
        let (name, number) = line
            .strip_prefix("#define __NR_")?
            .split_once(char::is_whitespace)?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    let numbers: BTreeMap<String, i64> = header.lines().filter_map(number).collect();
    let names = settings("SystemCallFilter").flat_map(|word| match word {
        "@system-service" => SYSTEM_SERVICE.lines().collect(),
        word => vec![word],
    });
    let allowed = names
        .filter(|name| !without.contains(name))
        .filter_map(|name| Some((*numbers.get(name)?, Vec::new())));
    let code = if settings("SystemCallErrorNumber").any(|word| word == "EPERM") {
        libc::EPERM
    } else {
        libc::ENOSYS
    };
    let (other, matching) = (SeccompAction::Errno(code as u32), SeccompAction::Allow);
    let filter = SeccompFilter::new(
        allowed.collect(),
        other,
        matching,
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
