//! Expedited grace periods of RCU, while probes are attached and removed. The kernel waits for a
//! grace period for each TCX link that it makes or removes, under the lock of all interfaces, and
//! for each program that is new to XDP: 8 to 15 ms, or 0.2 ms if it interrupts the CPUs instead of
//! waiting for them. `/sys/kernel/rcu_expedited` is the switch for that, for the whole machine: it
//! is on only during a change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::attach::expedite_switch::{Need, OFF, Switch};
use crate::load::pins::boot_id;

/// The directory for the note about expedited grace periods. A boot removes the directory and its
/// content.
const RUN: &str = "/run/twinprobe";
const SYS: &str = "/sys";
/// The name that the note had in earlier versions, in the state directory.
const OLD_NOTE: &str = "rcu_expedited";

/// The choice of whether grace periods are expedited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expedite {
    /// Grace periods are expedited unless the machine has CPUs that must not be interrupted, or a
    /// real-time kernel.
    Auto,
    Always,
    Never,
}

impl Expedite {
    pub const CHOICES: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// Returns the name of the choice on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// The switch, and the use that this daemon makes of it.
#[derive(Debug)]
pub struct GracePeriods {
    switch: Switch,
    state: Mutex<ExpediteState>,
}

#[derive(Debug)]
struct ExpediteState {
    is_allowed: bool,
    /// The number of changes that are being made.
    changes: usize,
    /// The need of the switch for these changes; `None` without changes, or if the switch can't be
    /// turned on.
    need: Option<Need>,
}

/// A change during which grace periods are expedited. After the change the switch has its old
/// value.
#[derive(Debug)]
pub struct Expedited<'a>(&'a GracePeriods);

/// The paths of the files that belong to the switch.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub sys: &'a Path,
    pub run: &'a Path,
    pub state_dir: &'a Path,
}

impl<'a> Places<'a> {
    /// Returns the paths on this machine, for a daemon with this state directory.
    pub fn here(state_dir: &'a Path) -> Self {
        Self {
            sys: Path::new(SYS),
            run: Path::new(RUN),
            state_dir,
        }
    }
}

/// Returns the path of the switch if a daemon has left the switch on because it died during a
/// change. Changes nothing.
///
/// # Errors Fails if the files can't be read.
pub fn left_on() -> io::Result<Option<PathBuf>> {
    let switch = Switch::new(Path::new(SYS), Path::new(RUN), &boot_id()?);
    Ok(switch.is_left()?.then_some(switch.path))
}

impl GracePeriods {
    /// Turns the switch off if any daemon has left it on because it died during a change.
    pub fn open(places: Places<'_>, boot: &str, choice: Expedite) -> Self {
        let allowed = match choice {
            Expedite::Always => Ok(()),
            Expedite::Never => Err("--expedite never"),
            Expedite::Auto => expect_no_harm(places.sys),
        };
        if let Err(reason) = allowed {
            tracing::info!(reason, "grace periods are not expedited");
        }
        let switch = Switch::new(places.sys, places.run, boot);
        match switch.mend() {
            Ok(true) => tracing::warn!(
                "an earlier daemon died and left grace periods expedited; they are normal again"
            ),
            Ok(false) => {}
            Err(error) => switch.report(&error),
        }
        mend_old(&switch, &places.state_dir.join(OLD_NOTE), boot);
        Self {
            switch,
            state: Mutex::new(ExpediteState {
                is_allowed: allowed.is_ok(),
                changes: 0,
                need: None,
            }),
        }
    }

    /// Expedites grace periods, if this is possible, until the returned value is dropped.
    pub fn expedite(&self) -> Expedited<'_> {
        let mut state = self.state.lock();
        state.changes += 1;
        if state.changes == 1 && state.is_allowed {
            match self.switch.need() {
                Ok(need) => state.need = Some(need),
                // Another daemon holds the lock of the switch for too long.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // In a container, /sys may be read-only.
                Err(error) => {
                    let switch = self.switch.path.display();
                    tracing::info!(%error, %switch, "grace periods can't be expedited");
                    state.is_allowed = false;
                }
            }
        }
        Expedited(self)
    }
}

