//! Each role, each route, each kind of credential.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Response, Topology, http};

use crate::guarded::{ROLES, Scene, Token};
use crate::tls::{Authority, Files, NAME, authority, signed};

const OPENAPI: &str = include_str!("../../../api/openapi.yaml");

/// A request of each route, and the status of the answer to permitted clients. No request changes
/// anything that the next one needs.
const REQUESTS: [(&str, &str, &str, &str, u16); 46] = [
    ("GET", "/v1/probes", "/v1/probes", "", 200),
    ("GET", "/v1/probes/{name}", "/v1/probes/kept", "", 200),
    ("PUT", "/v1/probes/{name}", "/v1/probes/none", "{}", 422),
    ("DELETE", "/v1/probes/{name}", "/v1/probes/none", "", 404),
    (
        "GET",
        "/v1/probes/{name}/revisions",
        "/v1/probes/kept/revisions",
        "",
        200,
    ),
    (
        "GET",
        "/v1/probes/{name}/history",
        "/v1/probes/kept/history",
        "",
        200,
    ),
    ("GET", "/v1/history", "/v1/history", "", 200),
    ("GET", "/v1/names", "/v1/names?port=443", "", 200),
    ("GET", "/v1/nodes", "/v1/nodes", "", 404),
    (
        "GET",
        "/v1/nodes/series",
        "/v1/nodes/series?probe=kept&metric=packets",
        "",
        404,
    ),
    (
        "GET",
        "/v1/nodes/windows",
        "/v1/nodes/windows?probe=kept",
        "",
        404,
    ),
    ("GET", "/v1/pods", "/v1/pods", "", 200),
    ("PUT", "/v1/pods", "/v1/pods", "{", 400),
    ("GET", "/v1/rules", "/v1/rules", "", 200),
    ("GET", "/v1/rules/{name}", "/v1/rules/none", "", 404),
    ("PUT", "/v1/rules/{name}", "/v1/rules/none", "{", 400),
    ("DELETE", "/v1/rules/{name}", "/v1/rules/none", "", 404),
    (
        "GET",
        "/v1/rules/{name}/revisions",
        "/v1/rules/none/revisions",
        "",
        404,
    ),
    (
        "POST",
        "/v1/rules/{name}/rollback",
        "/v1/rules/none/rollback",
        "",
        404,
    ),
    ("GET", "/v1/templates", "/v1/templates", "", 200),
    ("GET", "/v1/templates/{name}", "/v1/templates/none", "", 404),
    (
        "PUT",
        "/v1/templates/{name}",
        "/v1/templates/none",
        "{",
        400,
    ),
    (
        "DELETE",
        "/v1/templates/{name}",
        "/v1/templates/none",
        "",
        404,
    ),
    (
        "POST",
        "/v1/probes/{name}/rollback",
        "/v1/probes/kept/rollback",
        "",
        409,
    ),
    (
        "POST",
        "/v1/probes/{name}/mark",
        "/v1/probes/kept/mark?message=x",
        "",
        204,
    ),
    (
        "GET",
        "/v1/probes/{name}/maps/{map}/entries",
        "/v1/probes/kept/maps/none/entries",
        "",
        404,
    ),
    (
        "PUT",
        "/v1/probes/{name}/maps/{map}/entries",
        "/v1/probes/none/maps/none/entries",
        "[]",
        404,
    ),
    ("POST", "/v1/validate", "/v1/validate", "{}", 422),
    // The body does not have several parts.
    ("POST", "/v1/replay", "/v1/replay", "", 415),
    ("POST", "/v1/replay/rule", "/v1/replay/rule", "", 415),
    (
        "GET",
        "/v1/probes/{name}/metrics",
        "/v1/probes/kept/metrics",
        "",
        200,
    ),
    (
        "GET",
        "/v1/probes/{name}/windows",
        "/v1/probes/kept/windows",
        "",
        200,
    ),
    (
        "POST",
        "/v1/probes/{name}/windows",
        "/v1/probes/kept/windows",
        "",
        201,
    ),
    (
        "GET",
        "/v1/probes/{name}/windows/{seq}",
        "/v1/probes/kept/windows/99999",
        "",
        404,
    ),
    (
        "GET",
        "/v1/probes/{name}/windows/{seq}/shape",
        "/v1/probes/kept/windows/99999/shape",
        "",
        404,
    ),
    (
        "DELETE",
        "/v1/probes/{name}/windows/{seq}",
        "/v1/probes/kept/windows/99999",
        "",
        404,
    ),
    (
        "GET",
        "/v1/probes/{name}/series",
        "/v1/probes/kept/series",
        "",
        400,
    ),
    (
        "GET",
        "/v1/probes/{name}/series/history",
        "/v1/probes/kept/series/history",
        "",
        404,
    ),
    (
        "GET",
        "/v1/probes/{name}/events",
        "/v1/probes/kept/events",
        "",
        404,
    ),
    ("GET", "/v1/changes", "/v1/changes?probe=none", "", 404),
    ("GET", "/v1/capabilities", "/v1/capabilities", "", 200),
    ("GET", "/metrics", "/metrics", "", 200),
    ("GET", "/healthz", "/healthz", "", 200),
    ("GET", "/readyz", "/readyz", "", 200),
    ("GET", "/openapi.yaml", "/openapi.yaml", "", 200),
    ("GET", "/metrics.xsd", "/metrics.xsd", "", 200),
];

