//! Compilation of eBPF C to an ELF object with clang as a child process. Clang reads the user's
//! source from its stdin and writes the object to its stdout; its messages become findings that
//! name lines of the source.

mod doubled;
mod labels;
mod legacy;
mod strip;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use twinprobe_ebpf_common::finding::{BESIDE, Finding, INNER, Rejection, SOURCE_NAME, Stage};

use crate::bcc::dialect::{self, BccArguments};
use crate::beside::FilesBeside;
use crate::child::{self, ChildOutcome};
use crate::compile::labels::UnitTexts;
use crate::compile::strip::without_debug_information;
use crate::confine::confine::Confinement;
use crate::diagnostics;
use crate::headers;
use crate::known::{LIST_HEADERS, ObjectCache, ObjectKey, take_headers};
use crate::limits::CompileLimits;
use crate::object::CompiledObject;
use crate::vmlinux::KernelTypes;
use twinprobe_ebpf_common::unit::Unit;

/// The name that clang gives a source from a pipe.
const STDIN_NAME: &str = "<stdin>";

/// The clang of this machine.
#[derive(Clone, Debug)]
pub struct Compiler {
    pub clang: PathBuf,
    /// The first line of `clang --version`.
    pub version: String,
    pub include: Vec<OsString>,
    /// The description of clang's view of the files.
    pub view: Arc<Value>,
    pub limits: CompileLimits,
    pub confinement: Confinement,
    pub types: Arc<KernelTypes>,
    pub known: Arc<ObjectCache>,
}

impl Compiler {
    /// Compiles a source. The rejection has clang's diagnostics and its log.
    pub async fn compile(&self, unit: &Unit<'_>) -> Result<CompiledObject, Rejection> {
        let field = unit.field;
        let refuse =
            |message: String| Rejection::from(Finding::new(Stage::Compile, field, message));
        let told = dialect::told(unit)?;
        let arguments = self.arguments(unit, told.as_ref());
        let key = ObjectKey::new(&self.clang, &arguments, unit);
        let shared = told.map(|told| told.shared).unwrap_or_default();
        if let Some(object) = self.known.get(&key) {
            return Ok(CompiledObject { shared, ..object });
        }
        if Self::follows_types(unit) {
            self.write_types().await.map_err(refuse)?;
        }
        let not_run = |error| refuse(format!("could not run {}: {error}", self.clang.display()));
        match self.outcome(arguments, unit).await.map_err(not_run)? {
            ChildOutcome::TimedOut => {
                let limit = self.limits.time.as_secs();
                Err(refuse(format!(
                    "the compilation took longer than {limit} s by the clock; the host is busy, try again"
                )))
            }
            ChildOutcome::Ended {
                status, cpu_time, ..
            } if self.is_over(status, cpu_time) => {
                let limit = self.limits.cpu_time.as_secs();
                Err(refuse(format!(
                    "the compilation needed more than {limit} s of processor time; make the source smaller, above all its macros \
                     and the loops that are unrolled"
                )))
            }
            ChildOutcome::ObjectTooLarge => Err(refuse(format!(
                "the compiled object is larger than {} MiB",
                self.limits.object >> 20
            ))),
            ChildOutcome::Ended {
                status, elf, log, ..
            } => {
                let (log, headers) = take_headers(&log);
                let log = log.replace(&format!("{STDIN_NAME}:"), &format!("{SOURCE_NAME}:"));
                let parsed = diagnostics::parse(field, &log);
                if status.success() {
                    let elf = without_debug_information(&elf)
                        .ok()
                        .flatten()
                        .unwrap_or(elf);
                    let object = CompiledObject {
                        elf,
                        warnings: parsed.warnings,
                        shared,
                        reused: false,
                    };
                    self.known.keep(key, &object, &self.clang, headers);
                    return Ok(object);
                }
                Err(self.rejection(field, status, &log, parsed.errors))
            }
        }
    }

