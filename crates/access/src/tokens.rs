//! Bearer tokens. Only their SHA-256 is kept. A token is compared with all of them, each in
//! constant time: neither the file nor the time of an answer reveals anything about a token.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::lines::{self, Mistake, check_name};
use crate::principal::{Principal, Who};
use crate::role::Role;

/// The beginning of each token that [`generate`] makes. People and scanners recognise tokens by it.
const PREFIX: &str = "tp_";

/// The tokens of a file: one per line, `NAME ROLE SHA256HEX`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<KnownToken>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownToken {
    name: String,
    role: Role,
    digest: [u8; 32],
}

impl Tokens {
    /// Parses a file. Several tokens may have one name, so that a new token can be handed out
    /// before the old one is removed.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let (mut known, mut digests) = (Vec::new(), BTreeSet::new());
        lines::parse(text, |words| {
            let &[name, role, digest] = words else {
                return Err("a line is NAME ROLE SHA256HEX".to_owned());
            };
            check_name(name)?;
            let role = lines::role(role)?;
            let digest = digest_of(digest).ok_or(
                "the third word is not a SHA-256: 64 hexadecimal digits, as `twinprobe token` prints them",
            )?;
            if !digests.insert(digest) {
                return Err("another line already has this token".to_owned());
            }
            known.push(KnownToken {
                name: name.to_owned(),
                role,
                digest,
            });
            Ok(())
        })?;
        Ok(Self(known))
    }

    /// Returns the owner of a token; `None` if the digest is in no line.
    pub fn owner(&self, token: &str) -> Option<Principal> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for known in &self.0 {
            if bool::from(known.digest.ct_eq(&digest)) {
                found = Some(known);
            }
        }
        found.map(|KnownToken { name, role, .. }| Principal {
            who: Who::Token(name.clone()),
            role: Some(*role),
        })
    }
}

fn digest_of(word: &str) -> Option<[u8; 32]> {
    if word.len() != 64 || !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&word[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// Returns a new token with 256 random bits.
pub fn generate() -> io::Result<String> {
    let mut random = [0; 32];
    // The kernel gives up to 256 bytes in one call, once its generator is ready.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{}", hex(&random)))
}

/// Returns the line of a token's file for a token.
pub fn line(name: &str, role: Role, token: &str) -> String {
    format!("{name} {role} {}", hex(&Sha256::digest(token)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
