//! Products are right, equal in every tier, and independent of the batch and of the threads.

mod common;

use common::{Noise, pack, random_rows, tiers};
use forespeak_kernels::{
    Activations, Compute, Format, Input, Matrix, Norm, Product, Scratch, Tier, dequantize, gated,
    matmul,
};
use proptest::prelude::*;

fn multiply(compute: &Compute, matrix: &Matrix, x: &[f32], m: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; m * matrix.rows()];
    matmul(
        compute,
        &mut Scratch::default(),
        Input::Rows(x),
        m,
        &mut [Product::new(matrix, &mut out)],
    );
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The largest error that rounding activations may cause for one output.
fn bound(format: Format, weights: &[f32], x: &[f32]) -> f64 {
    let products: f64 = weights
        .iter()
        .zip(x)
        .map(|(w, x)| f64::from(w * x).abs())
        .sum();
    let rounding = match format {
        Format::F32 | Format::F16 => 0.0,
        Format::Bf16 => products / 256.0,
        Format::Q8_0 | Format::Q4_0 | Format::Q4K | Format::Q6K => weights
            .chunks(32)
            .zip(x.chunks(32))
            .map(|(w, x)| {
                let largest = x.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
                f64::from(largest) / 127.0
                    * 0.505
                    * w.iter().map(|w| f64::from(w.abs())).sum::<f64>()
            })
            .sum(),
    };
    rounding + products * 1e-5 + 1e-6
}

fn any_format() -> impl Strategy<Value = Format> {
    prop::sample::select(&Format::ALL[..])
}

