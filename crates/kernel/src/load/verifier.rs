//! The loading of programs, and the reasons that the kernel's verifier gives when it refuses one.

use std::io;
use std::os::fd::OwnedFd;

use crate::sys::prog::{self, LOG_STATISTICS, LOG_STEPS, ProgLoad};

/// The size of the largest log buffer that every kernel accepts, in bytes.
const LOG_BYTES: usize = (16 << 20) - 1;
/// The size in bytes of a log of statistics, which has a number for each of up to 256 subprograms.
pub const STATISTICS_BYTES: usize = 16 << 10;
/// The most instructions that the verifier follows (`BPF_COMPLEXITY_LIMIT_INSNS` of the kernel).
const MOST_VERIFIED: u64 = 1_000_000;
/// The number of bytes that are kept of a long log. A program that is too complex produces
/// megabytes, and only the beginning and the end show the reason.
const LOG_HEAD: usize = 4 << 10;
const LOG_TAIL: usize = 60 << 10;

/// The number of the verifier's last lines that become a message.
const VERDICT_LINES: usize = 3;

/// The refusal of a program by the kernel.
#[derive(Debug)]
pub struct VerifierRefusal {
    /// The verifier's last lines, or the system call's error if the verifier said nothing.
    pub message: String,
    /// The index of the instruction that the verifier refused.
    pub instruction: Option<u32>,
    /// The source line that the verifier quoted last, without its number.
    pub quoted: Option<String>,
    pub log: String,
}

/// Loads a program.
pub fn load(program: &ProgLoad<'_>) -> Result<OwnedFd, VerifierRefusal> {
    load_verified(program).map(|(fd, _)| fd)
}

/// Loads a program, and returns the number of instructions that the verifier has followed. The
/// first attempt writes no log of the verifier's steps, which is faster. A refused program is
/// loaded again with such a log.
pub fn load_verified(program: &ProgLoad<'_>) -> Result<(OwnedFd, u64), VerifierRefusal> {
    let mut statistics = vec![0_u8; STATISTICS_BYTES];
    let error = match prog::prog_load(program, Some((LOG_STATISTICS, &mut statistics))) {
        Ok(fd) => return Ok((fd, verified(&String::from_utf8_lossy(&statistics)))),
        Err(error) => error,
    };
    let mut buffer = vec![0_u8; LOG_BYTES];
    match prog::prog_load(program, Some((LOG_STEPS, &mut buffer))) {
        Ok(fd) => Ok((fd, MOST_VERIFIED)),
        Err(_) => {
            let end = buffer
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(buffer.len());
            Err(explain(&error, shorten(&buffer[..end])))
        }
    }
}

/// Returns the number of instructions that the verifier has followed, according to its statistics.
/// If the statistics lack the number, returns the largest possible number.
pub fn verified(statistics: &str) -> u64 {
    let number = statistics
        .lines()
        .find_map(|line| line.strip_prefix("processed "));
    number
        .and_then(|words| words.split(' ').next()?.parse().ok())
        .unwrap_or(MOST_VERIFIED)
}

fn shorten(log: &[u8]) -> String {
    if log.len() <= LOG_HEAD + LOG_TAIL {
        return String::from_utf8_lossy(log).into_owned();
    }
    let (head, tail) = (&log[..LOG_HEAD], &log[log.len() - LOG_TAIL..]);
    format!(
        "{}\n... {} bytes left out ...\n{}",
        String::from_utf8_lossy(head),
        log.len() - LOG_HEAD - LOG_TAIL,
        String::from_utf8_lossy(tail)
    )
}

fn explain(error: &io::Error, log: String) -> VerifierRefusal {
    let mut refusal = VerifierRefusal {
        message: String::new(),
        instruction: None,
        quoted: None,
        log,
    };
    let mut words = Vec::new();
    for line in refusal.log.lines() {
        let line = line.trim_end();
        if let Some(quote) = line.strip_prefix("; ") {
            let quote = quote.rsplit_once(" @ ").map_or(quote, |(text, _)| text);
            refusal.quoted = Some(quote.trim().to_owned());
            words.clear();
        } else if let Some(number) = instruction_number(line) {
            refusal.instruction = Some(number);
            words.clear();
        } else if !line.is_empty() && !is_statistics(line) {
            words.push(without_instruction(line.trim()));
        }
    }
    // A message of the verifier may have several lines: the particular line comes before the
    // general one.
    let verdict = words[words.len().saturating_sub(VERDICT_LINES)..].join(": ");
    refusal.message = match Some(verdict).filter(|verdict| !verdict.is_empty()) {
        Some(verdict) => {
            let missing = missing(&verdict).map_or_else(String::new, |what| format!("; {what}"));
            format!("the kernel's verifier refuses the program: {verdict}{missing}")
        }
        None => match error.raw_os_error() {
            Some(libc::EPERM) => {
                "the kernel does not let this daemon load programs; it needs CAP_BPF and CAP_NET_ADMIN, and \
                 CAP_SYS_RESOURCE where programs count as locked memory (before Linux 5.11)"
                    .into()
            }
            Some(libc::E2BIG) => "the program is too large or too complex for the kernel".into(),
            _ => format!("the kernel refuses the program: {error}"),
        },
    };
    refusal
}

