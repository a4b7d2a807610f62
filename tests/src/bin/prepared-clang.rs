//! A replacement of clang on emulated machines, where clang takes minutes. A real clang answers all
//! requests beforehand, on a machine that is not emulated; the replacement gives the same answers
//! to the same requests.
//!
//! `prepared-clang record DIRECTORY CLANG COMMAND...` makes `DIRECTORY/bin/clang`, a copy of this
//! program, and runs COMMAND with it as `TWINPROBE_CLANG`. Afterwards the copy has the answers to
//! all requests of COMMAND, and to those that COMMAND sends where the kernel is old. With
//! `record-arm64` it has those that COMMAND sends on arm64 instead; there, this program compiled
//! for arm64 takes the place of the copy.
//!
//! | file | content |
//! |---|---|
//! | `lib/answers/HASH/` | `request`: the arguments and the source; `status`, `output`, `log`: CLANG's answer |
//! | `lib/bcc/` | the headers for sources in the dialect of BCC |
//! | `lib/recording` | while COMMAND runs: the socket of the recorder, which asks CLANG and keeps its answers |
//!
//! A daemon lets its compiler read the directories that the compiler names for headers. The
//! replacement names `lib`, so the daemon confines it as it confines clang. A confined program
//! reaches no socket, so daemons must be allowed not to confine the replacement while answers are
//! recorded: `TWINPROBE_EXPECT=confined=false` tells the tests so.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    hash::{DefaultHasher, Hasher as _},
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::{
        ffi::OsStrExt as _,
        fs::symlink,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    thread,
};

use anyhow::{Context as _, Result, ensure};

/// The trial by which a daemon finds out how far it can confine its compiler (`compiler/sandbox.rs`
/// of the agent). It fails while answers are recorded, so its answer is recorded beforehand.
const TRIAL: (&str, &[u8]) = (
    "-isystem /twinprobe/include -idirafter /twinprobe/late -target bpf -fintegrated-cc1 -x c -c - -o -",
    b"#include <stdarg.h>\nva_list *trial;\n",
);

/// The directory of the daemon's headers as clang sees it, and where they are
/// (`crates/compiler/src/headers.rs`).
const HEADERS: (&str, &str) = (
    "/twinprobe/include",
    concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/compiler/headers"),
);
/// The directory for sources in the dialect of BCC, as clang sees it, and its content: the name
/// that sources include, and the file or folder in the directory of the headers.
const BCC: (&str, [(&str, &str); 5]) = (
    "/twinprobe/bcc",
    [
        ("bcc", "bcc"),
        ("inttypes.h", "bcc/stdint.h"),
        ("linux/if_vlan.h", "bcc/if_vlan.h"),
        ("stdint.h", "bcc/stdint.h"),
        ("sys/socket.h", "bcc/socket.h"),
    ],
);

