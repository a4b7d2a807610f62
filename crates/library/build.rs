//! Lists the configurations and the pages of the library of probes, and its rules: a new folder in
//! `probes/` and a new file in `probes/rules/` need no line of Rust.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let probes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../probes");
    println!("cargo::rerun-if-changed={}", probes.display());
    let mut list = String::new();
    for entry in fs::read_dir(&probes)? {
        let folder = entry?.path();
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let configuration = folder.join(format!("{name}.json"));
        if configuration.is_file() {
            let readme = folder.join("README.md");
            list += &format!(
                "    ({name:?}, include_str!({configuration:?}), include_str!({readme:?})),\n"
            );
        }
    }
    let mut rules = String::new();
    for entry in fs::read_dir(probes.join("rules"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".yaml"));
        if let Some(name) = name {
            rules += &format!("    ({name:?}, include_str!({path:?})),\n");
        }
    }
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(
        Path::new(&out).join("probes.rs"),
        format!(
            "/// The names, configurations and pages of the library.\nconst CONFIGURATIONS: &[(&str, &str, &str)] = &[\n{list}];\n\n\
            /// The names and texts of the rules.\npub const RULES: &[(&str, &str)] = &[\n{rules}];\n"
        ),
    )
}
