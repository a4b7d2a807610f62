//! The container image: built, and run by podman and runc with the capabilities and the filter of
//! system calls that are documented, and no more.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use twinprobe_tests::sample::{total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Directories, Topology, binary};

use crate::tools::{root, run, shown};

const NAME: &str = "twinprobe-image-test";
/// The SHA-256 of the token `one`.
const TOKEN: &str = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";

/// A podman with images and containers of its own.
struct Podman {
    storage: tempfile::TempDir,
}

impl Podman {
    /// Returns the reason where podman can't be used.
    fn find() -> Result<Result<Self, String>> {
        for command in ["podman", "runc"] {
            if Command::new(command).arg("--version").output().is_err() {
                return Ok(Err(format!(
                    "there is no {command} (Debian: apt-get install podman runc)"
                )));
            }
        }
        let podman = Self {
            storage: tempfile::Builder::new()
                .prefix("twinprobe-podman-")
                .tempdir_in("/var/tmp")?,
        };
        let output = podman.command(&["info"]).output()?;
        Ok(if output.status.success() {
            Ok(podman)
        } else {
            Err(shown(&output))
        })
    }

    fn words(&self) -> Vec<String> {
        let at = |name: &str| self.storage.path().join(name).display().to_string();
        let own = [
            "podman",
            "--root",
            &at("root"),
            "--runroot",
            &at("run"),
            "--tmpdir",
            &at("tmp"),
        ];
        let runtime = [
            "--storage-driver",
            "vfs",
            "--cgroup-manager",
            "cgroupfs",
            "--runtime",
            "runc",
            "--events-backend",
            "none",
        ];
        own.into_iter().chain(runtime).map(str::to_owned).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self
            .command(&["rm", "--all", "--force", "--time", "0"])
            .output();
    }
}

/// A container of the image in the namespace of `mon0`.
struct Scene {
    podman: Podman,
    topology: Topology,
    directories: Directories,
}

impl Scene {
    fn at(&self, name: &str) -> PathBuf {
        self.directories.temporary().join(name)
    }

    /// Starts a container with what deploy/Containerfile documents.
    fn start(&self) -> Result<()> {
        let filter = root().join("deploy/helm/twinprobe/files/seccomp.json");
        let volume = |from: &Path, to: &str| format!("{}:{to}", from.display());
        let namespace = format!("ns:{}", self.topology.monitor().path().display());
        let mut command =
            self.podman
                .command(&["run", "--detach", "--name", NAME, "--network", &namespace]);
        command.args([
            "--cap-drop",
            "all",
            "--security-opt",
            "no-new-privileges",
            "--read-only",
            "--tmpfs",
            "/tmp",
        ]);
        for capability in ["bpf", "perfmon", "net_admin", "setuid", "setgid", "kill"] {
            command.args(["--cap-add", capability]);
        }
        command.args([
            "--ulimit",
            "nofile=1024:4096",
            "--ulimit",
            "nproc=4096:4096",
            "--log-driver",
            "k8s-file",
        ]);
        command
            .arg("--security-opt")
            .arg(format!("seccomp={}", filter.display()));
        command
            .arg("--volume")
            .arg(volume(self.directories.bpffs(), "/sys/fs/bpf"));
        command
            .arg("--volume")
            .arg(volume(&self.at("state"), "/var/lib/twinprobe"));
        command
            .arg("--volume")
            .arg(volume(&self.at("tls"), "/etc/twinprobe:ro"));
        command.args([
            NAME,
            "serve",
            "--listen",
            "0.0.0.0:9470",
            "--host",
            "localhost",
        ]);
        command.args([
            "--tls-cert",
            "/etc/twinprobe/tls.crt",
            "--tls-key",
            "/etc/twinprobe/tls.key",
        ]);
        command.args([
            "--tokens",
            "/etc/twinprobe/tokens",
            "--listen-metrics",
            "127.0.0.1:9469",
        ]);
        run(&mut command)?;
        wait_for("the container", PATIENCE, || {
            self.ask("GET", "/readyz", None).map(drop)
        })
        .with_context(|| self.log())
    }

    fn log(&self) -> String {
        self.podman
            .command(&["logs", NAME])
            .output()
            .map_or_else(|error| error.to_string(), |output| shown(&output))
    }

