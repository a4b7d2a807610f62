//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::moongen::MoonGen;

/// Runs the experiments behind docs/benchmarks/ on the `twinprobe` that lies beside this program,
/// or that TWINPROBE_BIN names, and writes their pages and figures. Needs root.
#[derive(Debug, Parser)]
pub struct Options {
    /// Experiments to run; all if none is named
    pub experiments: Vec<String>,
    /// List the experiments and end
    #[arg(long)]
    pub list: bool,
    /// Run each experiment with few repetitions, to see that it works; its figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Part of the rounds of a full run, and of the packets in each: intervals are wider, and the
    /// run is shorter
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = part)]
    pub part: f64,
    /// Directory to write pages into, and figures into `figures` below it; default docs/benchmarks,
    /// with --quick none
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
    /// Burn processor time as the placebo of an experiment does, EVERY/BURN in nanoseconds
    #[arg(long, hide = true, value_name = "EVERY/BURN")]
    pub burn: Option<String>,
    /// Sender of packets
    #[arg(long, value_enum, default_value = "traffic")]
    pub generator: GeneratorName,
    /// Directory of MoonGen, which has been built
    #[arg(long, value_name = "PATH", required_if_eq("generator", "moongen"))]
    pub moongen: Option<PathBuf>,
    /// Port that MoonGen sends from, by its number
    #[arg(long, value_name = "N", required_if_eq("generator", "moongen"))]
    pub dev: Option<u32>,
    /// Interface of this namespace at which the packets of MoonGen's card arrive; without it
    /// MoonGen sends into a veth pair, by DPDK's af_packet device, which is port 0
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Consume the ring that is pinned at a path, to `count` or `check` events: the experiment
    /// `events` calls this
    #[arg(long, hide = true, num_args = 2, value_names = ["PIN", "MODE"])]
    pub aya_consumer: Vec<String>,
}

/// The choice of the sender of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GeneratorName {
    /// The generator of the tests, in the kernel
    Traffic,
    Moongen,
}

/// The sender of packets, and the interface that receives them.
#[derive(Clone, Debug)]
pub enum Generator {
    Traffic,
    MoonGen(MoonGen),
}

/// The least number of rounds of a full run.
const LEAST: u64 = 3;
/// The least share of the repetitions of a round. With fewer repetitions, the duration of the call
/// itself would hide the result.
const LEAST_PART: f64 = 0.25;

fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("a part is above 0 and at most 1".into()),
    }
}

/// The options of all experiments.
#[derive(Clone, Debug)]
pub struct Bench {
    pub quick: bool,
    /// The part of a full run.
    pub part: f64,
    pub generator: Generator,
}

impl Options {
    /// Returns the options for the experiments, or the mistake in the command line.
    pub fn bench(&self) -> Result<Bench, String> {
        let generator = match (self.generator, &self.moongen, self.dev) {
            (GeneratorName::Moongen, Some(directory), Some(port)) => {
                let program = directory.join("build/MoonGen");
                if !program.is_file() {
                    return Err(format!("--moongen: there is no {}", program.display()));
                }
                // MoonGen is started in its own directory.
                let directory = directory
                    .canonicalize()
                    .map_err(|error| format!("--moongen: {error}"))?;
                Generator::MoonGen(MoonGen {
                    directory,
                    port,
                    interface: self.interface.clone(),
                })
            }
            (GeneratorName::Moongen, ..) => {
                return Err("--generator moongen needs --moongen and --dev".into());
            }
            (GeneratorName::Traffic, None, None) if self.interface.is_none() => Generator::Traffic,
            (GeneratorName::Traffic, ..) => {
                return Err("--moongen, --dev and --interface are for --generator moongen".into());
            }
        };
        Ok(Bench {
            quick: self.quick,
            part: self.part,
            generator,
        })
    }
}

impl Bench {
    /// Returns the number of repetitions.
    pub const fn times(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// Returns the number of repetitions within a round. `--part` makes only a part of them.
    pub fn part_of(&self, full: u64, quick: u64) -> u64 {
        if self.quick {
            quick
        } else {
            (full as f64 * self.part.max(LEAST_PART)) as u64
        }
    }

    /// Returns the number of rounds. `--part` makes only a part of them.
    pub fn rounds(&self, full: u64, quick: u64) -> u64 {
        if self.quick {
            quick
        } else {
            ((full as f64 * self.part) as u64).max(full.min(LEAST))
        }
    }

    /// Returns the cases to measure: `quick` in a quick run, else `all`.
    pub fn cases<T: Copy>(&self, all: &[T], quick: &[T]) -> Vec<T> {
        if self.quick {
            quick.to_vec()
        } else {
            all.to_vec()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(arguments: &[&str]) -> Result<Bench, String> {
        let arguments = [&["bench"], arguments].concat();
        Options::try_parse_from(arguments)
            .map_err(|error| error.to_string())?
            .bench()
    }

    #[test]
    fn a_part_has_fewer_rounds_and_fewer_repetitions() {
        let part = |part: &str| bench(&["--part", part]).unwrap();
        assert_eq!(
            (part("1").rounds(10, 1), part("1").part_of(1_000, 1)),
            (10, 1_000)
        );
        assert_eq!(
            (part("0.5").rounds(10, 1), part("0.5").part_of(1_000, 1)),
            (5, 500)
        );
        assert_eq!(
            (part("0.01").rounds(10, 1), part("0.01").part_of(1_000, 1)),
            (3, 250)
        );
        assert_eq!(bench(&["--quick"]).unwrap().part_of(1_000, 1), 1);
    }

    #[test]
    fn moongen_needs_a_directory_and_a_port() {
        assert!(bench(&[]).is_ok());
        assert!(bench(&["--generator", "moongen"]).is_err());
        assert!(
            bench(&[
                "--generator",
                "moongen",
                "--moongen",
                "/nowhere",
                "--dev",
                "0"
            ])
            .unwrap_err()
            .contains("build")
        );
        assert!(bench(&["--part", "0"]).is_err());
        assert!(
            bench(&["--dev", "0"])
                .unwrap_err()
                .contains("--generator moongen")
        );
        assert!(
            bench(&["--interface", "eth1"])
                .unwrap_err()
                .contains("--generator moongen")
        );
    }
}
