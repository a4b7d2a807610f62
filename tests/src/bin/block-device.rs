//! `block-device DIRECTORY BYTES` serves a disk that forgets, for `twinprobe_tests::disk`.

use std::path::Path;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().context("a directory")?;
    let size = arguments.next().context("a size")?.parse()?;
    twinprobe_tests::disk::serve(Path::new(&at), size)
}
