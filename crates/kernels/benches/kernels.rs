//! Speed of the kernels against what the machine's memory can do, measured in the same run.
//!
//! `cargo bench -p forespeak-kernels -- [tier] [format ...]`; `KERNELS_THREADS` sets the number of threads (2).
//! Every line gives the best of several runs. `roof` is the speed of reading the same number of bytes: 1.00 means
//! that a product takes as long as merely reading its weights.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people at a terminal"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut};

use forespeak_kernels::{
    Attention, AttentionRow, BLOCK_TOKENS, Compute, Format, Input, KvCache, KvShape, KvType,
    Matrix, Product, RopeTable, Scratch, Tier, Turn, attend, matmul, store_kv,
};

/// Weights are taken in turn from so many bytes, more than any cache holds.
const COLD_BYTES: usize = 160 << 20;
const ROWS_OF_X: [usize; 7] = [1, 4, 8, 9, 16, 64, 512];

/// How long each figure is sought: long enough to find a quiet moment.
const SEARCH: Duration = Duration::from_millis(300);
const FEWEST_RUNS: usize = 4;

fn best(mut work: impl FnMut(usize)) -> f64 {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut runs = 0;
    while runs < FEWEST_RUNS || begin.elapsed() < SEARCH {
        let start = Instant::now();
        work(runs);
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Seconds to read `bytes` bytes of `buffer`, another part each time, in pieces like weights are.
fn read_time(compute: &Compute, buffer: &[u8], bytes: usize) -> f64 {
    let parts = (buffer.len() / bytes).max(1);
    best(|run| {
        let part = &buffer[run % parts * bytes..][..bytes];
        let pieces: Vec<&[u8]> = part.chunks(256 << 10).collect();
        compute.run(pieces.len(), |piece| {
            let mut sums = [0_u8; 256];
            for bytes in pieces[piece].chunks_exact(256) {
                for (sum, byte) in sums.iter_mut().zip(bytes) {
                    *sum ^= byte;
                }
            }
            black_box(sums);
        });
    })
}

fn encoded_rows(format: Format, rows: usize, cols: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut bytes: Vec<u8> = (0..rows * format.row_bytes(cols).unwrap())
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    // Random bits in a scale may be infinite or denormal, which is slower than what real weights hold.
    let scales: &[usize] = match format {
        Format::F32 | Format::Bf16 => &[],
        Format::F16 | Format::Q8_0 | Format::Q4_0 => &[0],
        Format::Q4K => &[0, 2],
        Format::Q6K => &[208],
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for at in scales {
            block[at + 1] = 0x24;
        }
        if matches!(format, Format::F32 | Format::Bf16) {
            *block.last_mut().unwrap() = 0x3d;
        }
    }
    bytes
}

fn products(compute: &Compute, format: Format, rows: usize, cols: usize, buffer: &[u8]) {
    let encoded = encoded_rows(format, rows, cols);
    let row_bytes = encoded.len() / rows;
    let pack = || {
        Matrix::pack(compute, format, rows, cols, |row| {
            &encoded[row * row_bytes..][..row_bytes]
        })
        .unwrap()
    };
    let first = pack();
    let bytes = first.bytes();
    let copies = (COLD_BYTES / bytes).clamp(1, 4);
    let matrices: Vec<Matrix> = std::iter::once(first)
        .chain((1..copies).map(|_| pack()))
        .collect();
    let cold = copies * bytes >= COLD_BYTES / 2;
    let mut scratch = Scratch::default();
    let mut single = None;
    for m in ROWS_OF_X {
        let x: Vec<f32> = (0..m * cols).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut out = vec![0.0; m * rows];
        // The roof is measured around the product, so that both see the same neighbours on a busy machine.
        let roof = read_time(compute, buffer, bytes);
        let seconds = best(|run| {
            let matrix = &matrices[run % copies];
            matmul(
                compute,
                &mut scratch,
                Input::Rows(&x),
                m,
                &mut [Product::new(matrix, &mut out)],
            );
        });
        let roof = roof.min(read_time(compute, buffer, bytes));
        let single = *single.get_or_insert(seconds);
        println!(
            "{:>5} {cols}x{rows} m={m:<4} {:>9.3} ms  {:>7.1} GB/s  {:>7.1} GOP/s  {:>6.2}x one row{}",
            format.to_string(),
            seconds * 1e3,
            bytes as f64 / seconds / 1e9,
            2.0 * (m * rows * cols) as f64 / seconds / 1e9,
            seconds / single,
            if cold && m <= 8 {
                format!(
                    "  {:.2} of roof ({:.1} GB/s)",
                    roof / seconds,
                    bytes as f64 / roof / 1e9
                )
            } else {
                String::new()
            },
        );
    }
}

fn attention(compute: &Compute, kv_type: KvType, context: usize, queries: usize) {
    let (heads, kv_heads, head_dim) = (32, 8, 128);
    let blocks = context.div_ceil(BLOCK_TOKENS);
    let layers = (COLD_BYTES / (blocks * BLOCK_TOKENS * kv_heads * head_dim * 4)).clamp(1, 64);
    let shape = KvShape {
        layers,
        kv_heads,
        head_dim,
        kv_type,
    };
    let bytes = (shape.block_bytes() / layers * blocks) as f64;
    let mut cache = KvCache::new(shape, blocks).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).collect();
    let row = |position| AttentionRow {
        table: 0..blocks,
        position,
    };
    let all: Vec<AttentionRow> = (0..context).map(row).collect();
    let kv: Vec<f32> = (0..context * kv_heads * head_dim)
        .map(|i| (i as f32 * 0.11).sin())
        .collect();
    let turn = Turn {
        norm: None,
        table: &RopeTable::new(&[0.1; 64], 1.0, context),
    };
    for layer in 0..layers {
        let kv = [kv.as_slice(); 2];
        store_kv(compute, &mut cache, layer, &all, &tables, turn, kv);
    }
    let rows = &all[context - queries..];
    let q: Vec<f32> = (0..queries * heads * head_dim)
        .map(|i| (i as f32 * 0.23).cos())
        .collect();
    let mut out = vec![0.0; q.len()];
    let mut scratch = Scratch::default();
    let seconds = best(|run| {
        let attention = Attention {
            layer: run % layers,
            heads,
            turn,
            scale: 0.088,
            window: None,
            rows,
            tables: &tables,
        };
        attend(compute, &mut scratch, &cache, &attention, &q, &mut out);
    });
    let operations = 4.0 * (queries * heads * head_dim) as f64 * (context - queries / 2) as f64;
    println!(
        "attention {kv_type:?} context={context:<5} rows={queries:<4} {:>8.3} ms  {:>6.1} GB/s  {:>6.1} GFLOP/s",
        seconds * 1e3,
        bytes / seconds / 1e9,
        operations / seconds / 1e9,
    );
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let threads = std::env::var("KERNELS_THREADS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(2);
    let tier = args
        .iter()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or_else(Tier::detect);
    let compute = Compute::new(tier, threads);
    let wanted: Vec<&String> = args
        .iter()
        .filter(|arg| arg.parse::<Tier>().is_err())
        .collect();
    let on = |name: &str| wanted.is_empty() || wanted.iter().any(|arg| *arg == name);
    let mut buffer = MmapMut::map_anon(COLD_BYTES * 2).unwrap();
    // As packed weights are; without huge pages reading is slower.
    let _ = buffer.advise(Advice::HugePage);
    buffer.fill(1);
    println!(
        "tier {}, {threads} threads, read {:.1} GB/s",
        compute.tier(),
        COLD_BYTES as f64 / read_time(&compute, &buffer, COLD_BYTES) / 1e9
    );
    for format in Format::ALL {
        if on(&format.to_string()) {
            products(&compute, format, 11008, 4096, &buffer);
            products(&compute, format, 2816, 1024, &buffer);
        }
    }
    if on("attention") {
        for kv_type in [KvType::F16, KvType::Int8] {
            for (context, queries) in [
                (512, 1),
                (2048, 1),
                (2048, 4),
                (8192, 1),
                (512, 512),
                (2048, 512),
            ] {
                attention(&compute, kv_type, context, queries);
            }
        }
    }
}
