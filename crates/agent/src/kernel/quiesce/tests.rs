use super::*;

fn missing(method: QuiesceMethod, reason: &str) -> Trial {
    (method, Err(io::Error::other(reason.to_owned())))
}

fn found(method: QuiesceMethod) -> Trial {
    (method, Way::prepare(method))
}

fn methods(ways: &[(QuiesceMethod, Way)]) -> Vec<QuiesceMethod> {
    ways.iter().map(|(method, _)| *method).collect()
}

#[test]
fn every_method_ends() {
    for method in std::iter::once(QuiesceMethod::Auto).chain(QuiesceMethod::ALL) {
        let quiescer = Quiescer::start(method).unwrap();
        assert_eq!(
            quiescer.method(),
            if method == QuiesceMethod::Auto { QuiesceMethod::Sweep } else { method }
        );
        assert_eq!(quiescer.methods(), QuiesceMethod::ALL.map(|method| MethodReport::new(method, None)));
        quiescer.quiesce().unwrap();
    }
}

#[test]
fn the_first_that_is_there_is_used_and_the_others_when_it_fails() {
    use QuiesceMethod::{Auto, MapInMap, Membarrier, None, Sweep};
    let all = || vec![found(Sweep), found(Membarrier), found(MapInMap)];
    let chosen = |wanted| methods(&choose(wanted, all()).unwrap());
    assert_eq!(chosen(Auto), [Sweep, Membarrier, MapInMap]);
    assert_eq!(chosen(Sweep), [Sweep, Membarrier, MapInMap]);
    assert_eq!(chosen(Membarrier), [Membarrier, MapInMap]);
    assert_eq!(chosen(MapInMap), [MapInMap]);
    assert_eq!(chosen(None), []);
    let realtime = || vec![missing(Sweep, "preemptible"), found(Membarrier), found(MapInMap)];
    assert_eq!(methods(&choose(Auto, realtime()).unwrap()), [Membarrier, MapInMap]);
    let error = choose(Sweep, realtime()).unwrap_err().to_string();
    assert_eq!(error, "--quiesce sweep is not possible here: preemptible; available: membarrier, map-in-map");
    let none = vec![missing(Sweep, "a"), missing(Membarrier, "b"), missing(MapInMap, "c")];
    let error = choose(Auto, none).unwrap_err().to_string();
    assert!(error.ends_with("sweep: a; membarrier: b; map-in-map: c"), "{error}");
}

#[test]
fn what_is_missing_has_a_reason() {
    let trials = vec![missing(QuiesceMethod::Sweep, "preemptible"), found(QuiesceMethod::MapInMap)];
    let quiescer = Quiescer::with(QuiesceMethod::Auto, trials).unwrap();
    assert_eq!(quiescer.method(), QuiesceMethod::MapInMap);
    let reports = serde_json::to_value(quiescer.methods()).unwrap();
    assert_eq!(
        reports,
        serde_json::json!([
            { "name": "sweep", "available": false, "reason": "preemptible" },
            { "name": "map-in-map", "available": true }
        ])
    );
}