/// Routes that refuse HEAD: a HEAD would make the answer of a GET that no client receives.
const TAKES: [&str; 4] = [
    "/v1/probes/kept/metrics",
    "/v1/probes/kept/events",
    "/v1/changes?probe=none",
    "/metrics",
];

/// A route, the role that it needs, and a request.
struct Case {
    method: &'static str,
    path: &'static str,
    body: &'static str,
    needed: usize,
    status: u16,
}

/// Returns a case for each route of the description, which a unit test compares with the table of
/// routes.
fn cases() -> Result<Vec<Case>> {
    let description: Value = yaml_serde::from_str(OPENAPI)?;
    let mut cases = Vec::new();
    for (template, operations) in description["paths"].as_object().context("paths")? {
        for (verb, operation) in operations.as_object().context("operations")? {
            if verb == "parameters" || operation["x-role"] == "none" {
                continue;
            }
            let request = REQUESTS
                .iter()
                .find(|request| request.0 == verb.to_uppercase() && request.1 == template);
            let &(method, _, path, body, status) =
                request.with_context(|| format!("{verb} {template} has no request here"))?;
            let role = operation["x-role"].as_str();
            let needed = ROLES
                .iter()
                .position(|known| Some(*known) == role)
                .context("a role")?;
            cases.push(Case {
                method,
                path,
                body,
                needed,
                status,
            });
        }
    }
    assert_eq!(cases.len(), REQUESTS.len());
    Ok(cases)
}

/// Sends all requests with a role's rights; `role` is the role's place in [`ROLES`], or `None` for
/// no rights.
fn check(
    who: &str,
    role: Option<usize>,
    send: impl Fn(&str, &str, &[u8]) -> Response,
) -> Result<()> {
    for Case {
        method,
        path,
        body,
        needed,
        status,
    } in cases()?
    {
        let answer = send(method, path, body.as_bytes());
        let case = format!(
            "{method} {path} by {who}: {} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        match role {
            None => {
                assert_eq!(answer.status, 401, "{case}");
                let challenge = answer.header("www-authenticate").unwrap_or_default();
                assert!(challenge.starts_with("Bearer "), "{case}: {challenge}");
            }
            Some(role) if role < needed => {
                assert_eq!(answer.status, 403, "{case}");
                assert!(
                    answer
                        .text()
                        .contains(&format!("role {} is needed", ROLES[needed])),
                    "{case}"
                );
            }
            Some(_) => assert_eq!(answer.status, status, "{case}"),
        }
        if method == "GET" {
            let head = send("HEAD", path, b"").status;
            let right = match role {
                None => &[401][..],
                Some(role) if role < needed => &[403],
                // A HEAD would close a window or take events, although no client receives these.
                Some(_) if TAKES.contains(&path) => &[405],
                Some(_) => &[status],
            };
            assert!(right.contains(&head), "HEAD of {case}: {head}");
        }
    }
    // A client without a credential does not learn which paths have no route.
    let unknown = [
        send("GET", "/nowhere", b"").status,
        send("PATCH", "/v1/probes", b"").status,
    ];
    assert_eq!(
        unknown,
        if role.is_none() {
            [401, 401]
        } else {
            [404, 405]
        },
        "{who}"
    );
    Ok(())
}

