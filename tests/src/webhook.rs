//! Signed notifications, as a receiver checks them.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Returns the line of a file of keys.
pub fn key_line(key: &str) -> String {
    format!("whsec_{}\n", STANDARD.encode(key))
}

/// Checks the signatures of a message as a receiver does that knows this key. `header` returns a
/// header by its name in lower case.
pub fn is_signed(header: impl Fn(&str) -> Option<String>, body: &[u8], key: &str) -> Result<bool> {
    let header = |name: &str| header(name).with_context(|| format!("no {name}"));
    let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    ensure!(!id.contains('.') && id.starts_with("msg_"), "{id}");
    let sent: i64 = timestamp.parse()?;
    ensure!(
        (jiff::Timestamp::now().as_second() - sent).abs() < 300,
        "{timestamp}"
    );
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    Ok(header("webhook-signature")?.split(' ').any(|signature| {
        let signature = signature
            .strip_prefix("v1,")
            .and_then(|encoded| STANDARD.decode(encoded).ok());
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key");
        mac.update(&signed);
        signature.is_some_and(|signature| mac.verify_slice(&signature).is_ok())
    }))
}
