//! The Helm chart and the manifests that are rendered from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::tools::{root, run, shown, tools};

fn chart() -> PathBuf {
    root().join("deploy/helm/twinprobe")
}

/// Returns the files with values, and none for the defaults.
fn values() -> Result<Vec<Option<PathBuf>>> {
    let mut files = vec![None];
    for entry in fs::read_dir(chart().join("ci"))? {
        files.push(Some(entry?.path()));
    }
    ensure!(files.len() > 3, "{files:?}");
    Ok(files)
}

/// Values of the chart with which other hosts reach the API of the daemons.
const REACHABLE: [&str; 4] = [
    "fleet.enabled=true",
    "api.enabled=true",
    "api.tls.secretName=x",
    "api.accessSecret=y",
];

fn template(bin: &Path, values: Option<&Path>, sets: &[&str]) -> Command {
    let mut command = Command::new(bin.join("helm"));
    command
        .args(["template", "twinprobe"])
        .arg(chart())
        .args(["--namespace", "twinprobe"]);
    if let Some(file) = values {
        command.arg("--values").arg(file);
    }
    for set in sets {
        command.args(["--set", set]);
    }
    command
}

fn objects(rendered: &str) -> Result<Vec<Value>> {
    let documents = yaml_serde::Deserializer::from_str(rendered);
    let objects: Result<Vec<Value>, _> = documents.map(serde::Deserialize::deserialize).collect();
    Ok(objects?
        .into_iter()
        .filter(|object: &Value| !object.is_null())
        .collect())
}

fn object<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

/// Holds the objects against the schemas of a version of Kubernetes, which lacks the kinds `newer`.
fn check_objects(version: &str, newer: &[&str]) -> Result<()> {
    let Some(bin) = tools(&["helm", "kubernetes-validate"])? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let mut rendered = ["twinprobe.yaml", "stream.yaml"]
        .map(|name| root().join("deploy/kubernetes").join(name))
        .to_vec();
    for (index, values) in values()?.iter().enumerate() {
        let text = run(&mut template(&bin, values.as_deref(), &[]))?;
        let path = directory.path().join(format!("{index}.yaml"));
        fs::write(&path, text)?;
        rendered.push(path);
    }
    let mut validate = Command::new(bin.join("kubernetes-validate"));
    let output = validate
        .args(["--strict", "-k", version])
        .args(&rendered)
        .output()?;
    ensure!(output.status.success(), "{version}: {}", shown(&output));
    let text = shown(&output);
    // Objects of operators have no schema there.
    let unknown = text
        .lines()
        .filter(|line| line.contains("Couldn't find schema"));
    ensure!(
        unknown
            .filter(|line| !["PodMonitor", "PrometheusRule", "Certificate"]
                .iter()
                .chain(newer)
                .any(|kind| line.contains(kind)))
            .count()
            == 0,
        "{text}"
    );
    ensure!(text.contains("daemonset/twinprobe against"), "{text}");
    Ok(())
}

#[test]
fn all_objects_are_valid_for_kubernetes_1_29() -> Result<()> {
    // The fleet needs 1.32; the rest of the chart does not.
    check_objects("1.29.0", &["ValidatingAdmissionPolicy"])
}

#[test]
fn all_objects_are_valid_for_kubernetes_1_33() -> Result<()> {
    check_objects("1.33.0", &[])
}

#[test]
fn all_objects_are_valid_for_kubernetes_1_37() -> Result<()> {
    check_objects("1.37.0", &[])
}

#[test]
fn the_chart_has_nothing_that_helm_warns_of() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    for values in values()? {
        let mut lint = Command::new(bin.join("helm"));
        lint.arg("lint").arg("--strict").arg(chart());
        if let Some(file) = values {
            lint.arg("--values").arg(file);
        }
        run(&mut lint)?;
    }
    Ok(())
}

#[test]
fn the_plain_manifests_are_those_of_the_chart() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    let mut script = Command::new("sh");
    script
        .arg(root().join("deploy/kubernetes/render.sh"))
        .arg(bin.join("helm"));
    let committed = fs::read_to_string(root().join("deploy/kubernetes/twinprobe.yaml"))?;
    ensure!(
        run(&mut script)? == committed,
        "the chart has changed: call `make manifests`"
    );
    Ok(())
}