/// Returns an explanation for a message in which the verifier does not name the missing feature of
/// the kernel.
fn missing(verdict: &str) -> Option<&'static str> {
    const MISSING: [(&str, &str); 5] = [
        (
            // Loaders put this in place of a CO-RE relocation without a counterpart.
            "invalid func unknown#195896080",
            "this line follows a type or field that this kernel does not have (CO-RE): test for it by bpf_core_field_exists",
        ),
        (
            "invalid func unknown#",
            "this kernel does not have the helper function of this number",
        ),
        (
            "BPF_STX uses reserved fields",
            "this kernel has no atomic operations that give back a value (Linux 5.12)",
        ),
        (
            "unknown opcode",
            "this kernel does not have this instruction",
        ),
        (
            "tail_calls are not allowed in",
            "this kernel has no tail calls from subprograms (x86-64: Linux 5.10, arm64: Linux 6.0, with \
             net.core.bpf_jit_enable=1)",
        ),
    ];
    MISSING
        .iter()
        .find(|(words, _)| verdict.contains(words))
        .map(|(_, what)| *what)
}

/// Returns the number of the instruction in a line of the log: `12: (07) r1 += 8 ...` or `12:
/// R1=...`.
fn instruction_number(line: &str) -> Option<u32> {
    let (number, rest) = line.split_once(':')?;
    let number = number
        .trim_start_matches("from ")
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    (rest.is_empty() || rest.starts_with(' ')).then_some(number)
}

/// Removes the number of the instruction, because the finding names the source line instead.
fn without_instruction(verdict: &str) -> &str {
    match verdict.rsplit_once(" at insn ") {
        Some((words, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => words,
        _ => verdict,
    }
}

fn is_statistics(line: &str) -> bool {
    [
        "processed ",
        "verification time ",
        "stack depth ",
        "max_states",
        "mark_precise:",
        // Older kernels print the same information in the following forms.
        "last_idx ",
        "regs=",
        "parent ",
        "arg#",
        "caller:",
        "callee:",
        "func#",
        "Validating ",
        "live regs",
        // The registers of an infinite loop, which mean nothing to authors of C; the log has them.
        "cur state:",
        "old state:",
    ]
    .iter()
    .any(|prefix| line.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "func#0 @0\n0: R1=ctx() R10=fp0\n; int *p = map_lookup(&m, &k); @ probe.c:7\n0: (b7) r1 = 0\n\
        5: (85) call bpf_map_lookup_elem#1      ; R0=map_value_or_null()\n; return *p; @ probe.c:8\n\
        6: (61) r0 = *(u32 *)(r0 +0)\nR0 invalid mem access 'map_value_or_null'\n\
        processed 7 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n";

    #[test]
    fn the_verdict_the_instruction_and_the_quoted_line_are_found() {
        let refusal = explain(&io::Error::from_raw_os_error(libc::EACCES), LOG.into());
        assert!(
            refusal
                .message
                .ends_with("R0 invalid mem access 'map_value_or_null'"),
            "{}",
            refusal.message
        );
        assert_eq!(refusal.instruction, Some(6));
        assert_eq!(refusal.quoted.as_deref(), Some("return *p;"));
    }

    #[test]
    fn an_infinite_loop_is_told_without_registers() {
        let log = "; for (;;) seen++; @ probe.c:9\n78: (05) goto pc-1\ninfinite loop detected at insn 78\n\
            cur state: R0=map_value(map=seen,ks=4,vs=16) R10=fp0\nold state: R0=map_value(map=seen,ks=4,vs=16) R10=fp0\n\
            processed 99 insns (limit 1000000) max_states_per_insn 1 total_states 4 peak_states 4 mark_read 1\n";
        let refusal = explain(&io::Error::from_raw_os_error(libc::EINVAL), log.into());
        assert!(
            refusal.message.ends_with(": infinite loop detected"),
            "{}",
            refusal.message
        );
        assert_eq!(refusal.instruction, Some(78));
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let log = "BPF_STX uses reserved fields\nprocessed 0 insns (limit 1000000) max_states_per_insn 0\n";
        let refusal = explain(&io::Error::from_raw_os_error(libc::EINVAL), log.into());
        assert!(
            refusal
                .message
                .contains("fields; this kernel has no atomic"),
            "{}",
            refusal.message
        );
        assert_eq!(missing("R0 invalid mem access 'map_value_or_null'"), None);
    }

    #[test]
    fn the_number_of_instructions_is_in_the_statistics() {
        assert_eq!(verified(LOG), 7);
        assert_eq!(verified("verification time 7 usec\n"), MOST_VERIFIED);
    }

    #[test]
    fn a_silent_verifier_leaves_the_errno() {
        let refusal = explain(&io::Error::from_raw_os_error(libc::EPERM), String::new());
        assert!(refusal.message.contains("CAP_BPF"));
        assert_eq!(refusal.instruction, None);
    }

    #[test]
    fn a_long_log_keeps_head_and_tail() {
        let log = [
            vec![b'a'; LOG_HEAD],
            vec![b'\xff'; 8 << 20],
            b"the end".to_vec(),
        ]
        .concat();
        let short = shorten(&log);
        assert!(short.starts_with("aaa") && short.ends_with("the end"));
        assert!(short.len() < 4 * (LOG_HEAD + LOG_TAIL));
    }
}
