//! Sizes in bytes with a unit.

/// Reads `32MiB`, `1GB`, `65536` and the like. Otherwise returns the mistake.
pub fn bytes(text: &str) -> Result<usize, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => 0,
    };
    let size = number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(factor));
    size.filter(|size| *size > 0)
        .ok_or_else(|| format!("{text:?} is not a size; write it as 32MiB, 500kB or 65536"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("32MiB"), Ok(32 << 20));
        assert_eq!(bytes("64 kB"), Ok(64_000));
        assert_eq!(bytes("65536"), Ok(65_536));
        for wrong in [
            "",
            "MiB",
            "0",
            "1.5GiB",
            "-1",
            "7 parsecs",
            "99999999999GiB",
        ] {
            assert!(bytes(wrong).unwrap_err().contains("32MiB"), "{wrong}");
        }
    }
}