/// The chart's alerts are those of deploy/prometheus, with the name that the operator's Prometheus
/// gives to the job.
#[test]
fn rules_and_dashboard_are_in_the_chart() -> Result<()> {
    let Some(bin) = tools(&["helm", "promtool"])? else {
        return Ok(());
    };
    let values = chart().join("ci/everything.yaml");
    let objects = objects(&run(&mut template(&bin, Some(&values), &[]))?)?;
    let rules = object(&objects, "PrometheusRule").context("a PrometheusRule")?;
    assert_eq!(rules["metadata"]["labels"]["release"], "prometheus");
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), serde_json::to_string(&rules["spec"])?)?;
    run(Command::new(bin.join("promtool"))
        .args(["check", "rules"])
        .arg(file.path()))?;
    let down = &rules["spec"]["groups"][0]["rules"][0];
    assert_eq!(down["expr"], "up{job=\"twinprobe/twinprobe\"} == 0");
    let down = rules["spec"]["groups"][0]["rules"]
        .as_array()
        .into_iter()
        .flatten();
    let down = down.filter_map(|rule| rule["expr"].as_str());
    ensure!(
        down.filter(|expression| *expression == "up{job=\"twinprobe/twinprobe-stream\"} == 0")
            .count()
            == 1
    );
    let shipped: Value = yaml_serde::from_str(&fs::read_to_string(
        root().join("deploy/prometheus/rules.yml"),
    )?)?;
    let count = |rules: &Value| rules["groups"][0]["rules"].as_array().map_or(0, Vec::len);
    ensure!(
        count(&shipped) > 10 && count(&rules["spec"]) == count(&shipped),
        "{rules}"
    );
    let dashboard = objects
        .iter()
        .find(|object| object["data"]["twinprobe.json"].is_string());
    let dashboard = dashboard.context("a ConfigMap with the dashboard")?;
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    let text = dashboard["data"]["twinprobe.json"]
        .as_str()
        .unwrap_or_default();
    let panels: Value = serde_json::from_str(text)?;
    ensure!(
        panels["panels"]
            .as_array()
            .is_some_and(|panels| panels.len() > 20),
        "{panels}"
    );
    ensure!(
        text.contains("job=\\\"twinprobe/twinprobe\\\"") && !text.contains("job=\\\"twinprobe\\\""),
        "{text}"
    );
    Ok(())
}

#[test]
fn values_that_do_not_fit_are_refused() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    for (set, message) in [
        (
            &["api.enabled=true"][..],
            "api.enabled needs api.tls.secretName",
        ),
        (
            &["api.enabled=true", "api.tls.secretName=x"],
            "needs api.accessSecret",
        ),
        (&["metrics.podMonitor.enabled=true"], "need metrics.expose"),
        (&["api.tls.certManager.enabled=true"], "issuerRef.name"),
        (
            &["probes.p.interface=lo", "probesConfigMap=x"],
            "exclude each other",
        ),
        (
            &["fleet.enabled=true", "fleet.services=true"],
            "fleet.services needs fleet.pods",
        ),
        (
            &["fleet.enabled=true", "fleet.rules.enabled=true"],
            "needs fleet.enabled, api.enabled",
        ),
        (
            &[&REACHABLE[..], &["fleet.rules.enabled=true"]].concat(),
            "needs fleet.rules.tokenSecret",
        ),
        (
            &[
                &REACHABLE[..],
                &["fleet.rules.enabled=true", "fleet.rules.tokenSecret=x"],
            ]
            .concat(),
            "needs fleet.rules.caSecret",
        ),
        (&["tolerance=1"], "tolerance"),
        (&["probesRemoved=perhaps"], "probesRemoved"),
        (&["metrics.port=99999"], "port"),
    ] {
        let output = template(&bin, None, set).output()?;
        ensure!(
            !output.status.success() && shown(&output).contains(message),
            "{set:?}: {}",
            shown(&output)
        );
    }
    Ok(())
}

