//! Lists the files of the overview's page, which the console's build makes; a build without node
//! has none.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut list = String::from(
        "/// The files of the page; none if it was not built.\nconst FILES: &[PageFile] = &[\n",
    );
    let mut paths: Vec<_> = fs::read_dir(&dist)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let is_compressed = name.ends_with(".gz") || name.ends_with(".br");
        if name.starts_with("fleet") && !is_compressed {
            list +=
                &format!("    PageFile {{ name: {name:?}, content: include_bytes!({path:?}) }},\n");
        }
    }
    fs::write(Path::new(&out).join("page.rs"), list + "];\n")
}
