//! Leases of files. No library offers these calls.

use std::fs::File;
use std::os::fd::AsRawFd as _;

/// The command that sets the signal for the holder of a lease; libc does not have it.
const F_SETSIG: libc::c_int = 10;

/// Tells whether a file is open nowhere but at this descriptor: only then the kernel gives a lease for writing. False
/// also where the file system has no leases.
pub fn is_unshared(file: &File) -> bool {
    let file = file.as_raw_fd();
    // SAFETY: the calls take a descriptor that is open and a number, and write to no memory of this process.
    let call = |command: libc::c_int, argument: libc::c_int| unsafe { libc::fcntl(file, command, argument) };
    // Somebody who opens the file meanwhile waits until the lease is given back, and the kernel tells its holder by a
    // signal: this one is ignored, the signal for it would end the process.
    call(F_SETSIG, libc::SIGURG) == 0
        && call(libc::F_SETLEASE, libc::F_WRLCK) == 0
        && (call(libc::F_GETLEASE, 0) == libc::F_WRLCK) & (call(libc::F_SETLEASE, libc::F_UNLCK) == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn a_file_is_shared_while_somebody_else_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        let reading = || File::open(&path).unwrap();
        let writing = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for open in [&reading as &dyn Fn() -> File, &writing] {
            assert!(is_unshared(&open()));
            for other in [&reading as &dyn Fn() -> File, &writing] {
                let other = other();
                assert!(!is_unshared(&open()));
                drop(other);
                assert!(is_unshared(&open()));
            }
        }
    }
}
