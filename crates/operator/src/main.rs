//! The program `twinprobe-operator`. Its code is in the library of this crate.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    twinprobe_operator::main()
}
