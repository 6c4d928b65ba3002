//! Attention is right at odd shapes, equal in every tier, and independent of batch, tiles and threads.

#![allow(clippy::unwrap_used, reason = "a failure to set up is a failed test")]

mod common;

use common::{Noise, tiers};
use forespeak_kernels::{
    Attention, AttentionRow, BLOCK_TOKENS, Compute, KvCache, KvShape, KvType, RopeTable, Scratch,
    Tier, Turn, attend, store_kv,
};
use proptest::prelude::*;

/// Sequences with shuffled blocks, and their keys and values in one layer.
struct Scene {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    window: Option<usize>,
    frequencies: Vec<f32>,
    rotation: RopeTable,
    tables: Vec<u32>,
    /// One range of `tables` for each sequence.
    ranges: Vec<std::ops::Range<usize>>,
    /// `[token][kv_heads * head_dim]` for each sequence.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    cache: KvCache,
}

const LAYERS: usize = 2;

impl Scene {
    fn new(
        kv_type: KvType,
        (kv_heads, group, head_dim): (usize, usize, usize),
        lengths: &[usize],
        window: Option<usize>,
        noise: &mut Noise,
    ) -> Scene {
        let blocks: usize = lengths
            .iter()
            .map(|length| length.div_ceil(BLOCK_TOKENS))
            .sum();
        let mut order: Vec<u32> = (0..blocks as u32).collect();
        for i in (1..blocks).rev() {
            order.swap(i, noise.bits() as usize % (i + 1));
        }
        let mut ranges = Vec::new();
        let mut start = 0;
        for length in lengths {
            ranges.push(start..start + length.div_ceil(BLOCK_TOKENS));
            start += length.div_ceil(BLOCK_TOKENS);
        }
        let row_len = kv_heads * head_dim;
        let shape = KvShape {
            layers: LAYERS,
            kv_heads,
            head_dim,
            kv_type,
        };
        let frequencies: Vec<f32> = (0..head_dim / 2)
            .map(|i| 100_f32.powf(-2.0 * i as f32 / head_dim as f32))
            .collect();
        let mut scene = Scene {
            rotation: RopeTable::new(&frequencies, 1.0, 2048),
            frequencies,
            kv_heads,
            group,
            head_dim,
            window,
            tables: order,
            ranges,
            keys: lengths
                .iter()
                .map(|length| noise.values(length * row_len))
                .collect(),
            values: lengths
                .iter()
                .map(|length| noise.values(length * row_len))
                .collect(),
            cache: KvCache::new(shape, blocks).unwrap(),
        };
        let compute = Compute::new(Tier::detect(), 2);
        for layer in 0..LAYERS {
            for (sequence, length) in lengths.iter().enumerate() {
                let rows = scene.rows(sequence, 0..*length);
                let (k, v) = (&scene.keys[sequence], &scene.values[sequence]);
                store_kv(
                    &compute,
                    &mut scene.cache,
                    layer,
                    &rows,
                    &scene.tables,
                    Turn {
                        norm: None,
                        table: &scene.rotation,
                    },
                    [k, v],
                );
            }
        }
        scene
    }

