//! Expedited grace periods of RCU, while probes are attached and removed. The kernel waits for a grace period for each
//! TCX link that it makes or removes, under the lock of all interfaces, and for each program that is new to XDP: 8 to
//! 15 ms, or 0.2 ms if it interrupts the CPUs instead of waiting for them. `/sys/kernel/rcu_expedited` is the switch for
//! that, of the whole machine: it is on for the time of a change only, and a daemon that dies meanwhile leaves a note for
//! the next one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::crash;

const SWITCH: &str = "kernel/rcu_expedited";
const ON: &str = "1";
const OFF: &str = "0";
const NOTE: &str = "rcu_expedited";

/// The choice whether grace periods are expedited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expedite {
    /// Unless the machine has CPUs that are not to be interrupted, or a kernel for real time.
    Auto,
    Always,
    Never,
}

impl Expedite {
    pub const CHOICES: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// The names by which the choice is made on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// The switch, and what this daemon has done to it.
#[derive(Debug)]
pub struct GracePeriods {
    /// `/sys/kernel/rcu_expedited`.
    switch: PathBuf,
    /// The file that says that this daemon, or one before it, has turned the switch on in the boot that it names.
    note: PathBuf,
    boot: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_allowed: bool,
    /// The number of changes that are under way.
    changes: usize,
    /// True if this daemon has turned the switch on.
    is_ours: bool,
}

/// The time of a change, during which grace periods are expedited. They end as they were.
#[derive(Debug)]
pub struct Expedited<'a>(&'a GracePeriods);

impl GracePeriods {
    /// `sys` is the place of sysfs. Turns the switch off if an earlier daemon of `state_dir` has died in a change.
    pub fn open(sys: &Path, state_dir: &Path, boot: &str, choice: Expedite) -> Self {
        let allowed = match choice {
            Expedite::Always => Ok(()),
            Expedite::Never => Err("--expedite never"),
            Expedite::Auto => expect_no_harm(sys),
        };
        if let Err(reason) = allowed {
            tracing::info!(reason, "grace periods are not expedited");
        }
        let state = Mutex::new(State { is_allowed: allowed.is_ok(), changes: 0, is_ours: false });
        let opened =
            Self { switch: sys.join(SWITCH), note: state_dir.join(NOTE), boot: boot.to_owned(), state };
        match fs::read_to_string(&opened.note) {
            Ok(noted) if noted == opened.boot => opened.turn_off(),
            Ok(_) => opened.forget(),
            Err(_) => {}
        }
        opened
    }

    /// Expedites grace periods until the answer is dropped, as far as that is possible.
    pub fn expedite(&self) -> Expedited<'_> {
        let mut state = self.state.lock();
        state.changes += 1;
        if state.changes == 1 && state.is_allowed {
            state.is_ours = self.turn_on().unwrap_or_else(|error| {
                // In a container /sys can be read only.
                tracing::info!(%error, switch = %self.switch.display(), "grace periods can't be expedited");
                state.is_allowed = false;
                false
            });
        }
        Expedited(self)
    }

    /// Turns the switch on. Returns false if it was on.
    fn turn_on(&self) -> io::Result<bool> {
        if fs::read_to_string(&self.switch)?.trim() != OFF {
            return Ok(false);
        }
        let mut note =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&self.note)?;
        note.write_all(self.boot.as_bytes())?;
        fs::write(&self.switch, ON).inspect_err(|_| self.forget())?;
        crash::point("expedited");
        Ok(true)
    }

    fn turn_off(&self) {
        match fs::write(&self.switch, OFF) {
            Ok(()) => self.forget(),
            Err(error) => tracing::error!(%error, switch = %self.switch.display(), "write 0 to this file"),
        }
    }

    fn forget(&self) {
        if let Err(error) = fs::remove_file(&self.note) {
            tracing::error!(%error, note = %self.note.display(), "the note of expedited grace periods stays");
        }
    }
}

impl Drop for Expedited<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.changes -= 1;
        if state.changes == 0 && std::mem::take(&mut state.is_ours) {
            self.0.turn_off();
        }
    }
}

