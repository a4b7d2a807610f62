//! `twinprobe-stream`: see the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    twinprobe_streams::main()
}