    /// Sends a request over TLS, with the token.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("https://localhost:9470{path}");
        let authority = self.at("tls/tls.crt").display().to_string();
        let mut arguments = vec![
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--max-time",
            "60",
            "--cacert",
            &authority,
        ];
        arguments.extend(["--header", "Authorization: Bearer one", "--request", method]);
        let text = body.map(Value::to_string);
        if let Some(text) = &text {
            arguments.extend([
                "--header",
                "Content-Type: application/json",
                "--data-binary",
                text,
            ]);
        }
        arguments.push(&url);
        let answer = self.topology.monitor().output("curl", &arguments)?;
        Ok(serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    /// A stream in the container sends windows over HTTP without TLS, even where the system has no
    /// authorities.
    fn stream_sends_to_a_plain_receiver(&self) -> Result<()> {
        let listener = self
            .topology
            .monitor()
            .enter(|| TcpListener::bind("127.0.0.1:0"))??;
        let to = format!("prometheus+http://{}", listener.local_addr()?);
        let counter = Arc::new(AtomicUsize::new(0));
        let received = Arc::clone(&counter);
        // The thread ends with the test.
        thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .filter_map(|connection| take(connection).ok())
                .for_each(|length| {
                    counter.fetch_add(length, Ordering::Relaxed);
                });
        });
        let nowhere = [
            "--env",
            "SSL_CERT_FILE=/none",
            "--env",
            "SSL_CERT_DIR=/none",
        ];
        let mut command = self.podman.command(&["exec"]);
        command.args(nowhere).arg(NAME).args([
            "twinprobe-stream",
            "--from",
            "https://localhost:9470",
        ]);
        command.args([
            "--ca",
            "/etc/twinprobe/tls.crt",
            "--token-file",
            "/etc/twinprobe/token",
        ]);
        run(command.args(["--to", &to, "--once"])).with_context(|| self.log())?;
        ensure!(
            received.load(Ordering::Relaxed) > 0,
            "the receiver got nothing"
        );
        Ok(())
    }

    fn counted(&self) -> Result<u64> {
        Ok(total(
            &self.ask("GET", "/v1/probes/p/metrics", None)?,
            "ingress",
            "packets",
        ))
    }
}

/// Reads a request, and answers that it was taken. Returns the bytes of its body.
fn take(mut connection: TcpStream) -> Result<usize> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(size) = lower.strip_prefix("content-length: ") {
            length = size.trim().parse()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    connection
        .write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    Ok(length)
}

