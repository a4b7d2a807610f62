//! Certificates of a server and of its client, by one authority.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// Files in PEM: `authority`, `other` (another authority), `server`, `server-key`, `client`, `client-key`.
pub struct Certificates(PathBuf);

impl Certificates {
    pub fn new(directory: &Path) -> Result<Self> {
        let files = Self(directory.join("certificates"));
        fs::create_dir(&files.0)?;
        let authority = |name: &str| -> Result<_> {
            let mut params = CertificateParams::new(Vec::new())?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
        };
        let (own, other) = (authority("authority")?, authority("other")?);
        fs::write(files.path("authority"), own.pem())?;
        fs::write(files.path("other"), other.pem())?;
        for (name, usage) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            fs::write(files.path(name), params.signed_by(&key, &own)?.pem())?;
            fs::write(files.path(&format!("{name}-key")), key.serialize_pem())?;
        }
        Ok(files)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
