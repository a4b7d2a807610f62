//! Interfaces of the daemon's network namespace, by name and by index.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;

pub fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a NUL-terminated string that lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

pub fn name(index: u32) -> Option<String> {
    let mut buffer = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the IF_NAMESIZE bytes that the call asks for.
    let result = unsafe { libc::if_indextoname(index, buffer.as_mut_ptr()) };
    if result.is_null() {
        return None;
    }
    // SAFETY: on success the buffer holds a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    name.to_str().ok().map(str::to_owned)
}

/// Every interface there is now.
pub fn all() -> HashMap<u32, String> {
    let mut out = HashMap::new();
    // SAFETY: takes nothing; the list is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return out;
    }
    let mut entry = list;
    loop {
        // SAFETY: `entry` stays within the list, which ends with an entry of zeros.
        let item = unsafe { &*entry };
        if item.if_index == 0 || item.if_name.is_null() {
            break;
        }
        // SAFETY: entries before the last have a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(item.if_name) };
        out.insert(item.if_index, name.to_string_lossy().into_owned());
        // SAFETY: the entry after one that is not the last.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: the list that `if_nameindex` returned, freed once.
    unsafe { libc::if_freenameindex(list) };
    out
}
