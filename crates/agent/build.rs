//! Lists the files of the web console; a build without node has none.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("console.rs"), console()?)
}

/// Returns the list of files that `make console` has built. Each file has two compressed versions
/// beside it.
fn console() -> io::Result<String> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut list = String::from(
        "/// The files of the console; none if it was not built.\nconst FILES: &[ConsoleFile] = &[\n",
    );
    let mut names: Vec<_> = fs::read_dir(&dist)?.collect::<io::Result<_>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        let path = entry.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        // The operator serves the page of the fleet, not the daemon.
        if name.starts_with("fleet") {
            continue;
        }
        let (gzip, brotli) = (
            dist.join(format!("{name}.gz")),
            dist.join(format!("{name}.br")),
        );
        if gzip.is_file() && brotli.is_file() {
            let bytes = |path: &Path| format!("include_bytes!({path:?})");
            let (plain, gzip, brotli) = (bytes(&path), bytes(&gzip), bytes(&brotli));
            list += &format!(
                "    ConsoleFile {{ name: {name:?}, plain: {plain}, gzip: {gzip}, brotli: {brotli} }},\n"
            );
        }
    }
    Ok(list + "];\n")
}
