//! `twinprobe-operator`: see the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    twinprobe_operator::main()
}