#[test]
fn the_image_monitors_with_few_privileges_and_is_replaced_without_losing_a_packet() -> Result<()> {
    let podman = match Podman::find()? {
        Ok(podman) => podman,
        Err(reason) => {
            println!("NOT TESTED, without podman: {reason}");
            return Ok(());
        }
    };
    let scene = Scene {
        podman,
        topology: Topology::new()?,
        directories: Directories::new()?,
    };
    let context = scene.at("context");
    let mut build = Command::new("sh");
    build
        .arg(root().join("deploy/image/build.sh"))
        .arg(NAME)
        .arg(binary()?);
    run(build
        .env("CONTEXT", &context)
        .env("PODMAN", scene.podman.words().join(" ")))?;
    check_contents(&context.join("rootfs"))?;

    for directory in [
        scene.at("state"),
        scene.at("tls"),
        scene.directories.bpffs().to_owned(),
    ] {
        fs::create_dir_all(directory)?;
    }
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
    fs::write(scene.at("tls/tls.crt"), certificate.pem())?;
    fs::write(scene.at("tls/tls.key"), key.serialize_pem())?;
    fs::write(scene.at("tls/tokens"), format!("test admin {TOKEN}\n"))?;
    fs::write(scene.at("tls/token"), "one\n")?;

    scene.start()?;
    let capabilities = scene.ask("GET", "/v1/capabilities", None)?;
    ensure!(
        capabilities["compiler"]["confined"] == true,
        "{}",
        capabilities["compiler"]
    );
    let metrics = json!([{ "name": "packets", "map": "packets", "snapshot": true }]);
    let ingress = json!({ "source": xdp_counter("XDP_PASS"), "metrics": metrics });
    let probe = json!({ "interface": "mon0", "ingress": ingress });
    scene
        .ask("PUT", "/v1/probes/p", Some(&probe))
        .with_context(|| scene.log())?;
    let mut generator = Generator::new(
        scene.topology.generator(),
        "gen0",
        GeneratorOptions::default(),
    )?;
    generator.send(1000)?;
    ensure!(scene.counted()? == 1000, "{}", scene.log());
    // kubelet asks without credentials.
    for path in ["healthz", "readyz"] {
        scene.topology.monitor().run(
            "curl",
            &[
                "--silent",
                "--fail",
                &format!("http://127.0.0.1:9469/{path}"),
            ],
        )?;
    }

    // The client is in the image, and so are the commands of the chart's init containers.
    let version = scene
        .podman
        .command(&["exec", NAME, "twinprobe", "--version"])
        .output()?;
    ensure!(version.status.success(), "{}", shown(&version));
    scene.stream_sends_to_a_plain_receiver()?;
    let mounted = scene
        .podman
        .command(&["exec", NAME, "sh", "-c", "mountpoint -q /sys/fs/bpf"])
        .output()?;
    ensure!(mounted.status.success(), "{}", shown(&mounted));
    let status = scene.podman.command(&[
        "exec",
        NAME,
        "sh",
        "-c",
        "while read -r line; do echo $line; done </proc/1/status",
    ]);
    let status = run(&mut { status })?;
    // BPF, PERFMON, NET_ADMIN, SETUID, SETGID, KILL.
    for line in [
        "CapEff: 000000c0000010e0",
        "CapBnd: 000000c0000010e0",
        "NoNewPrivs: 1",
        "Seccomp: 2",
    ] {
        ensure!(status.contains(line), "{line}: {status}");
    }

    // The probe continues counting without a container.
    run(&mut scene
        .podman
        .command(&["rm", "--force", "--time", "0", NAME]))?;
    generator.send(1000)?;
    scene.start()?;
    generator.send(1000)?;
    ensure!(scene.counted()? == 3000, "{}", scene.log());
    ensure!(
        scene.log().contains("a running probe was adopted"),
        "{}",
        scene.log()
    );
    scene.ask("DELETE", "/v1/probes/p", None)?;
    Ok(())
}

/// Checks the size of the image and its bill of materials.
fn check_contents(rootfs: &Path) -> Result<()> {
    let bill: Value = serde_json::from_str(&fs::read_to_string(
        rootfs.join("usr/share/sbom/twinprobe.cdx.json"),
    )?)?;
    let components = bill["components"].as_array().context("components")?;
    let authorities = fs::read_to_string(rootfs.join("etc/ssl/certs/ca-certificates.crt"))?;
    ensure!(
        authorities.matches("BEGIN CERTIFICATE").count() > 50,
        "the authorities of TLS"
    );
    for name in [
        "libc6",
        "clang-14",
        "libbpf-dev",
        "linux-libc-dev",
        "dash",
        "ca-certificates",
    ]
    .into_iter()
    .chain(["tokio", "aya-obj", "rustls"])
    {
        let known = |component: &&Value| {
            let found = component["name"].as_str().unwrap_or_default();
            found == name || name.starts_with("clang") && found.starts_with("clang")
        };
        let component = components
            .iter()
            .find(known)
            .with_context(|| format!("no {name} in the bill of materials"))?;
        ensure!(
            component["purl"]
                .as_str()
                .is_some_and(|purl| purl.starts_with("pkg:")),
            "{component}"
        );
    }
    ensure!(
        bill["bomFormat"] == "CycloneDX" && bill["specVersion"] == "1.5",
        "{bill}"
    );
    // The programs here are not optimized, and several times as large as released programs. `du`
    // runs inside of the directory, because the directory's own name might match the excluded
    // pattern.
    let mut sizes = Command::new("du");
    let sizes = sizes.args([
        "--summarize",
        "--block-size=1M",
        "--exclude=twinprobe*",
        ".",
    ]);
    let sizes = run(sizes.current_dir(rootfs))?;
    let size: u64 = sizes
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()?;
    // Debian's clang and LLVM take 200 MiB of the image.
    ensure!(size < 300, "{size} MiB");
    for program in ["twinprobe", "twinprobe-stream", "twinprobe-operator"] {
        ensure!(rootfs.join("usr/bin").join(program).exists(), "{program}");
    }
    Ok(())
}
