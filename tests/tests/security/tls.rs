//! TLS: which certificates are accepted, and how certificates are exchanged while clients read.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use twinprobe_tests::wait::{EndOnDrop, PATIENCE};
use twinprobe_tests::{binary, http};

use crate::scene::{Scene, until_closed};

const LIMIT: Duration = PATIENCE;
pub const NAME: &str = "probe.example";
const CLIENTS: usize = 64;

pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// Files of certificates and keys.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        fs::write(self.path(name), content)?;
        Ok(self.path(name))
    }

    /// Writes the certificate of the daemon, and the certificate of the authority that has signed
    /// it.
    pub fn serve(&self, authority: &Authority) -> Result<()> {
        let (certificate, key) = signed(
            authority,
            ExtendedKeyUsagePurpose::ServerAuth,
            &[NAME, "127.0.0.1"],
        )?;
        self.write("cert", &certificate)?;
        self.write("key", &key)?;
        self.write("authority", &authority.pem())?;
        Ok(())
    }

    pub fn arguments(&self) -> String {
        let directory = self.0.path().display();
        format!(
            "--listen 127.0.0.1:0 --tls-cert {directory}/cert --tls-key {directory}/key --client-ca {directory}/clients"
        )
    }
}

pub fn authority(name: &str) -> Result<Authority> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Returns a certificate and its key.
pub fn signed(
    authority: &Authority,
    usage: ExtendedKeyUsagePurpose,
    names: &[&str],
) -> Result<(String, String)> {
    let mut params = CertificateParams::new(
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    )?;
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    Ok((
        params.signed_by(&key, authority)?.pem(),
        key.serialize_pem(),
    ))
}

/// Returns the authorities that a client trusts.
fn believing(authorities: &[&Authority]) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// Does the handshake and sends one request. Returns the status of the answer, and the daemon's
/// certificate.
fn get(stream: TcpStream, config: &Arc<ClientConfig>, path: &str) -> Result<(u16, Vec<u8>)> {
    let connection = ClientConnection::new(Arc::clone(config), ServerName::try_from(NAME)?)?;
    let mut stream = StreamOwned::new(connection, stream);
    let answer = http::exchange(&mut stream, "GET", path, &[], b"")?;
    let certificate = stream
        .conn
        .peer_certificates()
        .and_then(<[_]>::first)
        .context("a certificate")?;
    Ok((answer.status, certificate.to_vec()))
}

/// Runs `twinprobe list` in the daemon's namespace.
fn list(scene: &Scene, arguments: &[(&str, &Path)]) -> Result<Output> {
    let mut command = std::process::Command::new(binary()?);
    command.args(["list", "--server", &format!("https://{}", scene.tcp(0)?)]);
    for (option, path) in arguments {
        command.arg(option).arg(path);
    }
    Ok(scene.topology.monitor().enter(|| command.output())??)
}

#[test]
fn each_end_believes_its_own_authorities_only() -> Result<()> {
    let files = Files::new()?;
    let (ours, clients, strangers) = (
        authority("ours")?,
        authority("clients")?,
        authority("strangers")?,
    );
    files.serve(&ours)?;
    files.write("clients", &clients.pem())?;
    let roles = files.write("roles", "console.example viewer\n")?;
    let scene = Scene::new(&format!(
        "{} --client-roles {}",
        files.arguments(),
        roles.display()
    ))?;
    let authority = files.path("authority");

    let (certificate, key) = signed(
        &clients,
        ExtendedKeyUsagePurpose::ClientAuth,
        &["console.example"],
    )?;
    let (certificate, key) = (
        files.write("c.crt", &certificate)?,
        files.write("c.key", &key)?,
    );
    let shown = [
        ("--ca", &*authority),
        ("--cert", &*certificate),
        ("--key", &*key),
    ];
    let listed = list(&scene, &shown)?;
    assert!(listed.status.success(), "{listed:?}");
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains('p'),
        "{listed:?}"
    );

    let (certificate, key) = signed(
        &strangers,
        ExtendedKeyUsagePurpose::ClientAuth,
        &["console.example"],
    )?;
    let (certificate, key) = (
        files.write("s.crt", &certificate)?,
        files.write("s.key", &key)?,
    );
    let shown = [
        ("--ca", &*authority),
        ("--cert", &*certificate),
        ("--key", &*key),
    ];
    let refused = list(&scene, &shown)?;
    assert_eq!(
        refused.status.code(),
        Some(1),
        "a stranger's certificate: {refused:?}"
    );
    // The client does not know the daemon.
    let strange = files.write("strange", &strangers.pem())?;
    for arguments in [&[("--ca", &*strange)][..], &[]] {
        let refused = list(&scene, arguments)?;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("certificate"),
            "{refused:?}"
        );
    }
    // A client without encryption gets no answer.
    let mut stream = scene.connect_tcp(0)?;
    std::io::Write::write_all(&mut stream, b"GET /healthz HTTP/1.1\r\nhost: l\r\n\r\n")?;
    assert!(!String::from_utf8_lossy(&until_closed(stream)?).contains("HTTP"));
    Ok(())
}

