//! What the library counts and measures (feature `metrics`), over the leased test backend.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fencepost::{
    ErrorKind, Locker, SystemHost,
    blocking::wait,
    driver::{Driver, Host},
};
use fencepost_lab::leased::{self, Control, Remote, Server};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

const TTL: Duration = Duration::from_millis(600);

/// What was recorded, by name and labels: a counter's steps, or a histogram's values.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Series(Told, String);

impl Told {
    fn series(&self, key: &Key) -> Arc<Series> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Series(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn values(&self, series: &str) -> Vec<f64> {
        self.0.lock().unwrap().get(series).cloned().unwrap_or_default()
    }

    /// Waits for what another thread records.
    fn until(&self, series: &str, count: usize) -> Vec<f64> {
        for _ in 0..500 {
            let values = self.values(series);
            if values.len() >= count {
                return values;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{series} was not told {count} times: {:?}", self.0.lock().unwrap());
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.record(value as f64);
    }

    fn absolute(&self, value: u64) {
        panic!("{} was set to {value}", self.1);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.0.0.lock().unwrap().entry(self.1.clone()).or_default().push(value);
    }
}

impl Recorder for Told {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

fn pass(time: Duration) {
    wait(SystemHost.sleep_until(SystemHost.now() + time));
}

/// One test, since the recorder is the whole process's.
#[test]
fn every_attempt_wait_hold_renewal_and_loss_is_told_once_and_without_the_name() {
    let told = Told::default();
    metrics::set_global_recorder(told.clone()).expect("no other recorder");
    let server = Server::start().expect("a port");
    let url = format!("lab://{}?lease=claim", server.addr());
    let driver: Arc<dyn Driver> = wait(leased::connect(&url, Arc::new(SystemHost))).expect("a server");
    let locker = Locker::from_parts(driver, Arc::new(SystemHost));
    let lock = locker.lock("orders/4821").ttl(TTL);

    // Held for two renewals and given back, while another try is refused and another wait is given up.
    let guard = wait(lock.acquire()).expect("it is free");
    assert_eq!(wait(lock.try_acquire()).unwrap_err().kind(), ErrorKind::Timeout);
    let mut dropped = Box::pin(lock.acquire());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(dropped.as_mut().poll(&mut context).is_pending());
    drop(dropped);
    pass(TTL);
    wait(guard.release()).expect("it was held");

    assert_eq!(told.values("fencepost_acquire_total{backend=lab,outcome=ok}"), [1.0]);
    assert_eq!(told.values("fencepost_acquire_total{backend=lab,outcome=timeout}"), [1.0]);
    told.until("fencepost_acquire_total{backend=lab,outcome=cancelled}", 1);
    for outcome in ["ok", "timeout", "cancelled"] {
        let waits = told.until(&format!("fencepost_wait_seconds{{backend=lab,outcome={outcome}}}"), 1);
        assert!(waits.len() == 1 && (0.0..5.0).contains(&waits[0]), "{outcome}: {waits:?}");
    }
    assert!(!told.values("fencepost_renewals_total{backend=lab,outcome=extended}").is_empty());
    let holds = told.values("fencepost_hold_seconds{backend=lab,end=released}");
    assert!(holds.len() == 1 && holds[0] >= TTL.as_secs_f64(), "{holds:?}");
    assert_eq!(told.values("fencepost_losses_total{backend=lab,reason=gone}"), [0.0; 0]);

    // Deleted behind our back: one loss, one lost hold, and the release adds neither.
    let guard = wait(lock.acquire()).expect("it is free");
    Remote::new(server.addr()).send(Control::Delete("orders/4821".into())).expect("the server does it");
    wait(guard.lost());
    assert_eq!(wait(guard.release()).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(told.values("fencepost_losses_total{backend=lab,reason=gone}"), [1.0]);
    assert_eq!(told.values("fencepost_hold_seconds{backend=lab,end=lost}").len(), 1);
    assert_eq!(told.values("fencepost_hold_seconds{backend=lab,end=released}").len(), 1);

    // A server that is silent past the deadline: renewals of unknown outcome, and another reason.
    let guard = wait(lock.acquire()).expect("it is free");
    Remote::new(server.addr()).send(Control::Freeze).expect("the server does it");
    wait(guard.lost());
    Remote::new(server.addr()).send(Control::Thaw).expect("the server does it");
    assert_eq!(told.values("fencepost_losses_total{backend=lab,reason=deadline}"), [1.0]);
    assert!(!told.values("fencepost_renewals_total{backend=lab,outcome=unknown}").is_empty());

    let all = told.0.lock().unwrap();
    assert!(!all.keys().any(|series| series.contains("4821")), "{all:?}");
}