    fn rows(&self, sequence: usize, positions: std::ops::Range<usize>) -> Vec<AttentionRow> {
        positions
            .map(|position| AttentionRow {
                table: self.ranges[sequence].clone(),
                position,
            })
            .collect()
    }

    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn turn(&self) -> Turn<'_> {
        Turn {
            norm: None,
            table: &self.rotation,
        }
    }

    /// A head turned in f64.
    fn turned(&self, head: &[f32], position: usize) -> Vec<f64> {
        let mut out: Vec<f64> = head[..self.head_dim]
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let half = self.frequencies.len();
        for (i, frequency) in self.frequencies.iter().enumerate() {
            let (sine, cosine) = f64::from(position as f32 * frequency).sin_cos();
            let (a, b) = (out[i], out[i + half]);
            (out[i], out[i + half]) = (a * cosine - b * sine, b * cosine + a * sine);
        }
        out
    }

    fn attend(&self, compute: &Compute, rows: &[AttentionRow], q: &[f32]) -> Vec<f32> {
        let attention = Attention {
            layer: 1,
            heads: self.heads(),
            turn: self.turn(),
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            rows,
            tables: &self.tables,
        };
        let mut out = vec![f32::NAN; q.len()];
        attend(
            compute,
            &mut Scratch::default(),
            &self.cache,
            &attention,
            q,
            &mut out,
        );
        out
    }

    /// Attention of one row in f64.
    fn truth(&self, sequence: usize, position: usize, q: &[f32]) -> Vec<f64> {
        let first = self
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let mut out = Vec::new();
        for head in 0..self.heads() {
            let q = self.turned(&q[head * self.head_dim..], position);
            let at = |token: usize| (token * self.kv_heads + head / self.group) * self.head_dim;
            let dot = |k: &[f64]| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
            let scores: Vec<f64> = (first..=position)
                .map(|token| {
                    let key = self.turned(&self.keys[sequence][at(token)..], token);
                    (dot(&key) / (self.head_dim as f64).sqrt()).exp()
                })
                .collect();
            let total: f64 = scores.iter().sum();
            for d in 0..self.head_dim {
                let value = |i: usize| f64::from(self.values[sequence][at(first + i) + d]);
                out.push(
                    scores
                        .iter()
                        .enumerate()
                        .map(|(i, score)| score * value(i))
                        .sum::<f64>()
                        / total,
                );
            }
        }
        out
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Storage, (kv heads, group, head_dim), lengths, window, seed.
type SceneShape = (
    KvType,
    (usize, usize, usize),
    Vec<usize>,
    Option<usize>,
    u64,
);

fn any_scene() -> impl Strategy<Value = SceneShape> {
    (
        prop::sample::select(vec![KvType::F16, KvType::Int8]),
        (
            1..4_usize,
            1..11_usize,
            prop::sample::select(vec![1, 5, 8, 16, 24, 64, 80, 96, 128, 256]),
        ),
        prop::collection::vec(1..90_usize, 1..4),
        prop::option::of(1..60_usize),
        any::<u64>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn results_are_close_to_the_truth_and_equal_in_every_tier((kv_type, shape, lengths, window, seed) in any_scene()) {
        let noise = &mut Noise::new(seed);
        let scene = Scene::new(kv_type, shape, &lengths, window, noise);
        let rows: Vec<AttentionRow> =
            (0..lengths.len()).flat_map(|sequence| scene.rows(sequence, 0..lengths[sequence])).collect();
        let row_len = scene.heads() * scene.head_dim;
        let q = noise.values(rows.len() * row_len);
        let out = scene.attend(&Compute::new(Tier::Scalar, 1), &rows, &q);
        let tolerance = match kv_type { KvType::F16 => 2e-3, KvType::Int8 => 3e-2 };
        let places = (0..lengths.len()).flat_map(|sequence| (0..lengths[sequence]).map(move |position| (sequence, position)));
        for (row, (sequence, position)) in places.enumerate() {
            let truth = scene.truth(sequence, position, &q[row * row_len..]);
            for (i, truth) in truth.iter().enumerate() {
                prop_assert!((f64::from(out[row * row_len + i]) - truth).abs() < tolerance);
            }
        }
        for tier in tiers() {
            prop_assert_eq!(bits(&scene.attend(&Compute::new(tier, 1), &rows, &q)), bits(&out), "{}", tier);
        }
    }
}

#[test]
fn long_contexts_are_close_to_the_truth() {
    for kv_type in [KvType::F16, KvType::Int8] {
        for window in [None, Some(700)] {
            let noise = &mut Noise::new(3);
            let scene = Scene::new(kv_type, (2, 4, 64), &[1700], window, noise);
            let rows = scene.rows(0, 1690..1700);
            let q = noise.values(rows.len() * 8 * 64);
            let out = scene.attend(&Compute::new(Tier::detect(), 2), &rows, &q);
            for (i, row) in rows.iter().enumerate() {
                let truth = scene.truth(0, row.position, &q[i * 512..]);
                for (out, truth) in out[i * 512..].iter().zip(truth) {
                    assert!((f64::from(*out) - truth).abs() < 3e-3);
                }
            }
        }
    }
}

#[test]
fn a_row_in_a_batch_has_the_bits_of_the_row_alone() {
    for kv_type in [KvType::F16, KvType::Int8] {
        for (group, window) in [
            (1, None),
            (3, Some(20)),
            (4, None),
            (4, Some(600)),
            (7, None),
            (12, Some(530)),
        ] {
            let noise = &mut Noise::new(group as u64);
            let scene = Scene::new(kv_type, (2, group, 48), &[1200, 5, 40], window, noise);
            let mut rows = scene.rows(0, 1150..1200);
            rows.extend(scene.rows(1, 0..5));
            rows.extend(scene.rows(2, 38..40));
            let row_len = scene.heads() * 48;
            let q = noise.values(rows.len() * row_len);
            for tier in tiers() {
                let alone = Compute::new(tier, 1);
                let expected: Vec<u32> = rows
                    .iter()
                    .zip(q.chunks(row_len))
                    .flat_map(|(row, q)| bits(&scene.attend(&alone, std::slice::from_ref(row), q)))
                    .collect();
                for threads in [1, 2, 5] {
                    let compute = Compute::new(tier, threads);
                    assert_eq!(
                        bits(&scene.attend(&compute, &rows, &q)),
                        expected,
                        "{tier} {threads} threads"
                    );
                }
                // Few rows and many threads: splits become tasks of their own.
                let compute = Compute::new(tier, 5);
                let last = rows.len() - 8;
                let few = scene.attend(
                    &compute,
                    &rows[last..last + 1],
                    &q[last * row_len..(last + 1) * row_len],
                );
                assert_eq!(bits(&few), expected[last * row_len..(last + 1) * row_len]);
            }
        }
    }
}

#[test]
fn what_lies_after_a_row_or_before_its_window_has_no_influence() {
    let noise = &mut Noise::new(11);
    let mut scene = Scene::new(KvType::F16, (1, 2, 16), &[64], Some(10), noise);
    let rows = scene.rows(0, 29..30);
    let q = noise.values(32);
    let compute = Compute::new(Tier::detect(), 1);
    let before = scene.attend(&compute, &rows, &q);
    let others: Vec<AttentionRow> = scene
        .rows(0, 0..20)
        .into_iter()
        .chain(scene.rows(0, 30..64))
        .collect();
    let huge = vec![f32::MAX; others.len() * 16];
    let turn = Turn {
        norm: None,
        table: &scene.rotation,
    };
    store_kv(
        &compute,
        &mut scene.cache,
        1,
        &others,
        &scene.tables,
        turn,
        [&huge, &huge],
    );
    assert_eq!(bits(&scene.attend(&compute, &rows, &q)), bits(&before));
}

#[test]
#[should_panic(expected = "needs blocks")]
fn a_position_beyond_its_table_is_refused() {
    let scene = Scene::new(KvType::F16, (1, 1, 16), &[16], None, &mut Noise::new(1));
    let rows = [AttentionRow {
        table: 0..1,
        position: 16,
    }];
    scene.attend(&Compute::new(Tier::Scalar, 1), &rows, &[0.0; 16]);
}
