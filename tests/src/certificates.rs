//! Certificates of a server and of its client, by one authority.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

/// Files in PEM: `authority`, `other` (another authority), `server`, `server-key`, `client`,
/// `client-key`.
pub struct Certificates {
    directory: PathBuf,
    /// The names of the server.
    names: Vec<String>,
}

impl Certificates {
    /// Writes those of a server at 127.0.0.1.
    pub fn new(directory: &Path) -> Result<Self> {
        Self::of(directory.join("certificates"), vec!["127.0.0.1".to_owned()])
    }

    /// Writes those of a server with these names into a new directory. The name of the client is
    /// 127.0.0.1.
    pub fn of(directory: PathBuf, names: Vec<String>) -> Result<Self> {
        fs::create_dir(&directory)?;
        let files = Self { directory, names };
        files.renew()?;
        Ok(files)
    }

    /// Replaces all of them: nothing that the earlier authorities have signed is valid any more.
    pub fn renew(&self) -> Result<()> {
        let authority = |name: &str| -> Result<_> {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
        };
        let (own, other) = (authority("authority")?, authority("other")?);
        fs::write(self.path("authority"), own.pem())?;
        fs::write(self.path("other"), other.pem())?;
        for (name, names, usage) in [
            (
                "server",
                self.names.clone(),
                ExtendedKeyUsagePurpose::ServerAuth,
            ),
            (
                "client",
                vec!["127.0.0.1".to_owned()],
                ExtendedKeyUsagePurpose::ClientAuth,
            ),
        ] {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            fs::write(self.path(name), params.signed_by(&key, &own)?.pem())?;
            fs::write(self.path(&format!("{name}-key")), key.serialize_pem())?;
        }
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}