/// The daemon of the pods takes every option that the chart gives it, and has only the rights that
/// it needs.
#[test]
fn the_pods_run_the_daemon_as_it_is_documented() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    let help = run(Command::new(twinprobe_tests::binary()?).args(["serve", "--help"]))?;
    for values in values()? {
        let objects = objects(&run(&mut template(&bin, values.as_deref(), &[]))?)?;
        let daemons = object(&objects, "DaemonSet").context("a DaemonSet")?;
        let pod = &daemons["spec"]["template"]["spec"];
        let daemon = &pod["containers"][0];
        let arguments: Vec<&str> = daemon["args"]
            .as_array()
            .context("args")?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for option in arguments
            .iter()
            .filter_map(|argument| argument.strip_prefix("--"))
        {
            let name = option.split('=').next().unwrap_or_default();
            let known =
                help.contains(&format!("--{name} ")) || help.contains(&format!("--{name}\n"));
            ensure!(known, "serve has no --{name}");
        }
        let detaches = values
            .as_ref()
            .is_some_and(|file| file.ends_with("everything.yaml"));
        ensure!(
            arguments.contains(&"--detach-on-exit") == detaches,
            "an update leaves probes running: {arguments:?}"
        );
        let context = &daemon["securityContext"];
        let mut capabilities = vec!["BPF", "PERFMON", "NET_ADMIN", "SETUID", "SETGID", "KILL"];
        // The pods have the rights for measurements only if measurements are wanted.
        let measures = detaches;
        ensure!(
            arguments.contains(&"--measure-cost") == measures,
            "{arguments:?}"
        );
        capabilities.extend(["SYS_ADMIN", "SYSLOG"].into_iter().filter(|_| measures));
        ensure!(
            context["capabilities"]["add"] == serde_json::json!(capabilities),
            "{context}"
        );
        ensure!(
            context["capabilities"]["drop"][0] == "ALL"
                && context["allowPrivilegeEscalation"] == false
        );
        ensure!(
            context["readOnlyRootFilesystem"] == true
                && pod["automountServiceAccountToken"] == false
        );
        for (probe, path) in [
            ("startupProbe", "/readyz"),
            ("readinessProbe", "/readyz"),
            ("livenessProbe", "/healthz"),
        ] {
            ensure!(
                daemon[probe]["httpGet"]["path"] == path,
                "{probe}: {}",
                daemon[probe]
            );
        }
        // Without `expose` no other host reaches the counters.
        let metrics = arguments
            .iter()
            .find_map(|argument| argument.strip_prefix("--listen-metrics="));
        let exposed = object(&objects, "Service").is_some()
            || daemon["ports"]
                .as_array()
                .is_some_and(|ports| !ports.is_empty());
        ensure!(
            metrics.is_some_and(|address| address.starts_with("127.0.0.1:") != exposed),
            "{metrics:?}"
        );
        let mounts = daemon["volumeMounts"].as_array().context("volumeMounts")?;
        // A part of a volume would not follow changes of its ConfigMap or Secret.
        ensure!(mounts.iter().all(|mount| mount.get("subPath").is_none()));
    }
    Ok(())
}

/// Kubernetes can't restrict `exec` to the pods of a DaemonSet.
#[test]
fn the_role_reaches_no_pod_unless_it_is_told_to() -> Result<()> {
    let resources = |rendered: &str| -> Result<String> {
        let objects = objects(rendered)?;
        Ok(object(&objects, "Role")
            .map(|role| role["rules"].to_string())
            .unwrap_or_default())
    };
    let plain = fs::read_to_string(root().join("deploy/kubernetes/twinprobe.yaml"))?;
    let rules = resources(&plain)?;
    ensure!(
        rules.contains("configmaps") && !rules.contains("pods/"),
        "{rules}"
    );
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    for values in values()? {
        let rules = resources(&run(&mut template(&bin, values.as_deref(), &[]))?)?;
        ensure!(!rules.contains("pods/"), "{values:?}: {rules}");
    }
    let told = resources(&run(&mut template(&bin, None, &["rbac.exec=true"]))?)?;
    ensure!(
        told.contains("pods/exec") && told.contains("pods/portforward"),
        "{told}"
    );
    Ok(())
}