#[test]
fn a_handshake_that_does_not_come_is_not_waited_for() -> Result<()> {
    let files = Files::new()?;
    let ours = authority("ours")?;
    files.serve(&ours)?;
    files.write("clients", &ours.pem())?;
    let scene = Scene::new(&format!("{} --header-timeout 1", files.arguments()))?;
    let begun = Instant::now();
    until_closed(scene.connect_tcp(0)?)?;
    assert!(
        begun.elapsed() >= Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    // The request after a handshake has the same time.
    let connection = ClientConnection::new(believing(&[&ours])?, ServerName::try_from(NAME)?)?;
    let mut stream = StreamOwned::new(connection, scene.connect_tcp(0)?);
    std::io::Write::write_all(&mut stream, b"GET /heal")?;
    until_closed(&mut stream.sock)?;
    Ok(())
}

/// New connections get the new certificate immediately, and no request of 64 clients fails
/// meanwhile. Files with mistakes change nothing.
#[test]
fn certificates_are_exchanged_while_clients_read() -> Result<()> {
    let files = Files::new()?;
    let authorities = [authority("a")?, authority("b")?];
    files.serve(&authorities[0])?;
    files.write("clients", &authorities[0].pem())?;
    let scene = Scene::new(&files.arguments())?;
    let believing = believing(&[&authorities[0], &authorities[1]])?;
    let address = scene.tcp(0)?;
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen = |path| -> Result<Vec<u8>> {
        let stream = scene.connect_tcp(0)?;
        let (status, certificate) = get(stream, &believing, path)?;
        ensure!(status < 500, "{status}");
        Ok(certificate)
    };
    thread::scope(|scope| -> Result<()> {
        let ended = EndOnDrop(&over);
        let readers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (over, answers, believing) = (&over, &answers, &believing);
                let namespace = scene.topology.monitor();
                scope.spawn(move || -> Result<()> {
                    namespace.enter(|| {
                        while !over.load(Ordering::Acquire) {
                            let stream = TcpStream::connect(address)?;
                            let (status, _) = get(stream, believing, "/healthz")?;
                            ensure!(status < 500, "{status}");
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    })?
                })
            })
            .collect();
        let mut before = seen("/healthz")?;
        for round in 1..=10 {
            files.serve(&authorities[round % 2])?;
            let log = scene
                .daemon
                .log()
                .matches("certificates were read again")
                .count();
            scene.daemon.signal(libc::SIGHUP);
            twinprobe_tests::wait::wait_for("the new certificate", LIMIT, || {
                ensure!(
                    scene
                        .daemon
                        .log()
                        .matches("certificates were read again")
                        .count()
                        > log
                );
                Ok(())
            })?;
            let now = seen("/healthz")?;
            ensure!(now != before, "round {round}: the old certificate");
            before = now;
        }
        for (name, content) in [
            ("cert", "no PEM"),
            ("cert", ""),
            ("key", "no PEM"),
            ("clients", "no PEM"),
        ] {
            let good = fs::read_to_string(files.path(name))?;
            refused(&scene, &files, name, content)?;
            files.write(name, &good)?;
            ensure!(
                seen("/healthz")? == before,
                "{name} {content:?} has changed something"
            );
        }
        let (_, other_key) = signed(
            &authorities[0],
            ExtendedKeyUsagePurpose::ServerAuth,
            &[NAME],
        )?;
        refused(&scene, &files, "key", &other_key)?;
        ensure!(
            seen("/healthz")? == before,
            "a key of another certificate has changed something"
        );
        drop(ended);
        for reader in readers {
            reader.join().expect("no panic")?;
        }
        Ok(())
    })?;
    let answers = answers.load(Ordering::Relaxed);
    assert!(answers > 10 * CLIENTS, "{answers} answers");
    Ok(())
}

/// Lets the daemon read a file with a mistake, and waits for its error.
fn refused(scene: &Scene, files: &Files, name: &str, content: &str) -> Result<()> {
    files.write(name, content)?;
    let said = || {
        scene
            .daemon
            .log()
            .matches("the daemon keeps the old ones")
            .count()
    };
    let before = said();
    scene.daemon.signal(libc::SIGHUP);
    twinprobe_tests::wait::wait_for("a word about the mistake", LIMIT, || {
        ensure!(said() > before, "nothing about {name}");
        Ok(())
    })
}
