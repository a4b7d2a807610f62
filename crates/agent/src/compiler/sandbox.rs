//! Choice of the confinement of clang while it reads a client's source: `#include "/etc/shadow"` would show the file in
//! the diagnostics, `.incbin` in the object.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::compiler::child::{self, Limits};
use crate::compiler::confine::confine::{Allowed, Confinement, User};

/// The directories of the dynamic loader and of shared libraries.
const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
/// The header directories that distributions may keep elsewhere, behind a symbolic link.
const LINKED: [&str; 4] =
    ["/usr/include/linux", "/usr/include/asm", "/usr/include/asm-generic", "/usr/include/bpf"];
/// A source that compiles only where the compiler's own headers can be read.
const TRIAL: &[u8] = b"#include <stdarg.h>\nva_list *trial;\n";
/// The limit of open files of the compiler.
const FILES: u64 = 256;

/// Returns the tightest confinement in which this clang still compiles on this kernel.
pub fn choose(clang: &Path, multiarch: Option<&Path>, limits: Limits) -> Confinement {
    let allowed = allowed(clang, multiarch, limits);
    let all = Confinement::new(&allowed, User::Nobody);
    if works(clang, &all) {
        if !all.is_tight() {
            tracing::warn!(
                "this kernel can't keep the compiler from reading files: whoever may send sources may read what \
                 everybody on this host can"
            );
        }
        return all;
    }
    let same_user = Confinement::new(&allowed, User::Same);
    if works(clang, &same_user) {
        tracing::warn!("the compiler runs as the daemon's user: the user nobody can't run it");
        return same_user;
    }
    tracing::warn!(
        "the compiler can't be confined, it may be a script or keep its files in an unusual place: whoever may \
         send sources can read this host's files"
    );
    Confinement::limits_only(&allowed)
}

fn allowed(clang: &Path, multiarch: Option<&Path>, limits: Limits) -> Allowed {
    let mut read = header_directories(clang);
    read.extend(multiarch.map(Path::to_owned));
    read.extend(LINKED.into_iter().filter_map(|link| Path::new(link).canonicalize().ok()));
    read.push("/etc/ld.so.cache".into());
    let mut run: Vec<PathBuf> = LIBRARIES.iter().map(PathBuf::from).collect();
    if let Ok(program) = clang.canonicalize() {
        // LLVM's own libraries are in `lib` beside `bin`.
        let prefix = program.parent().and_then(Path::parent);
        run.extend(prefix.into_iter().flat_map(|prefix| [prefix.join("lib"), prefix.join("lib64")]));
        run.push(program);
    }
    Allowed { read, run, memory: limits.memory, cpu_time: limits.time, open_files: FILES }
}

/// Returns the directories in which clang says that it looks for headers.
fn header_directories(clang: &Path) -> Vec<PathBuf> {
    let output = child::command(clang)
        .args(["-target", "bpf", "-E", "-v", "-x", "c", "-"])
        .stdin(Stdio::null())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    text.lines()
        .skip_while(|line| !line.starts_with("#include <...>"))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .map(|line| PathBuf::from(line.trim()))
        .collect()
}

fn works(clang: &Path, confinement: &Confinement) -> bool {
    let mut command = child::command(clang);
    confinement.apply(&mut command);
    command.args(["-target", "bpf", "-fintegrated-cc1", "-x", "c", "-c", "-", "-o", "-"]);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = spawned else { return false };
    // A child that does not take its input fails, and its exit status says so.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(TRIAL));
    child.wait().is_ok_and(|status| status.success())
}
