//! TLS of receivers: authorities, and the certificate that the stream shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::receiver::SendError;

/// Files in PEM. They are read again for each connection, so that new certificates need no new
/// start.
#[derive(Clone, Debug, Default)]
pub struct ReceiverTls {
    /// Authorities; those of the system if `None`.
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl ReceiverTls {
    /// Reads the files. An error names the file.
    pub fn config(&self) -> Result<Arc<ClientConfig>, SendError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SendError::caused("TLS is not available", &error))?
            .with_root_certificates(self.roots()?);
        let Some(cert) = &self.cert else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let path = self.key.as_ref().unwrap_or(cert);
        let key = PrivateKeyDer::from_pem_file(path).map_err(|error| {
            SendError::caused(&format!("{}: no private key", path.display()), &error)
        })?;
        let config = builder.with_client_auth_cert(certificates(cert)?, key);
        config
            .map(Arc::new)
            .map_err(|error| SendError::caused(&cert.display().to_string(), &error))
    }

    fn roots(&self) -> Result<RootCertStore, SendError> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                for authority in certificates(path)? {
                    let added = roots.add(authority);
                    added
                        .map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
                }
            }
            None => {
                // rustls refuses some of the system's authorities, and the stream uses all others.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(SendError::new(
                        "the system has no authorities for TLS: name a file as ca",
                    ));
                }
            }
        }
        Ok(roots)
    }
}

/// Reads the certificates in a file; an error if there are none.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SendError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates =
        read.map_err(|error| SendError::caused(&path.display().to_string(), &error))?;
    if certificates.is_empty() {
        return Err(SendError::new(format!(
            "{} holds no certificate",
            path.display()
        )));
    }
    Ok(certificates)
}
