//! Cloudflare's ebpf_exporter with one table, if installed.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use twinprobe_tests::Namespace;
use twinprobe_tests::wait::wait_for;

const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9435);
const PATIENCE: Duration = Duration::from_secs(20);
/// The path at which `setup/install.sh --bench` installs ebpf_exporter.
const INSTALLED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/bench-tools/bin/ebpf_exporter"
);

/// An exporter at work. A drop kills the process.
#[derive(Debug)]
pub struct EbpfExporter {
    child: Child,
    namespace: Namespace,
    _directory: TempDir,
}

impl EbpfExporter {
    /// Starts ebpf_exporter in a namespace, with an empty HASH of numbers. `None` if ebpf_exporter
    /// is not installed.
    pub fn start(namespace: &Namespace, entries: u32) -> Result<Option<Self>> {
        let Some(program) = program() else {
            return Ok(None);
        };
        let directory = tempfile::tempdir()?;
        let folder = directory.path();
        compile(entries, &folder.join("table.bpf.o"))?;
        fs::write(
            folder.join("table.yaml"),
            include_str!("../../peers/ebpf_exporter.yaml"),
        )?;
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        let said = File::create(folder.join("said"))?;
        let child = namespace.enter(|| {
            Command::new(&program)
                .arg("--config.dir")
                .arg(folder)
                .args([
                    "--config.names=table",
                    &format!("--web.listen-address={ADDRESS}"),
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(said)
                .spawn()
        })??;
        let exporter = Self {
            child,
            namespace: namespace.clone(),
            _directory: directory,
        };
        wait_for("ebpf_exporter", PATIENCE, || exporter.connect())?;
        Ok(Some(exporter))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the page of ebpf_exporter into `page`.
    pub fn scrape(&self, page: &mut Vec<u8>) -> Result<()> {
        page.clear();
        let mut stream = self.connect()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        stream.read_to_end(page)?;
        ensure!(
            page.starts_with(b"HTTP/1.0 200 "),
            "{}",
            String::from_utf8_lossy(&page[..page.len().min(200)])
        );
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        Ok(self.namespace.enter(|| TcpStream::connect(ADDRESS))??)
    }
}

impl Drop for EbpfExporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("ebpf_exporter"));
    [PathBuf::from(INSTALLED)]
        .into_iter()
        .chain(on_path)
        .find(|program| program.is_file())
}

/// Compiles the table. Its program is for XDP, to which ebpf_exporter does not attach: it still
/// serves the map.
fn compile(entries: u32, object: &Path) -> Result<()> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/bpf/export.bpf.c");
    let architecture = Command::new("cc")
        .arg("-print-multiarch")
        .output()
        .context("start cc")?
        .stdout;
    let include = format!("-I/usr/include/{}", String::from_utf8(architecture)?.trim());
    let define = format!("-DENTRIES={entries}");
    let output = Command::new("clang")
        .args([
            "-O2", "-g", "-target", "bpf", &define, &include, "-c", source, "-o",
        ])
        .arg(object)
        .output()
        .context("start clang")?;
    ensure!(
        output.status.success(),
        "clang: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
