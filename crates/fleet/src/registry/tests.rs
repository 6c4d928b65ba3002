use super::*;
use crate::health::Condition;
use crate::spec::WorkerUrl;
use proptest::prelude::*;

fn spec(host: &str) -> WorkerSpec {
    WorkerSpec::new(WorkerUrl::parse(&format!("http://{host}:8000")).unwrap())
}

fn names(registry: &Registry) -> Vec<String> {
    let snapshot = registry.snapshot();
    let staying = snapshot
        .workers()
        .iter()
        .filter(|worker| worker.draining().is_none());
    staying
        .map(|worker| worker.spec().url.host().to_owned())
        .collect()
}

fn registry() -> (Registry, Instant) {
    (Registry::new(RegistryConfig::default()), Instant::now())
}

#[test]
fn a_worker_stays_while_any_source_names_it() {
    let (registry, now) = registry();
    let file = Source::File("workers.json".into());
    registry
        .assign(&Source::Config, vec![spec("a"), spec("b")], now)
        .unwrap();
    registry
        .assign(&file, vec![spec("b"), spec("c")], now)
        .unwrap();
    assert_eq!(names(&registry), ["a", "b", "c"]);
    registry.assign(&Source::Config, vec![], now).unwrap();
    assert_eq!(names(&registry), ["b", "c"]);
    registry.assign(&file, vec![], now).unwrap();
    assert_eq!(names(&registry), [""; 0]);
}

#[test]
fn workers_are_numbered_in_the_order_in_which_they_are_named() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("z"), spec("a")], now)
        .unwrap();
    assert_eq!(names(&registry), ["z", "a"]);
}

#[test]
fn removal_drains_and_the_number_is_given_out_again_only_when_freed() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let worker = registry.snapshot().workers()[0].clone();
    let attempt = worker.begin(now).unwrap();
    registry
        .assign(&Source::Config, vec![spec("b")], now)
        .unwrap();
    assert!(matches!(
        worker.condition(now),
        Condition::Draining(DrainReason::Removed)
    ));
    assert!(registry.reap(now).is_empty());
    assert!(registry.snapshot().get(worker.id()).is_some());
    drop(attempt);
    let gone = registry.reap(now);
    assert_eq!(gone.len(), 1);
    assert!(registry.snapshot().get(worker.id()).is_none());
    let next = registry.add(spec("c"), now).unwrap();
    assert_ne!(next, worker.id());
    registry.free(worker.id());
    assert_eq!(registry.add(spec("d"), now), Ok(worker.id()));
}

#[test]
fn a_drain_that_does_not_end_is_ended() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let _attempt = registry.snapshot().workers()[0].begin(now).unwrap();
    registry.remove("a:8000", now).unwrap();
    assert!(registry.reap(now + Duration::from_secs(599)).is_empty());
    assert_eq!(registry.reap(now + Duration::from_secs(600)).len(), 1);
}

#[test]
fn a_worker_named_again_while_it_drains_is_the_same_worker() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let id = registry.snapshot().workers()[0].id();
    registry.assign(&Source::Config, vec![], now).unwrap();
    assert_eq!(registry.add(spec("a"), now), Ok(id));
    assert_eq!(names(&registry), ["a"]);
}

#[test]
fn changed_settings_make_another_worker() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let old = registry.snapshot().workers()[0].id();
    let mut changed = spec("a");
    changed.pool = "draft".into();
    registry
        .assign(&Source::Config, vec![changed], now)
        .unwrap();
    let snapshot = registry.snapshot();
    assert_eq!(snapshot.workers().len(), 2);
    let found = snapshot.by_name("a:8000").unwrap();
    assert_ne!(found.id(), old);
    assert_eq!(snapshot.pool("draft").count(), 1);
}

#[test]
fn a_bad_set_changes_nothing() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let version = registry.snapshot().version();
    let twins = registry.assign(&Source::Config, vec![spec("b"), spec("b")], now);
    assert!(matches!(twins, Err(FleetError::DuplicateName { .. })));
    let many = (0..=MAX_WORKERS).map(|n| spec(&format!("w{n}"))).collect();
    let flood = registry.assign(&Source::Config, many, now);
    assert!(matches!(flood, Err(FleetError::TooManyWorkers { .. })));
    assert_eq!(registry.snapshot().version(), version);
    assert_eq!(names(&registry), ["a"]);
}

#[test]
fn saying_the_same_again_makes_no_new_version() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let changes = registry.changes();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    assert!(!changes.has_changed().unwrap());
}

#[test]
fn an_operators_drain_outlives_a_reload() {
    let (registry, now) = registry();
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    registry.snapshot().workers()[0].drain(DrainReason::Operator, now);
    registry
        .assign(&Source::Config, vec![spec("a")], now)
        .unwrap();
    let condition = registry.snapshot().workers()[0].condition(now);
    assert_eq!(condition, Condition::Draining(DrainReason::Operator));
}

proptest! {
    #[test]
    fn numbers_are_never_shared_and_every_named_worker_is_there(
        steps in proptest::collection::vec((0_u8..4, proptest::collection::btree_set(0_u8..8, 0..6)), 1..60),
    ) {
        let (registry, mut now) = registry();
        let mut sets: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        let mut attempts = Vec::new();
        let mut reaped: Vec<WorkerId> = Vec::new();
        for (source, hosts) in steps {
            now += Duration::from_secs(1);
            if source == 3 {
                attempts.extend(registry.snapshot().workers().iter().take(2).filter_map(|w| w.begin(now)));
                attempts.truncate(hosts.len());
                for worker in registry.reap(now) {
                    prop_assert_eq!(worker.in_flight(), 0);
                    reaped.push(worker.id());
                }
                if hosts.len() > 3 {
                    reaped.drain(..).for_each(|id| registry.free(id));
                }
                continue;
            }
            let specs = hosts.iter().map(|host| spec(&format!("h{host}"))).collect();
            registry.assign(&Source::File(source.to_string()), specs, now).unwrap();
            sets.insert(source, hosts);
            let wanted: BTreeSet<String> =
                sets.values().flatten().map(|host| format!("h{host}")).collect();
            let there: BTreeSet<String> = names(&registry).into_iter().collect();
            prop_assert_eq!(there, wanted);
            let snapshot = registry.snapshot();
            let ids: BTreeSet<_> = snapshot.workers().iter().map(|worker| worker.id()).collect();
            prop_assert_eq!(ids.len(), snapshot.workers().len());
            prop_assert!(reaped.iter().all(|id| !ids.contains(id)));
        }
    }
}
