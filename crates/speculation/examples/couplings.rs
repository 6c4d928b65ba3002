//! How often a draft is accepted under each way of choosing, for drafters of growing error: the table in
//! the docs of `verify`.
#![allow(clippy::print_stdout)]

use forespeak_speculation::PositionKey;
use forespeak_speculation::simulate::Noise;
use forespeak_speculation::verify::{Distribution, invert, race};

const VOCABULARY: usize = 2_000;
const PAIRS: usize = 400;
const KEYS: u64 = 100;

fn main() {
    println!("| drafter's noise | `1 - d` | race | inversion | drafter's best token |");
    println!("|---|---|---|---|---|");
    for error in [0.1, 0.25, 0.5, 1.0, 2.0] {
        let mut noise = Noise::new(7);
        let mut sums = [0.0f64; 4];
        for pair in 0..PAIRS {
            // Exponents from flat to sharp: some positions of a text are open, most are nearly decided.
            let sharpness = 0.8 + 2.2 * noise.uniform();
            let mut order: Vec<usize> = (0..VOCABULARY).collect();
            for i in (1..VOCABULARY).rev() {
                order.swap(i, (noise.uniform() * (i + 1) as f64) as usize);
            }
            let (mut p, mut q) = (vec![0.0f32; VOCABULARY], vec![0.0f32; VOCABULARY]);
            for (rank, &id) in order.iter().enumerate() {
                let logit = -sharpness * ((rank + 1) as f64).ln();
                p[id] = logit.exp() as f32;
                q[id] = (logit + error * noise.normal()).exp() as f32;
            }
            let (p, q) = (
                Distribution::from_weights(&p),
                Distribution::from_weights(&q),
            );
            let ids = 0..VOCABULARY as u32;
            sums[0] += ids
                .clone()
                .map(|x| p.probability(x).min(q.probability(x)))
                .sum::<f64>();
            let keys = || (0..KEYS).map(|k| PositionKey(noise_free_key(pair, k)));
            let share = |same: usize| same as f64 / KEYS as f64;
            sums[1] += share(keys().filter(|&k| race(&p, k) == race(&q, k)).count());
            sums[2] += share(keys().filter(|&k| invert(&p, k) == invert(&q, k)).count());
            let best = ids.max_by(|&a, &b| q.probability(a).total_cmp(&q.probability(b)));
            sums[3] += best.map_or(0.0, |x| p.probability(x));
        }
        let [ideal, raced, inverted, best] = sums.map(|s| s / PAIRS as f64);
        println!("| {error} | {ideal:.3} | {raced:.3} | {inverted:.3} | {best:.3} |");
    }
}

fn noise_free_key(pair: usize, key: u64) -> u64 {
    (pair as u64 * KEYS + key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