/// The directory of the headers for arm64 there, and where Debian's packages for cross-compilation
/// have them.
const ARM64_HEADERS: (&str, &str) = (
    "/usr/include/aarch64-linux-gnu",
    "/usr/aarch64-linux-gnu/include",
);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let (verb, rest) = arguments
        .split_first()
        .map_or((None, &[][..]), |(verb, rest)| (verb.to_str(), rest));
    let guest: Option<GuestRequest> = match verb {
        Some("record") => Some(Request::on_old_kernels),
        Some("record-arm64") => Some(Request::on_arm64),
        _ => None,
    };
    let result = match (guest, rest) {
        (Some(guest), [directory, clang, command @ ..]) => {
            record(Path::new(directory), Path::new(clang), command, guest)
        }
        _ => answer(&arguments),
    };
    result.map_or_else(
        |error| {
            eprintln!("clang's stand-in: error: {error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}

/// Answers a request with clang's recorded answer. Returns the exit status.
fn answer(arguments: &[OsString]) -> Result<u8> {
    let program = env::current_exe()?;
    let lib = program
        .parent()
        .and_then(Path::parent)
        .context("no directory above")?
        .join("lib");
    let mut source = Vec::new();
    if arguments.iter().any(|argument| argument == "-") {
        io::stdin().read_to_end(&mut source)?;
    }
    let request = Request::new(arguments, source);
    if arguments.iter().any(|argument| argument == "-v") {
        eprintln!(
            "#include <...> search starts here:\n {}\nEnd of search list.",
            lib.display()
        );
    }
    let recording = lib.join("recording");
    if recording.exists() {
        let mut recorder = UnixStream::connect(&recording).context("reach the recorder")?;
        recorder.write_all(&request.to_bytes())?;
        recorder.shutdown(Shutdown::Write)?;
        // The recorder closes the connection after its answer.
        recorder.read_to_end(&mut Vec::new())?;
    }
    let directory = request.directory(&lib);
    let read = |name| fs::read(directory.join(name));
    let known = read("request").is_ok_and(|known| known == request.to_bytes());
    ensure!(
        known,
        "this was not compiled beforehand; tests/kernels/run.sh prepares what tests/core needs"
    );
    io::stderr().write_all(&read("log")?)?;
    io::stdout().write_all(&read("output")?)?;
    Ok(String::from_utf8(read("status")?)?.parse()?)
}

/// Records the answers of `clang` while a command runs. Returns the command's exit status.
fn record(directory: &Path, clang: &Path, command: &[OsString], guest: GuestRequest) -> Result<u8> {
    let (bin, lib) = (directory.join("bin"), directory.join("lib"));
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(lib.join("answers"))?;
    for (name, file) in BCC.1 {
        let shown = lib.join("bcc").join(name);
        fs::create_dir_all(shown.parent().context("a file is in a directory")?)?;
        symlink(Path::new(HEADERS.1).join(file), shown)?;
    }
    fs::create_dir_all(&bin)?;
    fs::copy(env::current_exe()?, bin.join("clang"))?;
    let (arguments, source) = TRIAL;
    let arguments: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
    Request::new(&arguments, source.to_vec())
        .keep(clang, &lib)
        .context("the compiler's trial")?;

    let recording = lib.join("recording");
    let listener = UnixListener::bind(&recording).context("listen for requests")?;
    thread::spawn({
        let (clang, lib) = (clang.to_owned(), lib);
        move || {
            for stream in listener.incoming() {
                if let Err(error) = stream
                    .context("accept")
                    .and_then(|stream| serve(stream, &clang, &lib, guest))
                {
                    eprintln!("clang's stand-in, recording: {error:#}");
                }
            }
        }
    });
    let (program, arguments) = command.split_first().context("no command to record")?;
    let status = Command::new(program)
        .args(arguments)
        .env("TWINPROBE_CLANG", bin.join("clang").canonicalize()?)
        .env("TWINPROBE_EXPECT", "confined=false")
        .status();
    fs::remove_file(&recording)?;
    let status = status.with_context(|| format!("start {}", program.display()))?;
    Ok(status.code().map_or(1, |code| code as u8))
}

fn serve(mut stream: UnixStream, clang: &Path, lib: &Path, guest: GuestRequest) -> Result<()> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let request =
        Request::from_bytes(&bytes).context("a request without an end of its arguments")?;
    for request in guest(&request).into_iter().chain([request]) {
        if !request.directory(lib).exists() {
            request.keep(clang, lib)?;
        }
    }
    Ok(())
}

/// Returns the request for the same program that a daemon on another machine sends, if it is
/// another request.
type GuestRequest = fn(&Request) -> Option<Request>;

/// A request to clang.
struct Request {
    arguments: Vec<OsString>,
    source: Vec<u8>,
}

impl Request {
    /// Leaves out the daemon's view of files: its name differs, and it is not there while answers
    /// are recorded.
    fn new(arguments: &[OsString], source: Vec<u8>) -> Self {
        let view = arguments
            .iter()
            .position(|argument| argument == "-ivfsoverlay");
        let is_view = |index| view.is_some_and(|view| (view..view + 2).contains(&index));
        let kept = arguments
            .iter()
            .enumerate()
            .filter(|(index, _)| !is_view(*index));
        Self {
            arguments: kept.map(|(_, argument)| argument.clone()).collect(),
            source,
        }
    }

    /// Returns the request for the same program that a daemon sends whose kernel has no XDP packets
    /// of several buffers.
    fn on_old_kernels(&self) -> Option<Self> {
        let direction = self.arguments.iter().position(|argument| {
            ["-DTWINPROBE_INGRESS=1", "-DTWINPROBE_EGRESS=1"]
                .iter()
                .any(|direction| argument == direction)
        })?;
        let mut arguments = self.arguments.clone();
        arguments.insert(direction + 1, "-DTWINPROBE_SINGLE_BUFFER=1".into());
        Some(Self {
            arguments,
            source: self.source.clone(),
        })
    }

    /// Returns the request for the same program that a daemon on arm64 sends.
    fn on_arm64(&self) -> Option<Self> {
        let there = |argument: &OsString| match argument.to_str() {
            Some("-D__TARGET_ARCH_x86") => "-D__TARGET_ARCH_arm64".into(),
            Some("/usr/include/x86_64-linux-gnu") => ARM64_HEADERS.0.into(),
            _ => argument.clone(),
        };
        let arguments: Vec<OsString> = self.arguments.iter().map(there).collect();
        (arguments != self.arguments).then(|| Self {
            arguments,
            source: self.source.clone(),
        })
    }

    /// Returns the arguments with a zero byte between them, two zero bytes, the source.
    fn to_bytes(&self) -> Vec<u8> {
        [
            self.arguments.join(OsStr::new("\0")).as_bytes(),
            b"\0\0",
            &self.source,
        ]
        .concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(2).position(|pair| pair == b"\0\0")?;
        let arguments = bytes[..end]
            .split(|byte| *byte == 0)
            .map(|bytes| OsStr::from_bytes(bytes).to_owned());
        Some(Self {
            arguments: arguments.collect(),
            source: bytes[end + 2..].to_vec(),
        })
    }

    fn directory(&self, lib: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.to_bytes());
        lib.join("answers")
            .join(format!("{:016x}", hasher.finish()))
    }

    /// Asks clang and keeps its answer.
    fn keep(&self, clang: &Path, lib: &Path) -> Result<()> {
        // The view of files shows the daemon's headers in a directory that exists nowhere else.
        let bcc = lib.join("bcc");
        let shown = |argument: &OsString| match argument {
            _ if argument == BCC.0 => bcc.clone().into(),
            _ => {
                let elsewhere = [HEADERS, ARM64_HEADERS]
                    .into_iter()
                    .find(|(name, _)| argument == name);
                elsewhere.map_or_else(|| argument.clone(), |(_, place)| place.into())
            }
        };
        let mut child = Command::new(clang)
            .args(self.arguments.iter().map(shown))
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", clang.display()))?;
        // clang reads all of its input before it writes, so this can't deadlock. The exit status
        // shows a refusal.
        let _ = child
            .stdin
            .take()
            .context("clang has a standard input")?
            .write_all(&self.source);
        let output = child.wait_with_output()?;
        let status = output.status.code().context("clang was killed")?;
        let directory = self.directory(lib);
        fs::create_dir(&directory)?;
        fs::write(directory.join("status"), status.to_string())?;
        fs::write(directory.join("output"), output.stdout)?;
        fs::write(directory.join("log"), output.stderr)?;
        fs::write(directory.join("request"), self.to_bytes())?;
        Ok(())
    }
}
