//! `vmlinux.h`: the types of a kernel as a header, for sources that follow them (CO-RE).

use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use twinprobe_ebpf_common::Btf;
use twinprobe_ebpf_common::unit::{included, is_vmlinux};

/// The name that sources include.
pub const NAME: &str = "vmlinux.h";
/// The types of the running kernel.
const RUNNING: &str = "/sys/kernel/btf/vmlinux";
/// The header for a source that does not include `vmlinux.h` itself. Such a source does not wait
/// for the real header.
const NOT_NAMED: &str = "#error \"write #include \\\"vmlinux.h\\\" in the source itself\"\n";
/// A type of the kernel's API whose name was changed in Linux 6.9.
const TRIE_KEY: &str = "
#ifndef TWINPROBE_LPM_TRIE_KEY
#define TWINPROBE_LPM_TRIE_KEY
struct bpf_lpm_trie_key {
	__u32 prefixlen;
	__u8 data[0];
};
#endif
";
/// Types of the module psample, which most kernels do not show before it is loaded. Only programs
/// beside those for packets read their members.
const PSAMPLE: &str = "
#ifndef TWINPROBE_PSAMPLE
#define TWINPROBE_PSAMPLE
struct psample_group;
struct psample_metadata {
	unsigned int trunc_size;
	int in_ifindex;
	int out_ifindex;
	const unsigned char *user_cookie;
	unsigned int user_cookie_len;
} __attribute__((preserve_access_index));
#endif
";
const ELF: &[u8] = b"\x7fELF";

/// The header in memory. It takes a while to write, so the first source that asks for it waits.
#[derive(Debug)]
pub struct KernelTypes {
    file: OwnedFd,
    state: Mutex<VmlinuxState>,
}

#[derive(Debug)]
struct VmlinuxState {
    /// The file from which the types come.
    from: PathBuf,
    /// The outcome, once a source has asked for the header.
    written: Option<Result<(), String>>,
}

impl KernelTypes {
    /// Makes the file, which children inherit.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = fs::File::from(file);
        file.write_all(NOT_NAMED.as_bytes())?;
        let state = VmlinuxState {
            from: RUNNING.into(),
            written: None,
        };
        Ok(Self {
            file: file.into(),
            state: Mutex::new(state),
        })
    }

    /// Returns a descriptor of the header.
    pub fn file(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Takes the types of another kernel: from BTF, or from an ELF file with BTF.
    pub fn take_from(&self, path: &Path) {
        self.state.lock().from = path.to_owned();
    }

    /// Tells whether a source asks for the header.
    pub fn are_asked_for(source: &str) -> bool {
        source.contains(NAME) || included(source).any(is_vmlinux)
    }

    /// Writes the header at the first call. Fails with the reason.
    pub fn write(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        if let Some(written) = &state.written {
            return written.clone();
        }
        let written = header(&state.from)
            .and_then(|text| self.fill(&text).map_err(|error| error.to_string()));
        let written = written.map_err(|reason| {
            format!(
                "{NAME} can't be made from {}: {reason}; give twinprobe build --btf FILE",
                state.from.display()
            )
        });
        state.written = Some(written.clone());
        written
    }

    fn fill(&self, text: &str) -> io::Result<()> {
        let mut file = fs::File::from(self.file()?);
        ftruncate(&file, 0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        Ok(fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?)
    }
}

fn header(from: &Path) -> Result<String, String> {
    let mut bytes = fs::read(from).map_err(|error| error.to_string())?;
    if bytes.starts_with(ELF) {
        let elf = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
        let section = elf
            .section_by_name(".BTF")
            .ok_or("it has no section .BTF")?;
        bytes = section.data().map_err(|error| error.to_string())?.to_vec();
    }
    let btf = Btf::parse(&bytes).map_err(|error| error.to_string())?;
    let mut text = btf.header().map_err(|error| error.to_string())?;
    let lacks = |name: &str| !text.contains(&format!("struct {name} {{"));
    let lacks_key = lacks("bpf_lpm_trie_key") && !lacks("bpf_lpm_trie_key_u8");
    let lacks_psample = lacks("psample_metadata");
    for (_, types) in [(lacks_key, TRIE_KEY), (lacks_psample, PSAMPLE)]
        .iter()
        .filter(|(lacks, _)| *lacks)
    {
        text.push_str(types);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_written_once_and_says_why_it_can_not_be() {
        let types = KernelTypes::new().unwrap();
        types.take_from(Path::new("/nonexistent"));
        let reason = types.write().unwrap_err();
        assert!(
            reason.contains("/nonexistent") && reason.contains("--btf"),
            "{reason}"
        );
        let types = KernelTypes::new().unwrap();
        types.write().unwrap();
        types.write().unwrap();
        let length = fs::File::from(types.file().unwrap())
            .metadata()
            .unwrap()
            .len();
        assert!(length > 100_000, "{length}");
    }
}
