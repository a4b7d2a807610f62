use super::*;

fn missing(method: QuiesceMethod, reason: &str) -> Trial {
    (method, Err(io::Error::other(reason.to_owned())))
}

fn found(method: QuiesceMethod) -> Trial {
    (method, prepare(method))
}

/// Makes a method that waits until a result is sent to it.
fn stuck(method: QuiesceMethod) -> (mpsc::Sender<io::Result<()>>, Trial) {
    let (sender, _, trial) = told(method);
    (sender, trial)
}

/// Makes a test's method that also reports each run that it begins.
fn told(method: QuiesceMethod) -> (mpsc::Sender<io::Result<()>>, mpsc::Receiver<()>, Trial) {
    let (sender, released) = mpsc::channel();
    let (begins, begun) = mpsc::channel();
    let released = std::sync::Mutex::new(released);
    let way = move |_| {
        // A test may have dropped the receiver.
        let _ = begins.send(());
        released.lock().unwrap().recv().unwrap_or(Ok(()))
    };
    (sender, begun, (method, Ok(Arc::new(way))))
}

fn available(quiescer: &Quiescer) -> Vec<bool> {
    quiescer
        .workers
        .reports()
        .iter()
        .map(|report| report.available)
        .collect()
}

/// Tells whether a call returns before [`PATIENCE`] is over. A call that waits takes longer each
/// time, however fast the machine is. A call that does not wait takes longer only while the machine
/// is busy, so some of the attempts are fast.
fn at_once(call: impl Fn() -> Duration) -> bool {
    (0..100).any(|_| call() < PATIENCE)
}

fn methods(ways: &[(QuiesceMethod, Way)]) -> Vec<QuiesceMethod> {
    ways.iter().map(|(method, _)| *method).collect()
}

#[test]
fn every_method_ends() {
    for method in std::iter::once(QuiesceMethod::Auto).chain(QuiesceMethod::ALL) {
        let quiescer = Quiescer::start(method).unwrap();
        assert_eq!(
            quiescer.workers.in_use(),
            if method == QuiesceMethod::Auto {
                QuiesceMethod::Sweep
            } else {
                method
            }
        );
        assert_eq!(
            quiescer.workers.reports(),
            QuiesceMethod::ALL.map(|method| MethodReport::new(method, None))
        );
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
    let realtime = || {
        vec![
            missing(Sweep, "preemptible"),
            found(Membarrier),
            found(MapInMap),
        ]
    };
    assert_eq!(
        methods(&choose(Auto, realtime()).unwrap()),
        [Membarrier, MapInMap]
    );
    let error = choose(Sweep, realtime()).err().unwrap().to_string();
    assert_eq!(
        error,
        "--quiesce sweep is not possible here: preemptible; available: membarrier, map-in-map"
    );
    let none = vec![
        missing(Sweep, "a"),
        missing(Membarrier, "b"),
        missing(MapInMap, "c"),
    ];
    let error = choose(Auto, none).err().unwrap().to_string();
    assert!(
        error.ends_with("sweep: a; membarrier: b; map-in-map: c"),
        "{error}"
    );
}

#[test]
fn what_is_missing_has_a_reason() {
    let trials = vec![
        missing(QuiesceMethod::Sweep, "preemptible"),
        found(QuiesceMethod::MapInMap),
    ];
    let quiescer = Quiescer::with(QuiesceMethod::Auto, trials).unwrap();
    assert_eq!(quiescer.workers.in_use(), QuiesceMethod::MapInMap);
    let reports = serde_json::to_value(quiescer.workers.reports()).unwrap();
    assert_eq!(
        reports,
        serde_json::json!([
            { "name": "sweep", "available": false, "reason": "preemptible" },
            { "name": "map-in-map", "available": true }
        ])
    );
}

#[test]
fn one_that_is_held_up_holds_up_nobody() {
    use QuiesceMethod::{Auto, MapInMap, Membarrier, Sweep};
    let (release, held_up) = stuck(Sweep);
    let quiescer = Quiescer::with(Auto, vec![held_up, found(Membarrier), found(MapInMap)]).unwrap();
    let took = quiescer.quiesce().unwrap();
    assert!(took >= PATIENCE && took < LIMIT, "{took:?}");
    assert!(quiescer.workers.in_use() != Sweep && !available(&quiescer)[0]);
    // The method is marked as late, so that no flip waits for it alone again.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| quiescer.quiesce().unwrap());
        }
    });
    assert!(
        at_once(|| quiescer.quiesce().unwrap()),
        "each waits for the one that is late"
    );
    release.send(Ok(())).unwrap();
    // The threads have asked for a second grace period.
    release.send(Ok(())).unwrap();
    drop(release);
    while !available(&quiescer)[0] || quiescer.workers.in_use() != Sweep {
        quiescer.quiesce().unwrap();
    }
}

