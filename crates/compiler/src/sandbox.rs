//! Confinement of clang while it reads a client's source: `#include "/etc/shadow"` would show the
//! file in the diagnostics, `.incbin` in the object, and `__has_include` whether there is such a
//! file.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::Value;

use crate::child;
use crate::confine::confine::{Allowed, Confinement};
use crate::headers::HeaderFiles;
use crate::limits::CompileLimits;
use crate::vmlinux::KernelTypes;

/// The header directories that distributions may keep elsewhere, with a symbolic link to them.
const LINKED: [&str; 4] = [
    "/usr/include/linux",
    "/usr/include/asm",
    "/usr/include/asm-generic",
    "/usr/include/bpf",
];
/// A source that compiles only with access to the compiler's own headers.
const TRIAL: &[u8] = b"#include <stdarg.h>\nva_list *trial;\n";
/// The limit of open files of the compiler.
const FILES: u64 = 256;

/// A way to run clang.
pub struct Sandbox {
    pub confinement: Confinement,
    /// The arguments that show clang its view of the files.
    pub view: Vec<OsString>,
    /// The description of the view.
    pub description: Value,
    pub types: Arc<KernelTypes>,
}

/// Returns the confinement in which this clang compiles on this kernel. Fails with the reasons if
/// clang could read more than headers, unless `lax`.
pub fn choose(
    clang: &Path,
    multiarch: Option<&Path>,
    limits: CompileLimits,
    lax: bool,
) -> Result<Sandbox, String> {
    let headers: Vec<PathBuf> = header_directories(clang)
        .into_iter()
        .chain(multiarch.map(Path::to_owned))
        .collect();
    let failed = |error| format!("the compiler's view of files can't be made: {error}");
    let types = Arc::new(KernelTypes::new().map_err(failed)?);
    let view = HeaderFiles::new(&headers, &types).map_err(failed)?;
    let description = view.description;
    let arguments: Vec<OsString> = view.arguments.into_iter().map(OsString::from).collect();
    let files: Arc<[_]> = view.files.into();
    let allowed = allowed(clang, headers, limits);
    let all = Confinement::new(&allowed, Arc::clone(&files));
    let mut reasons: Vec<String> = all
        .lacking()
        .iter()
        .map(|lack| lack.describe().to_owned())
        .collect();
    let fits = works(clang, &arguments, &all);
    if let Err(error) = &fits {
        reasons.push(format!(
            "confined, it does not compile, it may be a script or lie in an unusual place ({error})"
        ));
    }
    let confinement = match (reasons.is_empty(), fits) {
        (true, _) => all,
        (false, _) if !lax => return Err(refusal(&reasons)),
        (false, Ok(())) => all,
        (false, Err(_)) => Confinement::limits_only(&allowed, files),
    };
    if !reasons.is_empty() {
        let reasons = reasons.join("; ");
        tracing::warn!(
            reasons,
            "the compiler is not confined: a client that may send sources may read this host's files"
        );
    }
    Ok(Sandbox {
        confinement,
        view: arguments,
        description,
        types,
    })
}

fn refusal(reasons: &[String]) -> String {
    format!(
        "the compiler can't be confined: {}; provide the missing parts, or start the daemon with \
         --allow-unconfined-compiler if clients that send sources may read this host's files",
        reasons.join("; ")
    )
}

fn allowed(clang: &Path, headers: Vec<PathBuf>, limits: CompileLimits) -> Allowed {
    let mut read = headers;
    read.extend(
        LINKED
            .into_iter()
            .filter_map(|link| Path::new(link).canonicalize().ok()),
    );
    let mut run = libraries(clang);
    // The loader looks in these directories first, and does not need its cache, which lists the
    // installed libraries.
    let directories: Vec<&Path> = run.iter().filter_map(|library| library.parent()).collect();
    let libraries = std::env::join_paths(directories).unwrap_or_default();
    run.extend(clang.canonicalize());
    let CompileLimits {
        memory,
        data,
        cpu_time,
        ..
    } = limits;
    Allowed {
        read,
        run,
        libraries,
        memory,
        data,
        cpu_time,
        open_files: FILES,
    }
}

/// Returns the dynamic loader and the shared libraries of clang; the loader lists them on request.
fn libraries(clang: &Path) -> Vec<PathBuf> {
    let output = child::command(clang)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let paths = text
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Returns the directories in which clang looks for headers, by its own report.
fn header_directories(clang: &Path) -> Vec<PathBuf> {
    let output = child::command(clang)
        .args(["-target", "bpf", "-E", "-v", "-x", "c", "-"])
        .stdin(Stdio::null())
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
        .unwrap_or_default();
    text.lines()
        .skip_while(|line| !line.starts_with("#include <...>"))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .map(|line| PathBuf::from(line.trim()))
        .collect()
}

/// Tries to compile. The error is clang's message.
fn works(clang: &Path, view: &[OsString], confinement: &Confinement) -> Result<(), String> {
    let mut command = child::command(clang);
    confinement.apply(&mut command);
    command.args(view).args([
        "-target",
        "bpf",
        "-fintegrated-cc1",
        "-x",
        "c",
        "-c",
        "-",
        "-o",
        "-",
    ]);
    let spawned = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| error.to_string())?;
    // A child that does not take its input fails, and its exit status says so.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(TRIAL));
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text
        .lines()
        .next()
        .map_or_else(|| output.status.to_string(), str::to_owned))
}