#[test]
fn the_chart_brings_the_kinds_as_the_operator_has_them() -> Result<()> {
    let printed = run(Command::new(twinprobe_tests::helper("twinprobe-operator")?).arg("crds"))?;
    let path = chart().join("crds/twinprobe.yaml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &printed)?;
    }
    ensure!(
        fs::read_to_string(&path)? == printed,
        "UPDATE_GOLDEN=1 writes {}",
        path.display()
    );
    Ok(())
}

#[test]
fn the_chart_configures_a_stream_of_the_node() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    let refused = template(&bin, None, &["stream.enabled=true"]).output()?;
    ensure!(
        shown(&refused).contains("stream.enabled needs stream.config.to"),
        "{}",
        shown(&refused)
    );
    let sets = [
        "stream.enabled=true",
        "stream.config.to[0].nats.servers={nats://broker:4222}",
        "stream.config.to[0].nats.stream=W",
    ];
    let objects = objects(&run(&mut template(&bin, None, &sets))?)?;
    let config = objects
        .iter()
        .find(|object| object["metadata"]["name"] == "twinprobe-stream");
    let config = config
        .and_then(|config| config["data"]["stream.yaml"].as_str())
        .context("a configuration")?;
    ensure!(config.contains("listen: 127.0.0.1:9471"), "{config}");
    let open = [
        &sets[..],
        &[
            "metrics.expose=true",
            "metrics.podMonitor.enabled=true",
            "networkPolicy.enabled=true",
        ],
    ];
    check_metrics(&bin, &open.concat())?;
    // The stream accepts the configuration: only the daemon is missing.
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("stream.yaml");
    let config = config.replace(
        "/run/twinprobe/twinprobe.sock",
        &format!("{}/none", directory.path().display()),
    );
    fs::write(&path, config)?;
    let mut stream = Command::new(twinprobe_tests::helper("twinprobe-stream")?);
    let said = shown(&stream.arg("--file").arg(&path).arg("--dry-run").output()?);
    ensure!(said.contains("could not reach the daemon"), "{said}");
    Ok(())
}

/// The webhook uses the user's certificate if there is one, and the chart does not make a
/// certificate then.
#[test]
fn the_webhook_has_the_certificate_of_the_user() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    let given = [
        "fleet.webhook.secret=mine",
        "fleet.webhook.caBundle=QUFB",
        "fleet.webhook.annotations.a=b",
    ];
    for has_own in [true, false] {
        let sets: Vec<&str> = ["fleet.enabled=true"]
            .into_iter()
            .chain(given.into_iter().filter(|_| has_own))
            .collect();
        let objects = objects(&run(&mut template(&bin, None, &sets))?)?;
        let made = objects.iter().any(|object| {
            object["kind"] == "Secret" && object["metadata"]["name"] == "twinprobe-fleet-webhook"
        });
        let volumes =
            object(&objects, "Deployment").context("a Deployment")?["spec"]["template"]["spec"]["volumes"]
                .to_string();
        let hook = object(&objects, "ValidatingWebhookConfiguration").context("a webhook")?;
        let bundle = hook["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap_or_default();
        let own = (
            !made,
            volumes.contains("\"mine\""),
            bundle == "QUFB",
            hook["metadata"]["annotations"]["a"] == "b",
        );
        ensure!(
            own == (has_own, has_own, has_own, has_own) && !bundle.is_empty(),
            "{own:?}: {volumes}, {hook}"
        );
    }
    Ok(())
}