/// Fails with the reason if somebody counts on CPUs that nobody interrupts.
fn expect_no_harm(sys: &Path) -> Result<(), &'static str> {
    let read = |path: &str| fs::read_to_string(sys.join(path)).unwrap_or_default();
    // The kernel writes "(null)" for a mask that it does not have.
    let has_cpus = |path: &str| read(path).trim().starts_with(|first: char| first.is_ascii_digit());
    match () {
        () if read("kernel/realtime").trim() == "1" => Err("the kernel is for real time"),
        () if has_cpus("devices/system/cpu/isolated") => Err("there are isolated CPUs (isolcpus=)"),
        () if has_cpus("devices/system/cpu/nohz_full") => Err("there are CPUs without ticks (nohz_full=)"),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in the form of sysfs: tests of other daemons turn the switch of the machine.
    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for directory in ["kernel", "devices/system/cpu"] {
            fs::create_dir_all(sys.path().join(directory)).unwrap();
        }
        fs::write(sys.path().join(SWITCH), "0\n").unwrap();
        fs::write(sys.path().join("devices/system/cpu/isolated"), "\n").unwrap();
        fs::write(sys.path().join("devices/system/cpu/nohz_full"), "(null)\n").unwrap();
        sys
    }

    fn switch(sys: &Path) -> String {
        fs::read_to_string(sys.join(SWITCH)).unwrap().trim().to_owned()
    }

    #[test]
    fn the_switch_is_on_for_the_time_of_changes() {
        let (sys, state) = (sysfs(), tempfile::tempdir().unwrap());
        let periods = GracePeriods::open(sys.path(), state.path(), "boot", Expedite::Auto);
        let first = periods.expedite();
        let second = periods.expedite();
        assert_eq!(switch(sys.path()), ON);
        drop(first);
        assert_eq!(switch(sys.path()), ON);
        drop(second);
        assert_eq!(switch(sys.path()), OFF);
        assert!(!periods.note.exists());
    }

    #[test]
    fn a_switch_that_others_have_turned_on_stays_on() {
        let (sys, state) = (sysfs(), tempfile::tempdir().unwrap());
        fs::write(sys.path().join(SWITCH), "1\n").unwrap();
        let periods = GracePeriods::open(sys.path(), state.path(), "boot", Expedite::Auto);
        drop(periods.expedite());
        assert_eq!(switch(sys.path()), ON);
    }

    #[test]
    fn the_next_daemon_turns_off_what_a_dead_one_has_turned_on() {
        let (sys, state) = (sysfs(), tempfile::tempdir().unwrap());
        let open = |boot: &str| GracePeriods::open(sys.path(), state.path(), boot, Expedite::Never);
        std::mem::forget(GracePeriods::open(sys.path(), state.path(), "boot", Expedite::Auto).expedite());
        assert_eq!(switch(sys.path()), ON);
        assert!(!open("boot").note.exists());
        assert_eq!(switch(sys.path()), OFF);

        // In another boot the switch is somebody else's.
        std::mem::forget(GracePeriods::open(sys.path(), state.path(), "boot", Expedite::Auto).expedite());
        assert!(!open("next boot").note.exists());
        assert_eq!(switch(sys.path()), ON);
    }

    #[test]
    fn nobody_is_interrupted_who_counts_on_it() {
        let files = ["devices/system/cpu/isolated", "devices/system/cpu/nohz_full", "kernel/realtime"];
        for (path, content) in files.into_iter().zip(["1-3\n", "1\n", "1\n"]) {
            let (sys, state) = (sysfs(), tempfile::tempdir().unwrap());
            fs::write(sys.path().join(path), content).unwrap();
            let open = |choice| GracePeriods::open(sys.path(), state.path(), "boot", choice);
            let auto = open(Expedite::Auto);
            let change = auto.expedite();
            assert_eq!(switch(sys.path()), OFF, "{path}");
            drop(change);
            let always = open(Expedite::Always);
            let change = always.expedite();
            assert_eq!(switch(sys.path()), ON, "{path}");
            drop(change);
        }
    }

    #[test]
    fn what_can_not_be_switched_is_left_alone() {
        let (sys, state) = (sysfs(), tempfile::tempdir().unwrap());
        fs::remove_file(sys.path().join(SWITCH)).unwrap();
        fs::create_dir(sys.path().join(SWITCH)).unwrap();
        let periods = GracePeriods::open(sys.path(), state.path(), "boot", Expedite::Auto);
        drop(periods.expedite());
        drop(periods.expedite());
        assert!(!periods.note.exists());
    }
}
