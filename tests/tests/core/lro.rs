//! LRO: a card joins received frames and loses their boundaries. The emulated machines have such a
//! card. The reasons in a window agree with the output of `ethtool`, and the commands that it names
//! make it exact.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, Namespace, Topology, probes};

/// The hooks and modes, and why one may be refused. Native XDP comes last: afterwards vmxnet3
/// refuses to switch LRO on.
const PLACES: [(&str, Option<&str>); 3] = [
    ("tc", None),
    ("xdp", Some("generic")),
    ("xdp", Some("native")),
];
const NO_NATIVE_XDP: &str = "native XDP is not supported";

fn features(interface: &str) -> Result<String> {
    let output = Command::new("ethtool")
        .args(["-k", interface])
        .output()
        .context("ethtool")?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Tells whether the interface has LRO on; `None` if it can't be switched.
fn switch(features: &str) -> Option<bool> {
    let line = features
        .lines()
        .find_map(|line| line.strip_prefix("large-receive-offload: "));
    line.filter(|line| !line.contains("fixed"))
        .map(|line| line.starts_with("on"))
}

/// Moves an interface whose LRO can be switched from this machine's namespace to the one of the
/// test, and sets it up.
fn take_card(namespace: &Namespace) -> Result<String> {
    for entry in std::fs::read_dir("/sys/class/net")? {
        let name = entry?.file_name().into_string().ok().context("a name")?;
        if switch(&features(&name)?).is_some() {
            let path = namespace.path().to_str().context("a path")?;
            let moved = Command::new("ip")
                .args(["link", "set", &name, "netns", path])
                .status()?;
            ensure!(moved.success(), "ip: {moved}");
            namespace.run("ip", &["link", "set", &name, "up"])?;
            return Ok(name);
        }
    }
    anyhow::bail!("this machine has no interface whose LRO can be switched")
}

struct Scene<'a> {
    namespace: &'a Namespace,
    daemon: Daemon,
    card: &'a str,
}

impl Scene<'_> {
    fn is_on(&self) -> Result<bool> {
        let found = self.namespace.enter(|| features(self.card))??;
        switch(&found).with_context(|| found.clone())
    }

    fn ethtool(&self, arguments: &str) -> Result<()> {
        self.namespace
            .run("ethtool", &arguments.split(' ').collect::<Vec<_>>())
    }

    /// Returns why the next window is approximate. A window tells all that was on while it was
    /// open.
    fn window(&self, name: &str) -> Option<String> {
        let document = self.daemon.json(&format!("/v1/probes/{name}/metrics"));
        document["approximate"].as_str().map(str::to_owned)
    }

    /// Checks the statuses with the present setting of LRO. Returns the reasons.
    fn agrees(&self, said: Option<&str>, of: &str) -> Result<String> {
        let said = said.unwrap_or_default();
        let wanted = format!("(LRO): `ethtool -K {} lro off`", self.card);
        let is_on = self.is_on()?;
        ensure!(
            said.contains(&wanted) == is_on,
            "{of}: LRO is {}, and this is said: {said}",
            on(is_on)
        );
        Ok(said.to_owned())
    }

    /// Follows a probe from a card with LRO to one without.
    fn follow(&self, name: &str, place: &str, status: &Value) -> Result<()> {
        let told = &status["interfaces"][0];
        self.agrees(
            told["approximate"].as_str(),
            &format!("{place}, the status"),
        )?;
        eprintln!(
            "{place}: attached as {}, LRO is {}",
            told["mode"],
            on(self.is_on()?)
        );
        self.window(name);
        self.agrees(self.window(name).as_deref(), place)?;
        // A driver may refuse LRO while XDP is attached.
        let switched = self.ethtool(&format!("-K {} lro on", self.card));
        eprintln!(
            "{place}: switched on again, LRO is {} ({switched:?})",
            on(self.is_on()?)
        );
        let said = self.agrees(
            self.window(name).as_deref(),
            &format!("{place}, switched on"),
        )?;
        for command in said
            .split('`')
            .filter(|part| part.starts_with("ethtool -K "))
        {
            self.ethtool(command.trim_start_matches("ethtool "))?;
        }
        self.window(name);
        ensure!(!self.is_on()?, "{place}: LRO is on");
        let left = self.window(name);
        ensure!(
            left.is_none(),
            "{place}: after the commands of `{said}`: {left:?}"
        );
        Ok(())
    }
}

const fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// A configuration of the library with received packets at this hook.
fn at(name: &str, interface: &str, hook: &str, mode: Option<&str>) -> Result<Value> {
    let mut config = probes::configuration(name, interface)?;
    let ingress = config["ingress"].as_object_mut().context("an ingress")?;
    ingress.insert("hook".to_owned(), hook.into());
    ingress.remove("mode");
    ingress.extend(mode.map(|mode| ("mode".to_owned(), json!(mode))));
    Ok(config)
}

#[test]
fn frames_that_a_card_puts_together_are_told() -> Result<()> {
    let topology = Topology::new()?;
    let namespace = topology.monitor();
    // tests/kernels/run.sh marks the guests with such a card. The test changes no card of other
    // machines.
    let card = std::env::var_os("TWINPROBE_LRO")
        .map(|_| take_card(namespace))
        .transpose()?;
    let interface = card.as_deref().unwrap_or("mon0");
    let scene = Scene {
        namespace,
        daemon: Daemon::start(namespace)?,
        card: interface,
    };
    if card.is_some() {
        scene.ethtool(&format!("-K {interface} lro on"))?;
        ensure!(scene.is_on()?, "LRO can't be switched on");
    }
    // The probe reads neither lengths nor numbers of frames, so it stays exact.
    let status = scene.daemon.put(
        "/v1/probes/handshake-latency",
        &at("handshake-latency", interface, "tc", None)?,
    );
    let status = status.expect(201).json();
    ensure!(
        status["interfaces"][0]["approximate"].is_null(),
        "{}",
        status["interfaces"]
    );
    ensure!(
        scene.window("handshake-latency").is_none(),
        "a window is approximate"
    );
    scene
        .daemon
        .delete("/v1/probes/handshake-latency")
        .expect(204);
    for (hook, mode) in PLACES {
        let place = format!("{hook} {}", mode.unwrap_or_default());
        if card.is_some() {
            scene.ethtool(&format!("-K {interface} lro on rxvlan on"))?;
            ensure!(scene.is_on()?, "LRO can't be switched on");
        }
        let answer = scene.daemon.put(
            "/v1/probes/packet-counter",
            &at("packet-counter", interface, hook, mode)?,
        );
        if card.is_some() && mode == Some("native") && answer.status == 422 {
            let message = answer.json()["errors"][0]["message"].to_string();
            ensure!(
                message.contains(NO_NATIVE_XDP) && message.contains(interface),
                "{message}"
            );
            eprintln!("{place}: refused: {message}");
            continue;
        }
        let status = answer.expect(201).json();
        if card.is_some() {
            scene.follow("packet-counter", &place, &status)?;
        } else {
            let said = status["interfaces"][0]["approximate"]
                .as_str()
                .unwrap_or_default();
            ensure!(
                !said.contains("LRO"),
                "{place}: a veth pair has no LRO: {said}"
            );
            eprintln!("{place}: this machine has no card with LRO, which is not tried here");
        }
        scene.daemon.delete("/v1/probes/packet-counter").expect(204);
    }
    Ok(())
}
