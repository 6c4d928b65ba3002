//! Who breaks what, and when. One worker is always left alone, so that there is somebody to answer.

use std::time::Duration;

use simulator::rng::Rng;
use testkit::mock_vllm::{EventFault, Faults, MetricsFault, Misdeed, MockConfig, MockVllm};
use tokio::time::{Instant, sleep};

/// How many workers.
const WORKERS: usize = 4;

/// Between two faults, in milliseconds.
const PAUSE: std::ops::Range<u64> = 20..250;

pub(crate) struct Mischief {
    mocks: Vec<Option<MockVllm>>,
    rng: Rng,
    /// Faults so far.
    pub(crate) made: usize,
}

impl Mischief {
    pub(crate) async fn start(seed: u64) -> Self {
        let mut mocks = Vec::new();
        for index in 0..WORKERS {
            let config = MockConfig {
                publishes_events: index % 2 == 0,
                seed: seed ^ index as u64,
                ..MockConfig::default()
            };
            mocks.push(Some(MockVllm::start(config).await.unwrap()));
        }
        Self {
            mocks,
            rng: Rng::new(seed),
            made: 0,
        }
    }

    pub(crate) fn mocks(&self) -> impl Iterator<Item = &MockVllm> {
        self.mocks.iter().flatten()
    }

    pub(crate) async fn make_for(&mut self, lasting: Duration) {
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            let victim = 1 + self.rng.between(0, WORKERS as u64 - 1) as usize;
            if self.rng.unit() < 0.1 {
                self.kill_and_revive(victim).await;
            } else {
                self.spoil(victim);
            }
            self.made += 1;
            let pause = self.rng.between(PAUSE.start, PAUSE.end);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn kill_and_revive(&mut self, victim: usize) {
        let Some(mock) = self.mocks[victim].take() else {
            return;
        };
        let config = mock.kill().await;
        let dead = self.rng.between(10, 1_500);
        sleep(Duration::from_millis(dead)).await;
        self.mocks[victim] = Some(MockVllm::start(config).await.unwrap());
    }

    fn spoil(&mut self, victim: usize) {
        let rng = &mut self.rng;
        let tokens = rng.between(0, 30) as usize;
        let Some(mock) = &self.mocks[victim] else {
            return;
        };
        match rng.between(0, 16) {
            0 => mock.script([Misdeed::Status(500); 3]),
            1 => mock.script([Misdeed::Status(503); 3]),
            2 => mock.script([Misdeed::Status(429); 3]),
            3 => mock.script([Misdeed::Reset; 3]),
            4 => mock.script([Misdeed::CutAfter { tokens }; 3]),
            5 => mock.script([Misdeed::StallAfter { tokens }]),
            6 => mock.script([Misdeed::ErrorEventAfter { tokens }]),
            7 => mock.script([Misdeed::Hang]),
            8 => mock.faults(|faults| faults.speed = 0.1),
            9 => mock.faults(|faults| faults.wedged = true),
            10 => mock.faults(|faults| faults.deaf = true),
            11 => mock.faults(|faults| faults.metrics = MetricsFault::Garbage),
            12 => mock.faults(|faults| faults.metrics = MetricsFault::Huge),
            13 => mock.faults(|faults| faults.metrics = MetricsFault::Hang),
            14 => mock.faults(|faults| faults.events = EventFault::Forgotten),
            // As often as not something is repaired.
            _ => mock.faults(|faults| *faults = Faults::default()),
        }
        if rng.unit() < 0.5 {
            let lucky = 1 + rng.between(0, WORKERS as u64 - 1) as usize;
            if let Some(mock) = &self.mocks[lucky] {
                mock.faults(|faults| *faults = Faults::default());
            }
        }
    }

    /// Everything works again.
    pub(crate) async fn repair(&mut self) {
        for mock in self.mocks() {
            mock.faults(|faults| *faults = Faults::default());
        }
    }
}
