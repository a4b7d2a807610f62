//! Search for clang and its headers.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::compile::Compiler;
use crate::limits::CompileLimits;
use crate::sandbox::{self, Sandbox};

/// The environment variable that names the clang to use instead of one on PATH.
const VARIABLE: &str = "TWINPROBE_CLANG";
const NAMES: [&str; 7] = [
    "clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
];

/// The reason why no usable clang was found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    #[error("no clang on PATH (tried {}); install clang or set {VARIABLE}", NAMES.join(", "))]
    NotFound,
    #[error("could not run {}", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("{} --version failed ({status}): {stderr}", path.display())]
    Failed {
        path: PathBuf,
        status: std::process::ExitStatus,
        stderr: String,
    },
    #[error("{0}")]
    Unconfined(String),
}

impl Compiler {
    /// Finds clang: `TWINPROBE_CLANG`, else `clang`, else `clang-19` down to `clang-14` on PATH.
    /// Fails if that clang can't be confined, unless `lax`.
    pub fn discover(lax: bool) -> Result<Self, DiscoverError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let clang = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(named) => which(&named, &path).unwrap_or_else(|| PathBuf::from(named)),
            None => NAMES
                .iter()
                .find_map(|name| which(OsStr::new(name), &path))
                .ok_or(DiscoverError::NotFound)?,
        };
        Self::at(clang, lax)
    }

    /// Asks the clang at this path for its version and chooses its confinement.
    fn at(clang: PathBuf, lax: bool) -> Result<Self, DiscoverError> {
        let version = version(&clang)?;
        let multiarch = multiarch_include();
        let limits = CompileLimits::default();
        let sandbox = sandbox::choose(&clang, multiarch.as_deref(), limits, lax);
        let Sandbox {
            confinement,
            view: mut include,
            description,
            types,
        } = sandbox.map_err(DiscoverError::Unconfined)?;
        include.extend(
            multiarch
                .into_iter()
                .flat_map(|directory| ["-idirafter".into(), directory.into_os_string()]),
        );
        let view = Arc::new(description);
        Ok(Self {
            clang,
            version,
            include,
            view,
            limits,
            confinement,
            types,
            known: Arc::default(),
        })
    }
}

fn version(clang: &Path) -> Result<String, DiscoverError> {
    let output = Command::new(clang)
        .arg("--version")
        .output()
        .map_err(|source| DiscoverError::Run {
            path: clang.to_owned(),
            source,
        })?;
    if !output.status.success() {
        return Err(DiscoverError::Failed {
            path: clang.to_owned(),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Returns the file that a shell would run for `name`, as an absolute path because the child runs
/// in another directory.
fn which(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok();
    }
    std::env::split_paths(path)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
        .and_then(|file| std::path::absolute(file).ok())
}

/// Returns Debian's directory of `asm/types.h`, where only a compiler for the host looks. Other
/// systems have none.
fn multiarch_include() -> Option<PathBuf> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let directory = Path::new("/usr/include").join(triplet);
    directory.join("asm").is_dir().then_some(directory)
}
