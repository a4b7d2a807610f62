//! A file system that never answers, like one whose server has failed.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A file system mounted at a directory until dropped. Then the waiting calls fail.
#[derive(Debug)]
pub struct Silent {
    directory: PathBuf,
    /// The end of a FUSE server that reads no request.
    server: Option<File>,
}

impl Silent {
    /// Makes the directory and mounts the file system there.
    pub fn mount(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let server = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .context("open /dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let (options, target) = (
            CString::new(options)?,
            CString::new(directory.as_os_str().as_bytes())?,
        );
        // SAFETY: NUL-terminated strings that live through the call.
        let result = unsafe {
            libc::mount(
                c"silent".as_ptr(),
                target.as_ptr(),
                c"fuse".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        ensure!(result == 0, "mount: {}", std::io::Error::last_os_error());
        Ok(Self {
            directory: directory.to_owned(),
            server: Some(server),
        })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // All waiting calls fail once the server has closed its end.
        drop(self.server.take());
        if let Ok(target) = CString::new(self.directory.as_os_str().as_bytes()) {
            // SAFETY: a NUL-terminated string that lives through the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
    }
}
