//! TLS: the daemon's certificate and the authorities of clients, read again on a signal.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::listen::options::ListenOptions;
use twinprobe_access::names::{NameKind, canonical};
use twinprobe_state_files::trusted;

/// The encryption of new connections.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

#[derive(Debug)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl Tls {
    /// Reads the files of the options; `None` without files.
    pub fn load(options: &ListenOptions) -> anyhow::Result<Option<Arc<Self>>> {
        let (Some(certificate), Some(key)) = (options.tls_cert.clone(), options.tls_key.clone())
        else {
            return Ok(None);
        };
        let files = TlsFiles {
            certificate,
            key,
            client_ca: options.client_ca.clone(),
        };
        let current = RwLock::new(files.read()?);
        Ok(Some(Arc::new(Self { files, current })))
    }

    /// Reads the files again, for new connections. After an error nothing has changed.
    pub fn reload(&self) -> anyhow::Result<()> {
        let read = self.files.read()?;
        *self.current.write() = read;
        Ok(())
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read()))
    }
}

impl TlsFiles {
    fn read(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let chain = certificates(&self.certificate)?;
        let key = trusted::read(&self.key)
            .with_context(|| format!("{} can't be read", self.key.display()))?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .with_context(|| format!("{} holds no private key", self.key.display()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .context("TLS is not available")?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    let added = roots.add(authority);
                    added.with_context(|| {
                        format!("{} holds a damaged certificate", path.display())
                    })?;
                }
                // A client may show a token instead. Roles decide about clients that show neither
                // certificate nor token.
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .allow_unauthenticated()
                        .build()
                        .with_context(|| format!("{} can't be used", path.display()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).with_context(|| {
            format!(
                "{} and {} can't be used",
                self.certificate.display(),
                self.key.display()
            )
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Reads the certificates in a file; an error if there are none.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = trusted::read(path).with_context(|| format!("{} can't be read", path.display()))?;
    let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = read.with_context(|| format!("{} can't be read", path.display()))?;
    if certificates.is_empty() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(certificates)
}

/// Returns the subject alternative names of the first certificate, which was verified: DNS names,
/// mail addresses, URIs and IP addresses, each in the form of [`canonical`]. Names of other kinds
/// are left out.
pub fn names(chain: Option<&[CertificateDer<'_>]>) -> Arc<[String]> {
    let parsed = chain
        .and_then(<[_]>::first)
        .and_then(|leaf| Certificate::from_der(leaf).ok());
    let names = parsed.and_then(|leaf| leaf.tbs_certificate.get::<SubjectAltName>().ok().flatten());
    let names = names.iter().flat_map(|(_, names)| &names.0);
    names
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(canonical(NameKind::Dns, name.as_str())),
            GeneralName::Rfc822Name(name) => Some(canonical(NameKind::Email, name.as_str())),
            GeneralName::UniformResourceIdentifier(name) => {
                Some(canonical(NameKind::Uri, name.as_str()))
            }
            GeneralName::IpAddress(address) => {
                address_of(address.as_bytes()).map(|ip| canonical(NameKind::Ip, &ip.to_string()))
            }
            _ => None,
        })
        .collect()
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