#[test]
fn one_that_fails_is_not_waited_for() {
    use QuiesceMethod::{Auto, MapInMap, Sweep};
    let broken = || -> Trial { (Sweep, Ok(Arc::new(|_| Err(io::Error::other("broken"))))) };
    let at_first = || {
        let quiescer = Quiescer::with(Auto, vec![broken(), found(MapInMap)]).unwrap();
        let took = quiescer.quiesce().unwrap();
        assert_eq!(
            (quiescer.workers.in_use(), available(&quiescer)[0]),
            (MapInMap, false)
        );
        took
    };
    assert!(at_once(at_first), "each waits for the one that fails");

    let broken = |method| -> Trial {
        (
            method,
            Ok(Arc::new(|_| Err(io::Error::from_raw_os_error(libc::EPERM)))),
        )
    };
    let quiescer = Quiescer::with(Auto, vec![broken(Sweep), broken(MapInMap)]).unwrap();
    assert_eq!(
        quiescer.quiesce().unwrap_err().raw_os_error(),
        Some(libc::EPERM)
    );
}

/// A sweep skips the CPU of the caller, but only if no other flip asks: another flip may have come
/// later.
#[test]
fn the_cpu_of_one_who_asks_is_left() {
    use QuiesceMethod::{Auto, Sweep};
    let ((told, left), (release, released)) = (mpsc::channel(), mpsc::channel());
    let released = std::sync::Mutex::new(released);
    let way = move |cpu| {
        told.send(cpu).unwrap();
        released.lock().unwrap().recv().map_err(io::Error::other)
    };
    let quiescer = Quiescer::with(Auto, vec![(Sweep, Ok(Arc::new(way)))]).unwrap();
    thread::scope(|scope| {
        let ask = || scope.spawn(|| quiescer.quiesce().unwrap());
        let first = ask();
        assert!(left.recv().unwrap().is_some());
        // Two callers ask while a grace period is running: the next grace period serves both.
        let both = [ask(), ask()];
        while quiescer.workers.asking() < 2 {
            thread::yield_now();
        }
        release.send(()).unwrap();
        first.join().unwrap();
        assert_eq!(left.recv().unwrap(), None);
        release.send(()).unwrap();
        for asked in both {
            asked.join().unwrap();
        }
        let last = ask();
        assert!(left.recv().unwrap().is_some());
        release.send(()).unwrap();
        last.join().unwrap();
    });
}

/// A grace period that began before a call does not serve this call.
#[test]
fn a_grace_period_begins_after_the_call() {
    use QuiesceMethod::{Auto, Sweep};
    let (release, begun, held_up) = told(Sweep);
    let quiescer = Quiescer::with(Auto, vec![held_up]).unwrap();
    let short = || {
        quiescer
            .workers
            .wait(Instant::now() + Duration::from_millis(20))
    };
    // On a busy machine the time may be over before the first request.
    while begun.try_recv().is_err() {
        assert_eq!(short().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    thread::scope(|scope| {
        let waits = scope.spawn(|| quiescer.quiesce());
        release.send(Ok(())).unwrap();
        assert_eq!(short().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!waits.is_finished());
        drop(release);
        waits.join().unwrap().unwrap();
    });
}
