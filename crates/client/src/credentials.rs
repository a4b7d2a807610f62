//! The credentials of a client, and the authorities that it trusts.

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Certificate, ClientBuilder, Identity};

use crate::error::{ClientError, HttpCause};

/// The credentials of a client. By default it shows none, and trusts the authorities of the system.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    authorities: Option<Vec<Certificate>>,
    identity: Option<Identity>,
    /// The header `Authorization`, which is not shown.
    authorization: Option<HeaderValue>,
}

impl Credentials {
    /// Trusts only these authorities (PEM).
    pub fn authorities(mut self, pem: &[u8]) -> Result<Self, ClientError> {
        let authorities = Certificate::from_pem_bundle(pem).map_err(unusable("authorities"))?;
        if authorities.is_empty() {
            return Err(ClientError::Credential("authorities", None));
        }
        self.authorities = Some(authorities);
        Ok(self)
    }

    /// Shows this certificate, with its chain and private key (PEM).
    pub fn identity(mut self, pem: &[u8]) -> Result<Self, ClientError> {
        self.identity = Some(Identity::from_pem(pem).map_err(unusable("certificate and key"))?);
        Ok(self)
    }

    /// Shows this token.
    pub fn token(mut self, token: &str) -> Result<Self, ClientError> {
        let header = HeaderValue::try_from(format!("Bearer {token}"))
            .ok()
            .filter(|_| !token.is_empty());
        let mut header = header.ok_or(ClientError::Credential("token", None))?;
        header.set_sensitive(true);
        self.authorization = Some(header);
        Ok(self)
    }

    /// Adds the credentials to an HTTP client for `https`, or for a connection without TLS.
    pub fn add_to(&self, builder: ClientBuilder, is_tls: bool) -> ClientBuilder {
        let headers = self
            .authorization
            .iter()
            .map(|header| (AUTHORIZATION, header.clone()));
        let builder = builder.default_headers(HeaderMap::from_iter(headers));
        let builder = match &self.authorities {
            Some(authorities) => builder.tls_certs_only(authorities.clone()),
            // A connection without TLS needs no authorities. Those of the system are hundreds of
            // files; a small container has none.
            None if !is_tls => builder.tls_certs_only([]),
            None => builder,
        };
        match &self.identity {
            Some(identity) => builder.identity(identity.clone()),
            None => builder,
        }
    }
}

fn unusable(what: &'static str) -> impl FnOnce(reqwest::Error) -> ClientError {
    move |error| ClientError::Credential(what, Some(HttpCause(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_not_shown() {
        let shown = format!("{:?}", Credentials::default().token("secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn what_is_no_credential_is_refused() {
        let credentials = Credentials::default;
        for token in ["", "a\nb"] {
            assert!(credentials().token(token).is_err(), "{token:?}");
        }
        assert!(credentials().authorities(b"no PEM").is_err());
        assert!(credentials().identity(b"no PEM").is_err());
    }
}
