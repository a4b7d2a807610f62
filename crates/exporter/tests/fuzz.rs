//! The bodies of the fuzz targets on mutated seeds, for compilers without coverage instrumentation.
//! `TWINPROBE_FUZZ_SECONDS` makes it longer than a few seconds and starts elsewhere each time.

#[path = "../../../fuzz/bodies.rs"]
mod bodies;

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
/// Far more than the slowest input takes in a debug build on a busy machine.
const HANG: Duration = Duration::from_secs(20);

#[test]
fn btf_parse() {
    run("btf_parse", bodies::btf_parse);
}

#[test]
fn decode() {
    run("decode", bodies::decode);
}

fn run(name: &str, body: fn(&[u8])) {
    let seconds = env::var("TWINPROBE_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number"));
    let start = match seconds {
        Some(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64),
        None => 1,
    };
    let mut files: Vec<PathBuf> =
        fs::read_dir(SEEDS).expect("there are seeds").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).expect("readable")).collect();
    assert!(!seeds.is_empty(), "no seeds in {SEEDS}");
    for seed in &seeds {
        guarded(name, body, seed);
    }
    let mut random = Random(start);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(3));
    while Instant::now() < end {
        let mut input = random.choose(&seeds).clone();
        for _ in 0..=random.below(6) {
            random.mutate(&mut input, &seeds);
        }
        guarded(name, body, &input);
    }
    let peak = peak_kib();
    assert!(peak < 512 * 1024, "took {peak} KiB at its peak");
}

fn guarded(name: &str, body: fn(&[u8]), input: &[u8]) {
    let begun = Instant::now();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| body(input)));
    let took = begun.elapsed();
    if outcome.is_err() || took > HANG {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
        fs::write(&path, input).expect("the input can be kept");
        panic!("{name} failed or took long ({took:?}) on {}", path.display());
    }
}

/// The most memory that this process has had.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// xorshift64: good enough to damage things.
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
        match self.below(8) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.next() as u8,
            // Most of BTF is words: small ones, which name types, and extreme ones.
            2 | 3 => {
                let small = self.below(64) as u32;
                let number = *self.choose(&[0, 1, small, small, 0xff, 0xffff, i32::MAX as u32, u32::MAX]);
                if let Some(word) = input.get_mut(at / 4 * 4..).and_then(<[u8]>::first_chunk_mut) {
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
            _ => {
                let other = self.choose(seeds);
                let from = self.below(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}
