//! The limits of processor time, and of time by the clock.

use super::*;
use crate::confine::confine::Allowed;
use crate::sandbox;

/// Returns a source with 2^40 macro expansions, each to nothing.
fn endless() -> String {
    let mut source = "#define A0\n".to_owned();
    for i in 1..=40 {
        source.push_str(&format!("#define A{i} A{0} A{0}\n", i - 1));
    }
    source + "A40\n"
}

#[tokio::test]
async fn an_endless_compilation_is_ended() {
    let mut compiler = compiler();
    compiler.limits.time = Duration::from_secs(1);
    let rejection = compiler
        .compile(&unit("ingress.source", &endless(), &BTreeMap::new()))
        .await
        .unwrap_err();
    let finding = &rejection.findings[0];
    assert!(
        finding
            .message
            .starts_with("the compilation took longer than 1 s by the clock"),
        "{finding:?}"
    );
    assert_eq!(
        (finding.stage, finding.field.as_deref()),
        (Stage::Compile, Some("ingress.source"))
    );
}

/// The limit of processor time ends the compilation, long before the limit by the clock.
#[tokio::test]
async fn an_endless_compilation_is_ended_by_its_work() {
    let mut compiler = compiler();
    compiler.limits.cpu_time = Duration::from_secs(1);
    compiler.limits.time = Duration::from_secs(600);
    let sandbox = sandbox::choose(&compiler.clang, None, compiler.limits, false).unwrap();
    (compiler.confinement, compiler.include) = (sandbox.confinement, sandbox.view);
    let rejection = compiler
        .compile(&unit("ingress.source", &endless(), &BTreeMap::new()))
        .await
        .unwrap_err();
    let finding = &rejection.findings[0];
    assert!(
        finding
            .message
            .starts_with("the compilation needed more than 1 s of processor time"),
        "{finding:?}"
    );
    assert_eq!(
        (finding.stage, finding.field.as_deref()),
        (Stage::Compile, Some("ingress.source"))
    );
}

/// A child that works little and waits long is not over its limit of processor time.
#[tokio::test]
async fn waiting_is_no_work() {
    let compiler = compiler();
    let limits = CompileLimits {
        cpu_time: Duration::from_secs(1),
        time: Duration::from_secs(600),
        ..compiler.limits
    };
    let allowed = Allowed {
        cpu_time: limits.cpu_time,
        memory: 1 << 30,
        data: 1 << 30,
        open_files: 64,
        ..Allowed::default()
    };
    let confinement = Confinement::limits_only(&allowed, Arc::default());
    let arguments = ["-c", "sleep 3"].map(OsString::from);
    let outcome = child::run(
        "/bin/sh".as_ref(),
        &arguments,
        b"",
        limits,
        &confinement,
        &Arc::default(),
    )
    .await
    .unwrap();
    assert!(matches!(outcome, ChildOutcome::Ended { status, .. } if status.success()));
}