    /// Writes the types of `vmlinux.h` if no source has asked for them before. Fails with the
    /// reason.
    async fn write_types(&self) -> Result<(), String> {
        let types = Arc::clone(&self.types);
        let written = tokio::task::spawn_blocking(move || types.write()).await;
        written.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Makes the rejection for a run of clang that has failed, from its log and from the errors in
    /// the log.
    fn rejection(
        &self,
        field: &str,
        status: ExitStatus,
        log: &str,
        mut errors: Vec<Finding>,
    ) -> Rejection {
        let log = without_folders(diagnostics::without_crash_report(log));
        let finding = |message: String| Finding::new(Stage::Compile, field, message);
        if log.contains(OUT_OF_MEMORY) {
            // Other messages are consequences of the missing memory.
            let limit = self.limits.data >> 20;
            errors = vec![finding(format!(
                "the compiler needed more than {limit} MiB"
            ))];
        } else if errors.is_empty() {
            errors.push(finding(unexplained(status, &log)));
        }
        Rejection::from(errors).with_log(log)
    }

    /// Compiles a unit. If the source has declarations right behind labels, and clang is too old
    /// for them, clang runs again with empty statements between them; the first outcome counts if
    /// that does not help.
    async fn outcome(&self, arguments: Vec<OsString>, unit: &Unit<'_>) -> io::Result<ChildOutcome> {
        let first = self.apart(arguments.clone(), unit).await?;
        let mut texts = UnitTexts {
            source: unit.source.to_owned(),
            files: unit.files.clone(),
        };
        let mut later = None;
        for _ in 0..LABEL_RUNS {
            match later.as_ref().unwrap_or(&first) {
                ChildOutcome::Ended { status, log, .. }
                    if !status.success() && texts.separate(log, STDIN_NAME) => {}
                _ => break,
            }
            let unit = Unit {
                source: &texts.source,
                files: &texts.files,
                ..*unit
            };
            later = Some(self.apart(arguments.clone(), &unit).await?);
        }
        let helps = |later: &ChildOutcome| matches!(later, ChildOutcome::Ended { status, .. } if status.success());
        Ok(later.filter(helps).unwrap_or(first))
    }

    /// Compiles a unit. If the host's headers define names that the source defines itself, clang
    /// runs once more with other names in these headers; the first outcome counts if that does not
    /// help.
    async fn apart(&self, arguments: Vec<OsString>, unit: &Unit<'_>) -> io::Result<ChildOutcome> {
        let run = async |mut arguments: Vec<OsString>, apart: Option<&str>| {
            let beside =
                FilesBeside::new(&self.view, unit, apart.map(|text| (doubled::NAME, text)))?;
            beside.show(&mut arguments);
            self.run(&mut arguments, unit.source, &beside).await
        };
        let first = run(arguments.clone(), None).await?;
        let ChildOutcome::Ended { status, log, .. } = &first else {
            return Ok(first);
        };
        let Some(apart) = doubled::header(log).filter(|_| !status.success()) else {
            return Ok(first);
        };
        let include = ["-include", doubled::NAME].map(OsString::from);
        let second = run(include.into_iter().chain(arguments).collect(), Some(&apart)).await?;
        let helps = matches!(&second, ChildOutcome::Ended { status, .. } if status.success());
        Ok(if helps { second } else { first })
    }

    /// Runs clang. If clang 14 can't have the source's text in the debug information, clang runs
    /// once more without that text.
    async fn run(
        &self,
        arguments: &mut Vec<OsString>,
        source: &str,
        beside: &FilesBeside,
    ) -> io::Result<ChildOutcome> {
        let (clang, limits, confinement) = (&self.clang, self.limits, &self.confinement);
        let (input, inherited) = (source.as_bytes(), &beside.inherited);
        let outcome = child::run(clang, arguments, input, limits, confinement, inherited).await?;
        if !matches!(&outcome, ChildOutcome::Ended { log, .. } if log.contains(MIXED_FILES)) {
            return Ok(outcome);
        }
        arguments.retain(|argument| argument != EMBED);
        child::run(clang, arguments, input, limits, confinement, inherited).await
    }

    /// Tells whether the kernel has ended a run because of its processor time. The kernel also
    /// kills processes for lack of memory.
    fn is_over(&self, status: ExitStatus, cpu_time: Duration) -> bool {
        status.signal() == Some(libc::SIGKILL) && cpu_time * INACCURACY >= self.limits.cpu_time
    }

    /// Tells whether a source asks for `vmlinux.h`, so that its object depends on the types of a
    /// kernel.
    pub fn follows_types(unit: &Unit<'_>) -> bool {
        unit.files
            .values()
            .map(String::as_str)
            .chain([unit.source])
            .any(KernelTypes::are_asked_for)
    }

    /// Takes the types of `vmlinux.h` from this file: BTF, or an ELF file with BTF.
    pub fn take_types_from(&self, path: &Path) {
        self.types.take_from(path);
    }

    fn arguments(&self, unit: &Unit<'_>, bcc: Option<&BccArguments>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = FLAGS.iter().map(OsString::from).collect();
        if let Some(bcc) = bcc {
            // The headers of the dialect replace some of the usual headers.
            arguments.extend(["-isystem", headers::BCC].map(OsString::from));
            arguments.extend(bcc.arguments.iter().map(OsString::from));
        }
        if bcc.is_none() && Self::follows_types(unit) {
            arguments.extend(["-isystem", headers::TYPED].map(OsString::from));
        }
        arguments.extend(self.include.iter().cloned());
        if let Some(arch) = target_arch() {
            arguments.push(format!("-D__TARGET_ARCH_{arch}").into());
        }
        if bcc.is_none() {
            arguments.extend(legacy::arguments(unit).into_iter().map(OsString::from));
        }
        arguments.extend(unit.target().map(|name| format!("-D{name}=1").into()));
        arguments.extend(
            unit.defines
                .iter()
                .map(|(name, value)| format!("-D{name}={value}").into()),
        );
        arguments.extend(["-x", "c", "-c", "-", "-o", "-"].map(OsString::from));
        arguments
    }
}

/// The kernel applies the limit to ticks, which a busy host may assign to the wrong process, but
/// reports the exact time. A killed run counts as over its limit if it has used at least one part
/// of this many of the limit.
const INACCURACY: u32 = 2;
/// The most further runs for declarations behind labels. Each run tells at most ten of them.
const LABEL_RUNS: usize = 4;
/// The argument that puts the source's text into the debug information.
const EMBED: &str = "-gembed-source";
/// The message of clang 14 for inline assembly, if the first declaration of a header comes from a
/// macro: then this header has no text in the debug information, and others have.
const MIXED_FILES: &str = "unassigned file number";
/// LLVM's last message when an allocation fails.
const OUT_OF_MEMORY: &str = "LLVM ERROR: out of memory";

/// Replaces the paths of files that were sent with the source by the client's names.
fn without_folders(log: &str) -> String {
    let (mut log, above) = (
        log.replace(&format!("{BESIDE}/"), ""),
        format!("{INNER}/../"),
    );
    while log.contains(&above) {
        log = log.replace(&above, "");
    }
    log
}

/// Returns the message for a clang that failed without a diagnostic.
fn unexplained(status: ExitStatus, log: &str) -> String {
    if status.signal() == Some(libc::SIGKILL) {
        return "the compiler was killed: there was no memory left".to_owned();
    }
    if status.signal().is_some() {
        return format!("the compiler crashed ({status}); the source may nest too deeply");
    }
    let last = log
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    last.map_or_else(|| format!("the compiler failed ({status})"), str::to_owned)
}

const FLAGS: &[&str] = &[
    "-target",
    "bpf",
    "-mcpu=v3",
    "-O2",
    // Debug information brings BTF. It embeds the source, so that the verifier's log quotes it.
    "-g",
    "-gdwarf-5",
    EMBED,
    "-ffile-prefix-map=<stdin>=probe.c",
    // The source has one name everywhere. With two, clang 14 mixes files with and without embedded
    // source if the first declaration comes from a macro, and its assembler then refuses inline
    // assembly of headers.
    "-Xclang",
    "-main-file-name",
    "-Xclang",
    "probe.c",
    // An address-significance table makes the `object` crate rewrite section names.
    "-fno-addrsig",
    "-fno-stack-protector",
    // The child is one process without files on the disk: killing the child ends everything.
    "-fintegrated-cc1",
    "-fno-crash-diagnostics",
    // Objects do not depend on the daemon's directory: the same source gives the same bytes.
    "-fdebug-compilation-dir=/",
    "-Wall",
    "-Wno-unused-function",
    "-Wno-unknown-warning-option",
    "-fno-color-diagnostics",
    "-ferror-limit=10",
    LIST_HEADERS,
];

/// Returns the name of this architecture in libbpf's headers (`__TARGET_ARCH_x86`).
pub fn target_arch() -> Option<&'static str> {
    Some(match std::env::consts::ARCH {
        "x86" | "x86_64" => "x86",
        "arm" => "arm",
        "aarch64" => "arm64",
        "powerpc64" => "powerpc",
        "riscv64" => "riscv",
        "s390x" => "s390",
        "loongarch64" => "loongarch",
        _ => return None,
    })
}