/// A configuration that decides about packets.
fn enforcing() -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["verdict"] = json!("enforce");
    config
}

/// A token decides over TCP, and over a socket whose clients are viewers without one.
#[test]
fn tokens() -> Result<()> {
    let tokens: Vec<Token> = ROLES
        .iter()
        .map(|role| Token::new(role, role))
        .collect::<Result<_>>()?;
    let withdrawn = Token::new("admin", "admin")?;
    let all: Vec<&Token> = tokens.iter().chain([&withdrawn]).collect();
    let scene = Scene::new(
        &all,
        DaemonOptions::default()
            .argument("--socket-role")
            .argument("viewer"),
    )?;
    let tcp = |headers: Vec<(&'static str, String)>| {
        let scene = &scene;
        move |method: &str, path: &str, body: &[u8]| {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            scene.over_tcp(method, path, &headers, body)
        }
    };
    let put = tcp(vec![withdrawn.header()]);
    let mut kept = counter_config("mon0", "XDP_PASS");
    kept["ingress"]["defines"] = json!({ "KEY": "\"a-secret\"" });
    put("PUT", "/v1/probes/kept", kept.to_string().as_bytes()).expect(201);
    scene.tokens.write(&tokens.iter().collect::<Vec<_>>())?;
    scene.reload()?;
    let bad = |value: &str| vec![("authorization", value.to_owned())];
    let secret = &tokens[3].secret;
    for (what, headers) in [
        ("nobody", Vec::new()),
        ("a withdrawn token", vec![withdrawn.header()]),
        ("an unknown token", bad("Bearer tp_0000")),
        ("a token with more", bad(&format!("Bearer {secret}0"))),
        ("no token", bad("Bearer ")),
        ("another scheme", bad(&format!("Basic {secret}"))),
        ("no scheme", bad(secret)),
        ("two tokens", vec![tokens[3].header(), tokens[0].header()]),
    ] {
        check(what, None, tcp(headers.clone()))?;
        if !headers.is_empty() {
            // The daemon refuses a wrong credential even for requests that need none.
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            check(what, None, |method, path, body| {
                scene.daemon.request(method, path, &headers, body)
            })?;
        }
    }
    check("a client of the socket", Some(0), |method, path, body| {
        scene.daemon.request(method, path, &[], body)
    })?;
    for (role, token) in tokens.iter().enumerate() {
        let header = token.header();
        let by_socket = |method: &str, path: &str, body: &[u8]| {
            scene
                .daemon
                .request(method, path, &[(header.0, &header.1)], body)
        };
        check(
            &format!("{} over TCP", ROLES[role]),
            Some(role),
            tcp(vec![token.header()]),
        )?;
        check(
            &format!("{} over the socket", ROLES[role]),
            Some(role),
            by_socket,
        )?;
        // Sources are shown to operators.
        let config = by_socket("GET", "/v1/probes/kept", b"").expect(200).json()["config"].clone();
        assert_eq!(
            config["ingress"]["source"].is_string(),
            role >= 2,
            "{}",
            ROLES[role]
        );
        assert_eq!(
            config["ingress"]["defines"].is_object(),
            role >= 2,
            "{}",
            ROLES[role]
        );
        let listed = by_socket("GET", "/v1/probes", b"")
            .expect(200)
            .text()
            .to_owned();
        assert_eq!(
            listed.contains("a-secret"),
            role >= 2,
            "{}: {listed}",
            ROLES[role]
        );
    }
    for (most, name) in ROLES.iter().enumerate() {
        // A request may ask for less than its credential gives, and never for more.
        let limit = ("twinprobe-role", (*name).to_owned());
        check(
            &format!("an admin who asks for {name}"),
            Some(most),
            tcp(vec![tokens[3].header(), limit.clone()]),
        )?;
        check(
            "a viewer who asks for more",
            Some(0),
            tcp(vec![tokens[0].header(), limit]),
        )?;
    }
    let unknown = tcp(vec![
        tokens[3].header(),
        ("twinprobe-role", "root".to_owned()),
    ]);
    let refused = unknown("GET", "/v1/probes", b"")
        .expect(400)
        .text()
        .to_owned();
    ensure!(
        refused.contains("viewer, collector, operator or admin"),
        "{refused}"
    );
    Ok(())
}