fn any_cols(format: Format) -> BoxedStrategy<usize> {
    match format.block_len() {
        1 => (1..300_usize).boxed(),
        32 => (1..12_usize).prop_map(|blocks| blocks * 32).boxed(),
        block => (1..6_usize).prop_map(move |blocks| blocks * block).boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn products_are_close_to_the_truth(
        (format, cols) in any_format().prop_flat_map(|format| (Just(format), any_cols(format))),
        rows in 1..80_usize,
        m in 1..20_usize,
        seed in any::<u64>(),
    ) {
        let noise = &mut Noise::new(seed);
        let encoded = random_rows(format, rows, cols, noise);
        let x = noise.values(m * cols);
        let compute = Compute::new(Tier::Scalar, 1);
        let out = multiply(&compute, &pack(&compute, format, &encoded, cols), &x, m);
        let mut weights = vec![0.0; cols];
        for (n, row) in encoded.iter().enumerate() {
            dequantize(format, row, &mut weights);
            for (i, x) in x.chunks_exact(cols).enumerate() {
                let truth: f64 = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                let error = (f64::from(out[i * rows + n]) - truth).abs();
                prop_assert!(error <= bound(format, &weights, x), "{format} row {i} output {n}: {error}");
            }
        }
    }

    #[test]
    fn every_tier_gives_the_bits_of_the_scalar_one(
        (format, cols) in any_format().prop_flat_map(|format| (Just(format), any_cols(format))),
        rows in 1..80_usize,
        m in 1..40_usize,
        seed in any::<u64>(),
    ) {
        let noise = &mut Noise::new(seed);
        let encoded = random_rows(format, rows, cols, noise);
        let x = noise.values(m * cols);
        let scalar = Compute::new(Tier::Scalar, 1);
        let matrix = pack(&scalar, format, &encoded, cols);
        let expected = multiply(&scalar, &matrix, &x, m);
        for tier in tiers() {
            let out = multiply(&Compute::new(tier, 1), &matrix, &x, m);
            if format == Format::Bf16 && tier == Tier::Avx512 {
                // The BF16 extension rounds the sum of a pair in its own way.
                for (a, b) in out.iter().zip(&expected) {
                    prop_assert!((a - b).abs() <= 1e-5 * (cols as f32), "{tier}: {a} {b}");
                }
            } else {
                prop_assert_eq!(bits(&out), bits(&expected), "{} {}", tier, format);
            }
        }
    }
}

#[test]
fn a_row_in_a_batch_has_the_bits_of_the_row_alone() {
    let noise = &mut Noise::new(7);
    for format in Format::ALL {
        let (rows, cols) = (40, 1280);
        let encoded = random_rows(format, rows, cols, noise);
        for tier in tiers() {
            let compute = Compute::new(tier, 2);
            let matrix = pack(&compute, format, &encoded, cols);
            let x = noise.values(130 * cols);
            let alone: Vec<u32> = x
                .chunks(cols)
                .flat_map(|row| bits(&multiply(&compute, &matrix, row, 1)))
                .collect();
            for m in (1..=20).chain([31, 33, 63, 64, 65, 66, 127, 130]) {
                let together = bits(&multiply(&compute, &matrix, &x[..m * cols], m));
                assert_eq!(together, alone[..m * rows], "{tier} {format} m={m}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let noise = &mut Noise::new(8);
    for format in Format::ALL {
        let encoded = random_rows(format, 500, 512, noise);
        let x = noise.values(130 * 512);
        let alone = Compute::new(Tier::detect(), 1);
        let matrix = pack(&alone, format, &encoded, 512);
        for m in [1, 9, 130] {
            let expected = multiply(&alone, &matrix, &x[..m * 512], m);
            for threads in [2, 3, 7] {
                let out = multiply(
                    &Compute::new(Tier::detect(), threads),
                    &matrix,
                    &x[..m * 512],
                    m,
                );
                assert_eq!(
                    bits(&out),
                    bits(&expected),
                    "{format} m={m} threads={threads}"
                );
            }
        }
    }
}

#[test]
fn products_of_several_formats_share_their_input() {
    let noise = &mut Noise::new(9);
    let compute = Compute::new(Tier::detect(), 2);
    let matrices: Vec<Matrix> = Format::ALL
        .into_iter()
        .enumerate()
        .map(|(i, format)| {
            pack(
                &compute,
                format,
                &random_rows(format, 33 + i, 256, noise),
                256,
            )
        })
        .collect();
    let x = noise.values(5 * 256);
    let mut outs: Vec<Vec<f32>> = matrices
        .iter()
        .map(|matrix| vec![0.0; 5 * matrix.rows()])
        .collect();
    let mut products: Vec<Product<'_>> = matrices
        .iter()
        .zip(&mut outs)
        .map(|(matrix, out)| Product::new(matrix, out))
        .collect();
    matmul(
        &compute,
        &mut Scratch::default(),
        Input::Rows(&x),
        5,
        &mut products,
    );
    for (matrix, out) in matrices.iter().zip(&outs) {
        assert_eq!(bits(out), bits(&multiply(&compute, matrix, &x, 5)));
    }
}

#[test]
fn extreme_weights_and_inputs_do_not_overflow_the_integers() {
    for tier in tiers() {
        let compute = Compute::new(tier, 1);
        for (format, fill, scales) in [
            (Format::Q8_0, 0x80, vec![0]),
            (Format::Q6K, 0xff, vec![208]),
            (Format::Q4K, 0xff, vec![0, 2]),
        ] {
            let mut row = vec![fill; format.row_bytes(256).unwrap()];
            for block in row.chunks_exact_mut(format.block_bytes()) {
                for at in &scales {
                    block[*at..at + 2].copy_from_slice(&0x3c00_u16.to_le_bytes());
                }
            }
            let matrix = pack(&compute, format, &[row.clone()], 256);
            let mut weights = vec![0.0; 256];
            dequantize(format, &row, &mut weights);
            for x in [1.0_f32, -1.0] {
                let out = multiply(&compute, &matrix, &[x; 256], 1);
                let truth: f64 = weights.iter().map(|w| f64::from(w * x)).sum();
                assert!(
                    (f64::from(out[0]) - truth).abs() <= 1e-5 * truth.abs(),
                    "{tier} {format}: {} {truth}",
                    out[0]
                );
            }
        }
    }
}

#[test]
fn zero_and_tiny_inputs_give_zero_or_finite_results() {
    let noise = &mut Noise::new(10);
    for format in Format::ALL {
        let compute = Compute::new(Tier::detect(), 1);
        let matrix = pack(&compute, format, &random_rows(format, 32, 256, noise), 256);
        assert!(
            multiply(&compute, &matrix, &[0.0; 256], 1)
                .iter()
                .all(|value| *value == 0.0)
        );
        assert!(
            multiply(&compute, &matrix, &[1e-38; 256], 1)
                .iter()
                .all(|value| value.is_finite())
        );
        assert!(
            multiply(&compute, &matrix, &[1e30; 256], 1)
                .iter()
                .all(|value| value.is_finite())
        );
    }
}

/// A norm, products with a bias, and their addition to what is there: as a model's layers use them.
fn norm_and_add(compute: &Compute, matrix: &Matrix, x: &[f32], m: usize) -> Vec<f32> {
    let (cols, rows) = (matrix.cols(), matrix.rows());
    let weight: Vec<f32> = (0..cols).map(|i| 1.0 + i as f32 * 0.01).collect();
    let bias: Vec<f32> = (0..rows).map(|i| (i as f32).sin()).collect();
    let norm = Norm {
        weight: &weight,
        eps: 1e-6,
    };
    let mut out: Vec<f32> = (0..m * rows).map(|i| (i % rows) as f32).collect();
    let product = Product::new(matrix, &mut out)
        .with_bias(Some(&bias))
        .added();
    matmul(
        compute,
        &mut Scratch::default(),
        Input::Normed(x, norm),
        m,
        &mut [product],
    );
    out
}

#[test]
fn a_norm_a_bias_and_an_addition_are_those_of_the_textbook() {
    let noise = &mut Noise::new(11);
    let compute = Compute::new(Tier::detect(), 2);
    let (rows, cols, m) = (70, 96, 5);
    let encoded = random_rows(Format::F32, rows, cols, noise);
    let matrix = pack(&compute, Format::F32, &encoded, cols);
    let x = noise.values(m * cols);
    let out = norm_and_add(&compute, &matrix, &x, m);
    let mut weights = vec![0.0; cols];
    for (n, row) in encoded.iter().enumerate() {
        dequantize(Format::F32, row, &mut weights);
        for (i, x) in x.chunks_exact(cols).enumerate() {
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / cols as f64;
            let product: f64 = weights
                .iter()
                .zip(x)
                .enumerate()
                .map(|(c, (w, x))| f64::from(*w) * f64::from(*x) * (1.0 + c as f64 * 0.01))
                .sum();
            let truth = n as f64 + (n as f64).sin() + product / (mean + 1e-6).sqrt();
            assert!((f64::from(out[i * rows + n]) - truth).abs() < 1e-3);
        }
    }
}

/// A whole feed-forward part.
fn feed_forward(compute: &Compute, matrices: [&Matrix; 3], x: &[f32], m: usize) -> Vec<f32> {
    let (mut scratch, mut between) = (Scratch::default(), Activations::default());
    gated(
        compute,
        &mut scratch,
        Input::Rows(x),
        m,
        matrices,
        &mut between,
    );
    let mut out = vec![f32::NAN; m * matrices[2].rows()];
    let down = Product::new(matrices[2], &mut out);
    matmul(
        compute,
        &mut scratch,
        Input::Encoded(&between),
        m,
        &mut [down],
    );
    out
}

#[test]
fn what_happens_between_products_depends_neither_on_the_batch_nor_on_tier_or_threads() {
    let noise = &mut Noise::new(12);
    for format in Format::ALL {
        let (dim, inner) = (256, 512);
        let mut random = |rows, cols| {
            pack(
                &Compute::new(Tier::Scalar, 1),
                format,
                &random_rows(format, rows, cols, noise),
                cols,
            )
        };
        let (gate, up, down) = (random(inner, dim), random(inner, dim), random(dim, inner));
        let x = Noise::new(13).values(130 * dim);
        let both = |compute: &Compute, x: &[f32], m: usize| {
            let through = feed_forward(compute, [&gate, &up, &down], x, m);
            [bits(&through), bits(&norm_and_add(compute, &gate, x, m))].concat()
        };
        let split = |all: &[u32], m: usize, row: usize| {
            let (first, second) = all.split_at(m * dim);
            [&first[row * dim..][..dim], &second[row * inner..][..inner]].concat()
        };
        let scalar = Compute::new(Tier::Scalar, 1);
        for tier in tiers() {
            let compute = Compute::new(tier, 3);
            let alone = |row: usize| both(&compute, &x[row * dim..][..dim], 1);
            if format != Format::Bf16 {
                assert_eq!(alone(0), both(&scalar, &x[..dim], 1), "{tier} {format}");
            }
            for m in [2, 4, 7, 9, 33, 65, 130] {
                let together = both(&compute, &x[..m * dim], m);
                for row in [0, m / 2, m - 1] {
                    assert_eq!(
                        split(&together, m, row),
                        alone(row),
                        "{tier} {format} m={m}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_feed_forward_part_is_gate_times_up_through_down() {
    let noise = &mut Noise::new(14);
    let compute = Compute::new(Tier::detect(), 2);
    let (dim, inner, m) = (64, 97, 3);
    let mut random = |rows, cols| {
        pack(
            &compute,
            Format::F32,
            &random_rows(Format::F32, rows, cols, noise),
            cols,
        )
    };
    let (gate, up, down) = (random(inner, dim), random(inner, dim), random(dim, inner));
    let x = Noise::new(15).values(m * dim);
    let gates: Vec<f32> = multiply(&compute, &gate, &x, m)
        .into_iter()
        .zip(multiply(&compute, &up, &x, m))
        .map(|(gate, up)| {
            let gate = f64::from(gate);
            (gate / (1.0 + (-gate).exp()) * f64::from(up)) as f32
        })
        .collect();
    let expected = multiply(&compute, &down, &gates, m);
    let out = feed_forward(&compute, [&gate, &up, &down], &x, m);
    for (out, expected) in out.iter().zip(expected) {
        assert!((out - expected).abs() <= 1e-4 * expected.abs().max(1.0));
    }
}
