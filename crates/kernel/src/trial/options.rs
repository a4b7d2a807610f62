//! The options that the running kernel was built with, for programs that ask for them
//! (`__kconfig`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::LazyLock;

use flate2::read::GzDecoder;

use crate::plan::request::KernelOptions;

/// The most bytes of a configuration, uncompressed; that of Linux 6.18 has 160 KiB.
const LONGEST: u64 = 4 << 20;
/// The name of the option with the version (as `KERNEL_VERSION` of C encodes it), and the names of
/// the other values that libbpf offers.
const VERSION: &str = "LINUX_KERNEL_VERSION";

/// The options of the running kernel. They are read once, when a program asks for one.
pub const RUNNING: KernelOptions = KernelOptions(|name| {
    static KNOWN: LazyLock<HashMap<String, String>> = LazyLock::new(read);
    KNOWN.get(name).cloned()
});

fn read() -> HashMap<String, String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_default()
        .trim()
        .to_owned();
    let text = configuration(&release).unwrap_or_else(|error| {
        tracing::warn!(%error, "the kernel's configuration can't be read; programs see no option as set");
        String::new()
    });
    let mut options = parse(&text);
    options.extend(version(&release).map(|version| (VERSION.to_owned(), version.to_string())));
    options
}

/// Returns the configuration of the kernel, from the places where kernels and distributions have
/// it.
fn configuration(release: &str) -> io::Result<String> {
    let mut text = String::new();
    match File::open("/proc/config.gz") {
        Ok(file) => {
            _ = GzDecoder::new(file)
                .take(LONGEST)
                .read_to_string(&mut text)?;
        }
        Err(_) => text = fs::read_to_string(Path::new("/boot").join(format!("config-{release}")))?,
    }
    Ok(text)
}

/// Returns the options that are set.
fn parse(text: &str) -> HashMap<String, String> {
    let lines = text.lines().filter(|line| line.starts_with("CONFIG_"));
    let options = lines.filter_map(|line| line.split_once('='));
    options
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Returns the version as a number: `6.18.5-1` is 6 << 16 | 18 << 8 | 5.
fn version(release: &str) -> Option<u32> {
    let numbers = release
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    // Patch levels above 255 are cut, as the kernel cuts them.
    let patch = parts.next().flatten().unwrap_or(0).min(255);
    Some(major << 16 | minor << 8 | patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_versions_are_read() {
        let options = parse("# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=\"x y\"\n");
        assert_eq!(options.len(), 2);
        assert_eq!(
            (options["CONFIG_B"].as_str(), options["CONFIG_C"].as_str()),
            ("y", "\"x y\"")
        );
        for (release, number) in [
            ("6.18.5-1-generic", 0x0006_1205),
            ("5.15.0", 0x0005_0f00),
            ("4.9.337+", 0x0004_09ff),
            ("6.18-rc3", 0x0006_1200),
        ] {
            assert_eq!(version(release), Some(number), "{release}");
        }
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn the_running_kernel_has_a_version() {
        assert!(RUNNING.value(VERSION).unwrap().parse::<u32>().unwrap() > 0x0004_0000);
        assert_eq!(RUNNING.value("CONFIG_NO_SUCH_OPTION"), None);
    }
}
