//! The directory of pins: in bpffs, mounted if it is not.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const BPF_FS_MAGIC: libc::c_long = 0xcafe_4a11;
const USUAL: &str = "/sys/fs/bpf";

/// Makes sure that `directory` exists and lies in bpffs.
pub fn prepare(directory: &Path) -> io::Result<()> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if !is_bpffs(existing)? {
        let mount_point =
            if directory.starts_with(USUAL) { PathBuf::from(USUAL) } else { directory.to_owned() };
        std::fs::create_dir_all(&mount_point)?;
        mount(&mount_point)?;
    }
    std::fs::create_dir_all(directory)
}

fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = c_path(path)?;
    // SAFETY: zero is a value of every field.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a structure, both alive through the call.
    let result = unsafe { libc::statfs(path.as_ptr(), &raw mut stat) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(stat.f_type == BPF_FS_MAGIC) }
}

fn mount(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: NUL-terminated strings that live through the call; bpffs takes no data.
    let result = unsafe { libc::mount(c"bpf".as_ptr(), path.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
