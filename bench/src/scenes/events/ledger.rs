//! The account of a consumer: the received events, their order, their completeness, and their
//! delay.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The size of the part of an event before the payload.
pub const SIZE: usize = 156;
/// The most latencies that are kept.
const LATENCIES: usize = 1 << 22;

/// The fields of an event that the bench checks.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub serial: u64,
    pub cpu: u64,
    /// The time when the program wrote the event, by CLOCK_MONOTONIC.
    pub time: u64,
    pub check: u64,
    /// Source and destination in the packet's order of bytes.
    pub addresses: u64,
    /// The sum by XOR of the payload.
    pub payload: u64,
}

#[derive(Debug, Default)]
pub struct Ledger {
    following: HashMap<u64, u64>,
    pub delivered: u64,
    pub gaps: u64,
    pub disordered: u64,
    pub damaged: u64,
    latencies: Vec<u64>,
}

impl Ledger {
    /// Notes that an event came.
    pub fn count(&mut self, cpu: u64, serial: u64) {
        let next = self.following.entry(cpu).or_default();
        self.delivered += 1;
        match serial.checked_sub(*next) {
            Some(missing) => self.gaps += missing,
            None => self.disordered += 1,
        }
        *next = serial + 1;
    }

    /// Notes the arrival of an event, whether it equals the sent one, and its delay.
    pub fn check(&mut self, event: &Event) {
        self.count(event.cpu, event.serial);
        let sum = event.serial ^ event.time ^ event.addresses ^ event.payload;
        self.damaged += u64::from(sum != event.check);
        if self.latencies.len() < LATENCIES {
            self.latencies.push(monotonic().saturating_sub(event.time));
        }
    }

    /// Returns the nanoseconds within which this part of the events came.
    pub fn latency(&mut self, part: f64) -> u64 {
        self.latencies.sort_unstable();
        let at = (part * self.latencies.len().saturating_sub(1) as f64) as usize;
        self.latencies.get(at).copied().unwrap_or(0)
    }

    /// Returns the report that consumers in other languages print as well. `cpu` is in nanoseconds.
    pub fn summary(&mut self, cpu: u64) -> Value {
        json!({
            "delivered": self.delivered, "gaps": self.gaps, "disordered": self.disordered, "damaged": self.damaged,
            "cpu": cpu, "median": self.latency(0.5), "late": self.latency(0.99)
        })
    }
}

impl Event {
    /// Reads an event from its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (payload, fields) = bytes
            .split_at_checked(bytes.len().wrapping_sub(SIZE))
            .context("a short event")?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fields[at + byte]));
        Ok(Self {
            serial: word(0),
            time: word(8),
            check: word(16),
            addresses: word(24),
            cpu: word(36) & 0xffff_ffff,
            payload: xor(payload),
        })
    }

    /// Reads an event from a line of the stream, without a parser: the reader must be fast.
    pub fn from_json(line: &str) -> Result<Self> {
        let (_, event) = line
            .split_once("\"event\":{")
            .with_context(|| line.to_owned())?;
        let text = |name: &str| -> Result<&str> {
            let (_, value) = event
                .split_once(&format!("\"{name}\":"))
                .context("a field")?;
            Ok(value
                .split([',', '}'])
                .next()
                .unwrap_or_default()
                .trim_matches('"'))
        };
        let number = |name: &str| -> Result<u64> { Ok(text(name)?.parse()?) };
        let address = |name: &str| -> Result<u64> {
            let address: std::net::Ipv4Addr = text(name)?.parse()?;
            Ok(u64::from(u32::from_le_bytes(address.octets())))
        };
        let payload = match text("data") {
            Ok(hex) => {
                let digits = hex.trim_start_matches("0x").as_bytes();
                let digit = |of: u8| {
                    if of <= b'9' {
                        of - b'0'
                    } else {
                        of - b'a' + 10
                    }
                };
                let bytes: Vec<u8> = digits
                    .chunks_exact(2)
                    .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
                    .collect();
                xor(&bytes)
            }
            Err(_) => 0,
        };
        Ok(Self {
            serial: number("serial")?,
            time: number("time")?,
            check: number("check")?,
            addresses: address("source")? | address("destination")? << 32,
            cpu: number("cpu")?,
            payload,
        })
    }
}

fn xor(bytes: &[u8]) -> u64 {
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(std::array::from_fn(|byte| word[byte])));
    words.fold(0, |sum, word| sum ^ word)
}

/// Returns CLOCK_MONOTONIC in nanoseconds, which is `bpf_ktime_get_ns`.
fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns the processor time of this process in nanoseconds.
pub fn process_time() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live structure that the call fills. The clocks exist on every Linux.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(serial: u64) -> Vec<u8> {
        let payload: Vec<u8> = [7_u64, 11]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let (time, addresses) = (1_000_u64, 0x0200_007f_0100_007f_u64);
        let check = serial ^ time ^ addresses ^ 7 ^ 11;
        let mut bytes = payload;
        for word in [serial, time, check, addresses] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend(3_u32.to_le_bytes());
        bytes.resize(16 + SIZE, 0);
        bytes
    }

    #[test]
    fn what_is_missing_doubled_or_changed_is_seen() -> Result<()> {
        let mut ledger = Ledger::default();
        for serial in [0, 1, 4, 4] {
            ledger.check(&Event::from_bytes(&event(serial))?);
        }
        let mut changed = event(5);
        changed[3] ^= 1;
        ledger.check(&Event::from_bytes(&changed)?);
        let seen = [
            ledger.delivered,
            ledger.gaps,
            ledger.disordered,
            ledger.damaged,
        ];
        assert_eq!(seen, [5, 2, 1, 1]);
        assert!(Event::from_bytes(&[0; SIZE - 1]).is_err());
        Ok(())
    }

    #[test]
    fn a_line_has_what_the_bytes_have() -> Result<()> {
        let bytes = event(9);
        let hex: String = bytes[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let of_bytes = Event::from_bytes(&bytes)?;
        let line = format!(
            "{{\"time\":\"now\",\"event\":{{\"data\":\"0x{hex}\",\"serial\":9,\"time\":1000,\"check\":{},\
             \"source\":\"127.0.0.1\",\"destination\":\"127.0.0.2\",\"cpu\":3}}}}",
            of_bytes.check
        );
        assert_eq!(
            format!("{:?}", Event::from_json(&line)?),
            format!("{of_bytes:?}")
        );
        Ok(())
    }
}
