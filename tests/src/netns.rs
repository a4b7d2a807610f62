//! Named network namespaces and threads inside them.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, ensure};

const DIRECTORY: &str = "/run/netns";
/// The prefix of the names of namespaces: `tp-<pid>-<n>-<role>`.
const PREFIX: &str = "tp-";

/// A network namespace. The last clone deletes it on drop if [`Namespace::create`] made it.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Option<String>,
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// Makes a named namespace with `lo` up and without IPv6, so that nothing but the test's own
    /// packets is seen.
    pub fn create(name: &str) -> Result<Self> {
        run("ip", &["netns", "add", name])?;
        let path = Path::new(DIRECTORY).join(name);
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let namespace = Self(Arc::new(Inner {
            name: Some(name.to_owned()),
            path,
            file,
        }));
        namespace.enter(|| {
            for scope in ["all", "default"] {
                let knob = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
                // A kernel without IPv6 has no such file, and nothing to switch off.
                if Path::new(&knob).exists() {
                    std::fs::write(&knob, "1").with_context(|| format!("write {knob}"))?;
                }
            }
            run("ip", &["link", "set", "lo", "up"])
        })??;
        Ok(namespace)
    }

    /// Opens an existing namespace by name (`ip netns`) or path. It is not deleted on drop.
    pub fn open(name_or_path: &str) -> Result<Self> {
        let path = Path::new(DIRECTORY).join(name_or_path);
        let file =
            File::open(&path).with_context(|| format!("open namespace {}", path.display()))?;
        Ok(Self(Arc::new(Inner {
            name: None,
            path,
            file,
        })))
    }

    /// Opens the namespace of the calling process.
    pub fn current() -> Result<Self> {
        Self::open("/proc/self/ns/net")
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs a command inside the namespace and waits for its end; its standard error becomes the
    /// error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        self.enter(|| run(program, arguments))?
    }

    /// Runs a command like [`Namespace::run`] and returns its standard output.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Result<String> {
        Ok(String::from_utf8(
            self.enter(|| output(program, arguments))??,
        )?)
    }

    /// Returns the index of an interface of the namespace.
    pub fn interface_index(&self, name: &str) -> Result<u32> {
        self.enter(|| interface_index(name))?
    }

    /// Runs `f` on a thread of its own inside the namespace; child processes of that thread are
    /// also inside. A panic of `f` is passed on. Fails if the namespace can't be entered.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        let fd = self.as_fd();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                set_netns(fd)?;
                Ok(f())
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A name of a namespace that is a symbolic link, removed on drop. Requests may name no path
/// outside of [`DIRECTORY`].
#[derive(Debug)]
pub struct NamespaceLink(PathBuf);

impl NamespaceLink {
    /// Makes a link that leads to `target`.
    pub fn new(target: &Path) -> Result<Self> {
        let link = Self(Path::new(DIRECTORY).join(format!("{}link", unique_prefix())));
        link.lead_to(target)?;
        Ok(link)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lets the link lead to `target`, in one step.
    pub fn lead_to(&self, target: &Path) -> Result<()> {
        let new = self.0.with_extension("new");
        std::os::unix::fs::symlink(target, &new)?;
        Ok(std::fs::rename(new, &self.0)?)
    }
}

impl Drop for NamespaceLink {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = run("ip", &["netns", "del", name])
        {
            eprintln!("{error:#}");
        }
    }
}

/// Moves the calling thread into a network namespace.
pub fn set_netns(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes no pointers; the descriptor is borrowed for the call.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Pins the calling thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu` is within the set, as checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set outlives the call and its true size is given; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns a name prefix that no other test uses. Also removes the namespaces that killed test
/// processes have left.
pub fn unique_prefix() -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    remove_stale();
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("{PREFIX}{}-{n}", std::process::id())
}

fn remove_stale() {
    for entry in std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_stale(&name) {
            // Another test process may be removing the same namespace.
            let _ = run("ip", &["netns", "del", &name]);
        }
    }
}

/// Tells whether a name has the prefix of [`unique_prefix`] in a process that has ended.
pub(crate) fn is_stale(name: &str) -> bool {
    let pid = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// Runs a command and waits for its end; its standard error becomes the error.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    output(program, arguments).map(drop)
}

/// Runs a command and returns its standard output.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("start {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

/// Returns the index of an interface in the calling thread's namespace.
pub(crate) fn interface_index(name: &str) -> Result<u32> {
    let c_name = std::ffi::CString::new(name)?;
    // SAFETY: the name is NUL-terminated and outlives the call.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    ensure!(
        index != 0,
        "interface {name}: {}",
        io::Error::last_os_error()
    );
    Ok(index)
}
