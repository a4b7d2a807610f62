mod addresses;
mod arbitrary;
pub mod code;
mod damaged;
mod documented;
mod dynptrs;
mod frames;
mod generator;
mod ranges;
mod rules;
mod work;

/// Returns the number of repetitions: `usual` times `TWINPROBE_SCALE`, or `full` if
/// `TWINPROBE_SCALE` is `full`.
fn scaled(usual: u64, full: u64) -> u64 {
    match std::env::var("TWINPROBE_SCALE").as_deref() {
        Ok("full") => full,
        Ok(scale) => ((usual as f64 * scale.parse().unwrap_or(1.0)) as u64).max(1),
        Err(_) => usual,
    }
}

/// Returns random numbers. The same `TWINPROBE_SEED` gives the same numbers.
fn random() -> generator::Random {
    let seed = std::env::var("TWINPROBE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::process::id().into());
    println!("TWINPROBE_SEED={seed}");
    generator::Random(seed)
}
