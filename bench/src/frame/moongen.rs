//! MoonGen as the sender of packets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use twinprobe_tests::Namespace;
use twinprobe_tests::traffic::Spread;

/// A MoonGen that has been built.
#[derive(Clone, Debug)]
pub struct MoonGen {
    pub directory: PathBuf,
    /// MoonGen's number of the port.
    pub port: u32,
    /// The interface where the packets of the port arrive; none if DPDK sends into a veth pair.
    pub interface: Option<String>,
}

/// A MoonGen at work. A drop kills the process.
#[derive(Debug)]
pub struct Running {
    child: Child,
    directory: TempDir,
}

impl MoonGen {
    /// Describes the sender, for the document.
    pub fn describe(&self) -> String {
        let device = match &self.interface {
            Some(interface) => format!("port {}, which arrives at {interface}", self.port),
            None => format!("port {}, DPDK's af_packet device on a veth pair", self.port),
        };
        format!("MoonGen, one thread, {device}")
    }

    /// Starts sending out of `interface` of `namespace`, unless a card has a port for it: `count`
    /// packets, or forever.
    pub fn start(
        &self,
        namespace: &Namespace,
        interface: &str,
        spread: &Spread,
        count: Option<u64>,
    ) -> Result<Running> {
        let directory = tempfile::tempdir()?;
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traffic/moongen/syn-sessions.lua");
        let mut arguments = vec![
            script
                .canonicalize()
                .context("MoonGen's script")?
                .into_os_string(),
            self.port.to_string().into(),
            format!("--addresses={}", spread.addresses).into(),
            format!("--ports={}", spread.ports).into(),
            format!("--base-address={}", spread.base_address).into(),
            format!("--base-port={}", spread.base_port).into(),
            format!("--count={}", count.unwrap_or(0)).into(),
        ];
        if self.interface.is_none() {
            let configuration = directory.path().join("dpdk-conf.lua");
            let device = format!("net_af_packet0,iface={interface}");
            let text =
                format!("DPDKConfig {{ cli = {{ \"--no-pci\", \"--vdev\", \"{device}\" }} }}\n");
            fs::write(&configuration, text)?;
            arguments.push(format!("--dpdk-config={}", configuration.display()).into());
        }
        let output = File::create(directory.path().join("output"))?;
        let child = namespace.enter(|| {
            Command::new(self.directory.join("build/MoonGen"))
                .args(&arguments)
                .current_dir(&self.directory)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                .spawn()
        })?;
        let child = child.context("start MoonGen")?;
        Ok(Running { child, directory })
    }
}

impl Running {
    /// Fails with the output of MoonGen if it has ended.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "MoonGen has ended: {}", self.said()?);
        Ok(())
    }

    /// Interrupts the program, and returns the number of sent packets.
    pub fn stop(self) -> Result<u64> {
        let status = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status()?;
        ensure!(status.success(), "kill: {status}");
        self.join()
    }

    /// Waits for the end of MoonGen, and returns the number of sent packets.
    pub fn join(mut self) -> Result<u64> {
        let status = self.child.wait()?;
        let said = self.said()?;
        ensure!(status.success(), "MoonGen: {status}: {said}");
        packets(&said).with_context(|| format!("MoonGen does not say what it has sent: {said}"))
    }

    fn said(&self) -> Result<String> {
        let said = fs::read(self.directory.path().join("output"))?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the total from the end of the script's output.
fn packets(said: &str) -> Option<u64> {
    said.lines().rev().find_map(|line| {
        let (before, behind) = line.split_once(" packets sent")?;
        // A thread's own figure is "... packets sent by this thread"; colours may follow.
        (!behind.starts_with(" by")).then(|| before.rsplit([' ', 'm']).next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let said = "[INFO]  10 packets sent by this thread\n\u{1b}[37m[INFO]  30 packets sent\u{1b}[0m\nbye\n";
        assert_eq!(packets(said), Some(30));
        assert_eq!(packets("[INFO]  10 packets sent by this thread\n"), None);
    }

    /// Any program in the place of MoonGen is started with the script and its options, in the
    /// namespace.
    #[test]
    fn it_is_told_what_to_send() -> Result<()> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("build"))?;
        let program = directory.path().join("build/MoonGen");
        fs::write(
            &program,
            "#!/bin/sh\necho \"$@\"\nfor a; do case $a in --dpdk-config=*) cat \"${a#*=}\";; esac; done\n\
            echo '[INFO] 7 packets sent'\n",
        )?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode)?;
        let moongen = MoonGen {
            directory: directory.path().into(),
            port: 3,
            interface: None,
        };
        let mut running =
            moongen.start(&Namespace::current()?, "gen0", &Spread::default(), Some(7))?;
        running.child.wait()?;
        let said = running.said()?;
        for part in [
            "syn-sessions.lua 3 --addresses=256",
            "--ports=97",
            "--count=7",
            "net_af_packet0,iface=gen0",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(running.check().is_err());
        assert_eq!(running.join()?, 7);
        Ok(())
    }
}
