//! Runs the body of a fuzz target on mutated seeds, for compilers without coverage instrumentation.
//! `TWINPROBE_SCALE` says for how long: a second or few in `make test`, half an hour for each body
//! in `make soak`. `TWINPROBE_FUZZ_SECONDS` sets the time by itself. Longer runs start elsewhere
//! each time. The crate `bolero` is not used: under `cargo test` it makes bytes at random, and few
//! of those are a capture, a layout or a configuration. Here seeds change instead.

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Far more than the slowest input takes in a debug build on a busy machine.
const HANG: Duration = Duration::from_secs(20);
const SOAK: Duration = Duration::from_secs(1800);

/// Calls `body` with each seed and then with damaged ones, usually for `usual`. An input on which
/// it panics or hangs is kept in the directory for temporary files.
pub fn run(name: &str, usual: Duration, seeds: &[Vec<u8>], body: impl Fn(&[u8])) {
    let number = |variable: &str| {
        env::var(variable)
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
    };
    let time = match (
        number("TWINPROBE_FUZZ_SECONDS"),
        env::var("TWINPROBE_SCALE").as_deref(),
    ) {
        (Some(seconds), _) => Duration::from_secs_f64(seconds),
        (None, Ok("full")) => SOAK,
        (None, _) => usual.mul_f64(number("TWINPROBE_SCALE").unwrap_or(1.0)),
    };
    let start = match time > usual {
        true => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |time| time.as_nanos() as u64),
        false => 1,
    };
    assert!(!seeds.is_empty(), "no seeds");
    for seed in seeds {
        guarded(name, &body, seed);
    }
    let mut random = Random(start);
    let end = Instant::now() + time;
    while Instant::now() < end {
        let mut input = random.choose(seeds).clone();
        for _ in 0..=random.below(6) {
            random.mutate(&mut input, seeds);
        }
        guarded(name, &body, &input);
    }
}

/// Returns the files of a directory, by name.
pub fn files(directory: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).expect("there are seeds");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("readable"))
        .collect()
}

fn guarded(name: &str, body: &impl Fn(&[u8]), input: &[u8]) {
    let begun = Instant::now();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| body(input)));
    let took = begun.elapsed();
    if outcome.is_err() || took > HANG {
        let path = env::temp_dir().join(format!("twinprobe-fuzz-{name}.input"));
        fs::write(&path, input).expect("the input can be kept");
        panic!(
            "{name} failed or took long ({took:?}) on {}",
            path.display()
        );
    }
}

/// Fails if this process has used much memory.
pub fn assert_little_memory() {
    let peak = peak_kib();
    assert!(peak < 512 * 1024, "took {peak} KiB at its peak");
}

/// The most memory that this process has had.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// xorshift64: random enough to damage data.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn mutate(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len());
        let len = self.below(32).min(input.len() - at);
        match self.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.next() as u8,
            // Most of BTF is words: small ones, which name types, and extreme ones.
            2 | 3 => {
                let small = self.below(64) as u32;
                let number =
                    *self.choose(&[0, 1, small, small, 0xff, 0xffff, i32::MAX as u32, u32::MAX]);
                if let Some(word) = input
                    .get_mut(at / 4 * 4..)
                    .and_then(<[u8]>::first_chunk_mut)
                {
                    *word = number.to_le_bytes();
                }
            }
            4 => drop(input.drain(at..at + len)),
            5 => {
                let copy = input[at..at + len].to_vec();
                let to = self.below(input.len());
                input.splice(to..to, copy);
            }
            6 => input.truncate(at),
            // The text has a number with the most digits that are possible, or with more.
            7 => {
                let number: &&[u8] = self.choose(&[
                    b"18446744073709551616",
                    b"-1",
                    b"1e400",
                    b"0.0",
                    b"\xff",
                    b"\0",
                ]);
                input.splice(at..at, number.iter().copied());
            }
            _ => {
                let other = self.choose(seeds);
                let from = self.below(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}
