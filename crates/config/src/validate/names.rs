//! The rules of names and paths in a configuration.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::SignedDuration;

use crate::interface::{InterfacePattern, is_pattern};

const PATTERN_LIMIT: usize = 64;
/// The longest path in bytes: `PATH_MAX` without its NUL.
const PATH_LIMIT: usize = 4095;

/// Tells whether a name matches `[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}`: safe as a path segment, a file
/// name and a directory of pins.
pub fn is_probe_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && name.len() <= 64
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Returns the message for a name that is not a probe name.
pub fn probe_name_rule(name: &str) -> String {
    format!(
        "{} is not a probe name; 1 to 64 letters, digits, '_', '.', '-' are allowed, a letter or digit first",
        quote(name)
    )
}

/// Tells whether a name matches `[a-zA-Z_:][a-zA-Z0-9_:]*`, the rule of Prometheus.
pub fn is_metric_name(name: &str) -> bool {
    is_word(name, |byte| matches!(byte, b'_' | b':'))
}

/// Tells whether a name matches `[a-zA-Z_][a-zA-Z0-9_]*`.
pub fn is_c_identifier(name: &str) -> bool {
    is_word(name, |byte| byte == b'_')
}

/// Checks the first part of the names of families.
pub fn subsystem(name: &str) -> Result<(), String> {
    const LONGEST: usize = 64;
    if is_c_identifier(name) && name.len() <= LONGEST {
        return Ok(());
    }
    let quoted = quote(name);
    Err(format!(
        "{quoted} can't begin a metric's name; 1 to {LONGEST} letters, digits and '_' are allowed, no digit first"
    ))
}

/// Tells whether a name is one or more identifiers, as in `struct x`, `x_t` and `unsigned int`.
pub fn is_type_name(name: &str) -> bool {
    name.len() <= 512 && name.split(' ').all(is_c_identifier)
}

fn is_word(name: &str, also: impl Fn(u8) -> bool) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || also(first))
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || also(byte))
}

/// Checks an interface's name or pattern. The rule is the kernel's own (`dev_valid_name`), so that
/// a wrong name is found here and not when attaching. Patterns may hold only characters that a name
/// may hold.
pub fn interface(name: &str) -> Result<InterfacePattern, String> {
    let quoted = quote(name);
    if name.is_empty() {
        return Err("an interface name is empty".to_owned());
    }
    if is_pattern(name) && name.len() > PATTERN_LIMIT {
        return Err(format!(
            "{quoted} is too long for a pattern; the limit is {PATTERN_LIMIT} bytes"
        ));
    }
    if !is_pattern(name) && name.len() > 15 {
        return Err(format!(
            "{quoted} is too long for an interface name; the limit is 15 bytes"
        ));
    }
    let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name == "." || name == ".." || name.contains(forbidden) {
        return Err(format!(
            "{quoted} is not an interface name; '/', ':', white space, \".\" and \"..\" are not allowed"
        ));
    }
    // The pattern library reads `**` as directories.
    if name.contains("**") {
        return Err(format!(
            "{quoted} has two '*' in a row; one matches any number of characters"
        ));
    }
    InterfacePattern::new(name).map_err(|_| {
        format!("{quoted} is not a pattern: a '[' has no ']', as in eth[0-3]; a '[' itself is written [[]")
    })
}

/// Checks the path of a network namespace.
pub fn netns(path: &str) -> Result<(), String> {
    let quoted = quote(path);
    if !path.starts_with('/') {
        return Err(format!(
            "{quoted} is not an absolute path; give one such as /run/netns/NAME"
        ));
    }
    if path.len() > PATH_LIMIT || path.contains('\0') {
        return Err(format!(
            "{quoted} is not a path; the limit is {PATH_LIMIT} bytes without NUL"
        ));
    }
    Ok(())
}

/// Checks that the path of a network namespace is at one of the usual places: if a client could
/// name any path, the answers would let it explore the file system.
pub fn place_of_netns(path: &str) -> Result<(), String> {
    let name = ["/run/netns/", "/var/run/netns/"]
        .iter()
        .find_map(|directory| path.strip_prefix(directory));
    let pid = path
        .strip_prefix("/proc/")
        .and_then(|rest| rest.strip_suffix("/ns/net"));
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    let is_pid =
        |pid: &str| pid == "self" || !pid.is_empty() && pid.bytes().all(|c| c.is_ascii_digit());
    if name.is_some_and(is_name) || pid.is_some_and(is_pid) {
        return Ok(());
    }
    let quoted = quote(path);
    Err(format!(
        "{quoted} is not a place of network namespaces; give /run/netns/NAME, see ip netns, or /proc/PID/ns/net"
    ))
}

/// Reads a duration. `what` is its name in a message, and `limits` is the text of `possible`.
pub fn duration(
    text: &str,
    what: &str,
    possible: RangeInclusive<Duration>,
    limits: &str,
) -> Result<Duration, String> {
    let quoted = quote(text);
    let parsed: Result<SignedDuration, _> = text.parse();
    let duration = parsed
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok());
    let duration =
        duration.ok_or_else(|| format!("{quoted} is not a duration such as 10s, 250ms, 5m, 1h"))?;
    match possible.contains(&duration) {
        true => Ok(duration),
        false => Err(format!("{quoted} is not allowed as {what}; use {limits}")),
    }
}

/// Quotes a value for a message: escaped and cut to the length of a line.
pub fn quote(value: &str) -> String {
    const LIMIT: usize = 80;
    match value.char_indices().nth(LIMIT) {
        Some((cut, _)) => format!("{:?}...", &value[..cut]),
        None => format!("{value:?}"),
    }
}