/// The role of a certificate is that of its name.
#[test]
fn certificates() -> Result<()> {
    let files = Files::new()?;
    let (ours, clients) = (authority("ours")?, authority("clients")?);
    files.serve(&ours)?;
    files.write("clients", &clients.pem())?;
    let lines: Vec<String> = ROLES
        .iter()
        .map(|role| format!("{role}.example {role}"))
        .collect();
    let roles = files.write("roles", &lines.join("\n"))?;
    let scene = crate::scene::Scene::new(&format!(
        "{} --client-roles {}",
        files.arguments(),
        roles.display()
    ))?;
    scene
        .daemon
        .put("/v1/probes/kept", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let client = |names: &[&str]| -> Result<_> {
        let config = match names {
            [] => believing(&ours)?.with_no_client_auth(),
            names => {
                let (certificate, key) =
                    signed(&clients, ExtendedKeyUsagePurpose::ClientAuth, names)?;
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
                believing(&ours)?
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
            }
        };
        let (config, scene) = (Arc::new(config), &scene);
        Ok(move |method: &str, path: &str, body: &[u8]| {
            let name = ServerName::try_from(NAME).expect("a name");
            let connection =
                ClientConnection::new(Arc::clone(&config), name).expect("a connection");
            let stream = StreamOwned::new(connection, scene.connect_tcp(0).expect("a stream"));
            http::exchange(stream, method, path, &[], body).expect("an answer")
        })
    };
    check("no certificate", None, client(&[])?)?;
    for (role, name) in ROLES.iter().enumerate() {
        let own = format!("{name}.example");
        check(name, Some(role), client(&[&own])?)?;
        check(
            name,
            Some(role),
            client(&["stranger.example", "viewer.example", &own])?,
        )?;
    }
    let stranger = client(&["stranger.example"])?("GET", "/healthz", b"").expect(403);
    assert!(
        stranger.text().contains("no line of --client-roles"),
        "{}",
        stranger.text()
    );
    // A name of another kind is another name, even with the same text.
    files.write("roles", "admin.example admin\nemail:local viewer\n")?;
    scene.daemon.signal(libc::SIGHUP);
    let email =
        |name: &str| client_with(&ours, &clients, vec![SanType::Rfc822Name(name.try_into()?)]);
    wait_for("the roles of mail addresses", PATIENCE, || {
        let status = ask(&scene, email("local")?, "/v1/probes").status;
        ensure!(status == 200, "{status}");
        Ok(())
    })?;
    for name in ["admin.example", "dns:admin.example"] {
        let answer = ask(&scene, email(name)?, "/v1/probes").expect(403);
        assert!(
            answer.text().contains("no line of --client-roles"),
            "{name}: {}",
            answer.text()
        );
    }
    let dns = |name: &str| client_with(&ours, &clients, vec![SanType::DnsName(name.try_into()?)]);
    ask(&scene, dns("local")?, "/v1/probes").expect(403);
    ask(&scene, dns("admin.example")?, "/v1/probes").expect(200);
    // A new role applies from the next request on.
    files.write("roles", "stranger.example collector\n")?;
    scene.daemon.signal(libc::SIGHUP);
    wait_for("the new role", PATIENCE, || {
        let answer = client(&["stranger.example"])?("GET", "/v1/probes/kept/windows", b"");
        ensure!(answer.status == 200, "{}", answer.status);
        Ok(())
    })?;
    client(&["admin.example"])?("GET", "/healthz", b"").expect(403);
    Ok(())
}

/// Returns the credentials of a client with a certificate of these names.
fn client_with(ours: &Authority, clients: &Authority, names: Vec<SanType>) -> Result<ClientConfig> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, clients)?;
    let chain = vec![CertificateDer::from_pem_slice(
        certificate.pem().as_bytes(),
    )?];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    Ok(believing(ours)?.with_client_auth_cert(chain, key)?)
}