/// Prometheus reaches the stream's own page, as a job of its own, and the policy lets the stream
/// out.
fn check_metrics(bin: &Path, sets: &[&str]) -> Result<()> {
    let objects = objects(&run(&mut template(bin, None, sets))?)?;
    let pod = &object(&objects, "DaemonSet").context("a DaemonSet")?["spec"]["template"]["spec"];
    let containers = pod["containers"].as_array().context("containers")?;
    let stream = containers
        .iter()
        .find(|container| container["name"] == "stream")
        .context("a stream")?;
    let port =
        serde_json::json!({ "name": "stream-metrics", "containerPort": 9471, "protocol": "TCP" });
    ensure!(stream["ports"] == serde_json::json!([port]), "{stream}");
    let config = objects
        .iter()
        .find(|object| object["metadata"]["name"] == "twinprobe-stream");
    let config = config.context("a configuration")?["data"]["stream.yaml"].to_string();
    ensure!(config.contains("listen: 0.0.0.0:9471"), "{config}");
    let endpoints =
        &object(&objects, "PodMonitor").context("a PodMonitor")?["spec"]["podMetricsEndpoints"];
    let endpoint = &endpoints[1];
    ensure!(endpoint["port"] == "stream-metrics", "{endpoints}");
    ensure!(
        endpoint["relabelings"][1]["replacement"] == "twinprobe/twinprobe-stream",
        "{endpoint}"
    );
    let policy = &object(&objects, "NetworkPolicy").context("a NetworkPolicy")?["spec"];
    ensure!(policy["egress"] == serde_json::json!([{}]), "{policy}");
    ensure!(policy["ingress"][0]["ports"][1]["port"] == 9471, "{policy}");
    // The daemon alone opens no connection, and a list of the site decides before the rest.
    let egress = |sets: &[&str]| -> Result<Value> {
        let objects = self::objects(&run(&mut template(bin, None, sets))?)?;
        Ok(object(&objects, "NetworkPolicy").context("a NetworkPolicy")?["spec"]["egress"].clone())
    };
    ensure!(egress(&["networkPolicy.enabled=true"])? == serde_json::json!([]));
    let listed = [sets, &["networkPolicy.egress[0].ports[0].port=4222"]].concat();
    ensure!(egress(&listed)? == serde_json::json!([{ "ports": [{ "port": 4222 }] }]));
    Ok(())
}

/// The operator of the chart accepts its options and finds the daemons. It may read nothing else
/// for this purpose.
#[test]
fn the_operator_judges_rules_with_credentials_of_its_own() -> Result<()> {
    let Some(bin) = tools(&["helm"])? else {
        return Ok(());
    };
    let help =
        run(Command::new(twinprobe_tests::helper("twinprobe-operator")?).args(["run", "--help"]))?;
    let rules = [
        "fleet.rules.enabled=true",
        "fleet.rules.tokenSecret=rules",
        "fleet.rules.caSecret=authorities",
    ];
    for sets in [
        [&REACHABLE[..], &rules].concat(),
        vec!["fleet.enabled=true", "fleet.webhook.enabled=false"],
    ] {
        let judges = sets.contains(&"fleet.rules.enabled=true");
        let objects = objects(&run(&mut template(&bin, None, &sets))?)?;
        let operator = object(&objects, "Deployment").context("a Deployment")?;
        let pod = &operator["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"]
            .as_array()
            .context("args")?
            .iter();
        let arguments: Vec<&str> = arguments.filter_map(Value::as_str).collect();
        for option in arguments
            .iter()
            .filter_map(|argument| argument.strip_prefix("--"))
        {
            let name = option.split('=').next().unwrap_or_default();
            let known =
                help.contains(&format!("--{name} ")) || help.contains(&format!("--{name}\n"));
            ensure!(known, "run has no --{name}");
        }
        ensure!(
            arguments.contains(&"--daemons-service=twinprobe") == judges,
            "{arguments:?}"
        );
        let volumes = pod["volumes"].to_string();
        let secrets = ["\"rules\"", "\"authorities\""];
        ensure!(
            secrets
                .iter()
                .all(|secret| volumes.contains(secret) == judges),
            "{volumes}"
        );
        ensure!(
            pod["volumes"].is_array() == judges,
            "without volumes there is no empty list: {volumes}"
        );
        let roles = objects.iter().filter(|object| object["kind"] == "Role");
        let operator = roles.filter(|role| role["metadata"]["name"] == "twinprobe-fleet");
        let rules: String = operator.map(|role| role["rules"].to_string()).collect();
        ensure!(
            rules.contains("endpointslices") == judges && !rules.contains("secrets"),
            "{rules}"
        );
    }
    Ok(())
}