impl Drop for Expedited<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.changes -= 1;
        if state.changes == 0
            && let Some(need) = state.need.take()
            && let Err(error) = self.0.switch.release(&need)
        {
            self.0.switch.report(&error);
        }
    }
}

impl Switch {
    fn report(&self, error: &io::Error) {
        let switch = self.path.display();
        tracing::error!(%error, %switch, "grace periods may stay expedited: write 0 to this file");
    }
}

/// Turns off a switch that a daemon of an earlier version has left on, and removes the note of that
/// daemon.
fn mend_old(switch: &Switch, note: &Path, boot: &str) {
    let Ok(noted) = fs::read_to_string(note) else {
        return;
    };
    let mended = if noted == boot {
        fs::write(&switch.path, OFF)
    } else {
        Ok(())
    };
    if let Err(error) = mended.and_then(|()| fs::remove_file(note)) {
        switch.report(&error);
    }
}

/// Fails with the reason if the host has CPUs that must not be interrupted.
fn expect_no_harm(sys: &Path) -> Result<(), &'static str> {
    let read = |path: &str| fs::read_to_string(sys.join(path)).unwrap_or_default();
    // The kernel writes "(null)" for a mask that it does not have.
    let has_cpus = |path: &str| {
        read(path)
            .trim()
            .starts_with(|first: char| first.is_ascii_digit())
    };
    match () {
        () if read("kernel/realtime").trim() == "1" => Err("the kernel is for real time"),
        () if has_cpus("devices/system/cpu/isolated") => Err("there are isolated CPUs (isolcpus=)"),
        () if has_cpus("devices/system/cpu/nohz_full") => {
            Err("there are CPUs without ticks (nohz_full=)")
        }
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::expedite_switch::ON;

    const BOOT: &str = "boot";

    /// Directories in the form of sysfs and of /run: tests of other daemons turn the switch of the
    /// machine.
    struct Machine {
        sys: tempfile::TempDir,
        run: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let sys = tempfile::tempdir().unwrap();
            for directory in ["kernel", "devices/system/cpu"] {
                fs::create_dir_all(sys.path().join(directory)).unwrap();
            }
            fs::write(sys.path().join("devices/system/cpu/isolated"), "\n").unwrap();
            fs::write(sys.path().join("devices/system/cpu/nohz_full"), "(null)\n").unwrap();
            let machine = Self {
                sys,
                run: tempfile::tempdir().unwrap(),
            };
            machine.set("0\n");
            machine
        }

        fn set(&self, value: &str) {
            fs::write(self.sys.path().join("kernel/rcu_expedited"), value).unwrap();
        }

        fn switch(&self) -> String {
            fs::read_to_string(self.sys.path().join("kernel/rcu_expedited"))
                .unwrap()
                .trim()
                .to_owned()
        }

        fn note(&self) -> String {
            fs::read_to_string(self.run.path().join("rcu_expedited")).unwrap_or_default()
        }

        /// A daemon with a state directory of its own.
        fn daemon(&self, boot: &str, choice: Expedite) -> GracePeriods {
            let state = tempfile::tempdir().unwrap();
            self.next_daemon(state.path(), boot, choice)
        }

        fn next_daemon(&self, state_dir: &Path, boot: &str, choice: Expedite) -> GracePeriods {
            GracePeriods::open(
                Places {
                    sys: self.sys.path(),
                    run: self.run.path(),
                    state_dir,
                },
                boot,
                choice,
            )
        }
    }

    impl GracePeriods {
        /// Ends as a process that is killed during a change: the locks are released, and nothing
        /// else happens.
        fn die(self) {
            std::mem::forget(self.expedite());
            drop(self);
        }
    }

    #[test]
    fn the_switch_is_on_for_the_time_of_changes() {
        let machine = Machine::new();
        let periods = machine.daemon(BOOT, Expedite::Auto);
        let first = periods.expedite();
        let second = periods.expedite();
        assert_eq!(machine.switch(), ON);
        drop(first);
        assert_eq!(machine.switch(), ON);
        drop(second);
        assert_eq!(
            (machine.switch().as_str(), machine.note().as_str()),
            (OFF, "")
        );
    }

    #[test]
    fn a_switch_that_others_have_turned_on_stays_on() {
        let machine = Machine::new();
        machine.set("1\n");
        let periods = machine.daemon(BOOT, Expedite::Auto);
        drop(periods.expedite());
        assert_eq!(machine.switch(), ON);
        periods.die();
        machine.daemon(BOOT, Expedite::Auto);
        assert_eq!(machine.switch(), ON);
    }

    #[test]
    fn several_daemons_do_not_turn_off_what_another_needs() {
        let machine = Machine::new();
        let daemons = [(); 2].map(|()| machine.daemon(BOOT, Expedite::Auto));
        let [one, two] = &daemons;
        let (first, second) = (one.expedite(), two.expedite());
        drop(first);
        assert_eq!(machine.switch(), ON);
        // A daemon that starts meanwhile finds that another daemon needs the switch.
        machine.daemon(BOOT, Expedite::Auto);
        assert_eq!(machine.switch(), ON);
        drop(second);
        assert_eq!(machine.switch(), OFF);
    }

    #[test]
    fn any_daemon_turns_off_what_a_dead_one_has_turned_on() {
        let machine = Machine::new();
        machine.daemon(BOOT, Expedite::Auto).die();
        assert_eq!(machine.switch(), ON);
        let left = Switch::new(machine.sys.path(), machine.run.path(), BOOT);
        assert!(left.is_left().unwrap());
        assert_eq!(machine.switch(), ON, "to look changes nothing");
        machine.daemon(BOOT, Expedite::Never);
        assert_eq!(
            (machine.switch().as_str(), machine.note().as_str()),
            (OFF, "")
        );
        assert!(!left.is_left().unwrap());

        // A daemon that was running already turns the switch off with its next change.
        let other = machine.daemon(BOOT, Expedite::Auto);
        machine.daemon(BOOT, Expedite::Auto).die();
        drop(other.expedite());
        assert_eq!(machine.switch(), OFF);

        // After a boot the switch may be on for another reason.
        machine.daemon(BOOT, Expedite::Auto).die();
        machine.daemon("next boot", Expedite::Never);
        assert_eq!(machine.switch(), ON);
    }

    #[test]
    fn the_note_of_an_earlier_version_counts() {
        let (machine, state) = (Machine::new(), tempfile::tempdir().unwrap());
        let note = state.path().join("rcu_expedited");
        for (boot, after) in [("another boot", ON), (BOOT, OFF)] {
            machine.set(ON);
            fs::write(&note, boot).unwrap();
            machine.next_daemon(state.path(), BOOT, Expedite::Never);
            assert_eq!(machine.switch(), after);
            assert!(!note.exists());
        }
    }

    #[test]
    fn nobody_is_interrupted_who_counts_on_it() {
        let files = [
            "devices/system/cpu/isolated",
            "devices/system/cpu/nohz_full",
            "kernel/realtime",
        ];
        for (path, content) in files.into_iter().zip(["1-3\n", "1\n", "1\n"]) {
            let machine = Machine::new();
            fs::write(machine.sys.path().join(path), content).unwrap();
            let auto = machine.daemon(BOOT, Expedite::Auto);
            let change = auto.expedite();
            assert_eq!(machine.switch(), OFF, "{path}");
            drop(change);
            let always = machine.daemon(BOOT, Expedite::Always);
            let change = always.expedite();
            assert_eq!(machine.switch(), ON, "{path}");
            drop(change);
        }
    }

    #[test]
    fn what_can_not_be_switched_is_left_alone() {
        let machine = Machine::new();
        let switch = machine.sys.path().join("kernel/rcu_expedited");
        fs::remove_file(&switch).unwrap();
        fs::create_dir(&switch).unwrap();
        let periods = machine.daemon(BOOT, Expedite::Auto);
        drop(periods.expedite());
        drop(periods.expedite());
        assert_eq!(machine.note(), "");
    }
}