fn ask(scene: &crate::scene::Scene, config: ClientConfig, path: &str) -> Response {
    let name = ServerName::try_from(NAME).expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let stream = StreamOwned::new(connection, scene.connect_tcp(0).expect("a stream"));
    http::exchange(stream, "GET", path, &[], b"").expect("an answer")
}

fn believing(authority: &Authority) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

/// A client of a socket has its role if it sends no token.
#[test]
fn sockets() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/kept", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    check("the default", Some(3), |method, path, body| {
        daemon.request(method, path, &[], body)
    })?;
    for (role, name) in ROLES.iter().enumerate() {
        let options = DaemonOptions::default()
            .argument("--socket-role")
            .argument(*name);
        daemon = daemon.restart(libc::SIGKILL, &options)?;
        check(name, Some(role), |method, path, body| {
            daemon.request(method, path, &[], body)
        })?;
    }
    Ok(())
}

/// Only an admin deploys programs that decide about packets, in any way.
#[test]
fn only_an_admin_enforces() -> Result<()> {
    let topology = Topology::new()?;
    let admin = Token::new("boss", "admin")?;
    let tokens = crate::guarded::Tokens::new(&[&admin])?;
    let options = DaemonOptions::default()
        .argument("--socket-role")
        .argument("operator");
    let daemon = Daemon::start_with(
        topology.monitor(),
        &options.argument("--tokens").argument(&tokens.path),
    )?;
    let (name, value) = admin.header();
    let by_admin = |method: &str, path: &str, body: &str| {
        daemon.request(method, path, &[(name, &value)], body.as_bytes())
    };
    let forbidden = |answer: Response| {
        let answer = answer.expect(403);
        assert!(
            answer.text().contains("role admin is needed"),
            "{}",
            answer.text()
        );
    };
    forbidden(daemon.put("/v1/probes/p", &enforcing()));
    forbidden(daemon.post("/v1/validate", &enforcing()));
    daemon.get("/v1/probes/p").expect(404);
    by_admin("POST", "/v1/validate", &enforcing().to_string()).expect(200);
    by_admin("PUT", "/v1/probes/p", &enforcing().to_string()).expect(201);
    // A PUT of the running configuration is also refused.
    forbidden(daemon.put("/v1/probes/p", &enforcing()));
    let observing = daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(200)
        .json();
    assert!(
        observing["pushed_by"]
            .as_str()
            .is_some_and(|by| by.starts_with("uid:")),
        "{observing}"
    );
    forbidden(daemon.request("POST", "/v1/probes/p/rollback", &[], b""));
    forbidden(daemon.request("POST", "/v1/probes/p/rollback", &[], b"{\"revision\": 1}"));
    assert_eq!(daemon.json("/v1/probes/p")["revision"], 2);
    let back = by_admin("POST", "/v1/probes/p/rollback", "")
        .expect(200)
        .json();
    assert_eq!(
        (&back["revision"], &back["pushed_by"]),
        (&json!(3), &json!("token:boss"))
    );
    Ok(())
}

/// The console needs no credential and says nothing of this host; it may not be shown by pages of
/// others.
#[test]
fn the_console_is_for_everybody_who_reaches_the_daemon() -> Result<()> {
    let token = Token::new("viewer", "viewer")?;
    let scene = Scene::new(&[&token], DaemonOptions::default())?;
    let page = scene.over_tcp("GET", "/", &[], b"").expect(200);
    let policy = page.header("content-security-policy").context("a policy")?;
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for part in page
        .text()
        .split('"')
        .filter(|part| part.starts_with("/console/"))
    {
        let file = scene.over_tcp("GET", part, &[("accept-encoding", "gzip")], b"");
        assert_eq!(
            (file.status, file.header("content-encoding")),
            (200, Some("gzip")),
            "{part}"
        );
    }
    assert_eq!(scene.over_tcp("POST", "/", &[], b"").status, 405);
    assert_eq!(
        scene.over_tcp("GET", "/console/none.js", &[], b"").status,
        404
    );
    assert_eq!(
        scene
            .over_tcp("GET", "/", &[("host", "elsewhere.example")], b"")
            .status,
        421
    );
    assert_eq!(scene.over_tcp("GET", "/v1/changes", &[], b"").status, 401);
    Ok(())
}
