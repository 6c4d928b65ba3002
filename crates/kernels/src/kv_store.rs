//! Writing a step's keys and values into the cache.

use crate::attention::{AttentionRow, check_rows};
use crate::compute::Compute;
use crate::kv_cache::{BLOCK_TOKENS, HeadLayout, KvCache, KvType};
use crate::lanes::{LANES, Lanes, load_up_to};
use crate::rope::Turn;
use crate::shared_out::SharedOut;
use crate::tier::tiered;

/// The largest f16. Larger keys and values are cut off there: an infinity in one token's value would turn other
/// rows' masked products into not-a-number.
const LARGEST_F16: f32 = 65_504.0;
const LARGEST_QUANT: f32 = 127.0;
/// Heads whose largest value is below this are stored as zeros; its inverse would leave f32.
const SMALLEST_HEAD: f32 = 1e-30;

/// Writes `k`, turned, and `v`, both `[rows.len()][kv_heads * head_dim]`, to the places in the cache that rows and tables
/// name.
///
/// # Panics
/// If the shapes do not fit, or a row's position or block lies outside of its table or the cache.
pub fn store_kv(
    compute: &Compute,
    cache: &mut KvCache,
    layer: usize,
    rows: &[AttentionRow],
    tables: &[u32],
    turn: Turn<'_>,
    [k, v]: [&[f32]; 2],
) {
    let (kv_heads, layout) = (cache.shape().kv_heads, cache.layout());
    let row_len = kv_heads * layout.head_dim;
    assert!(
        k.len() == rows.len() * row_len,
        "k has {} values, not {} rows of {row_len}",
        k.len(),
        rows.len()
    );
    assert!(
        v.len() == k.len(),
        "v has {} values, k {}",
        v.len(),
        k.len()
    );
    check_rows(
        rows,
        tables,
        |row| row.position..row.position + 1,
        cache.blocks(),
    );
    let memory = SharedOut::new(cache.layer_mut(layer));
    // One thread writes a head of all rows: rows that name the same place are then no race.
    let store_head = |head: usize| {
        let mut turned = vec![0.0; layout.head_dim];
        for (index, row) in rows.iter().enumerate() {
            let block = tables[row.table.start + row.position / BLOCK_TOKENS] as usize;
            let at = index * row_len + head * layout.head_dim;
            let (k, v) = (&k[at..][..layout.head_dim], &v[at..][..layout.head_dim]);
            turn.apply(compute.tier(), k, row.position, &mut turned);
            // SAFETY: heads do not overlap and each is written by one thread; the machine has the tier.
            unsafe {
                let place = memory.part((block * kv_heads + head) * layout.bytes, layout.bytes);
                store_token(
                    compute.tier(),
                    place,
                    layout,
                    row.position % BLOCK_TOKENS,
                    &turned,
                    v,
                );
            }
        }
    };
    if rows.len() == 1 {
        (0..kv_heads).for_each(store_head)
    } else {
        compute.run(kv_heads, store_head)
    }
}

tiered!(fn store_token(place: &mut [u8], layout: HeadLayout, token: usize, k: &[f32], v: &[f32]) = store_token_with);

#[inline(always)]
unsafe fn store_token_with<L: Lanes>(
    place: &mut [u8],
    layout: HeadLayout,
    token: usize,
    k: &[f32],
    v: &[f32],
) {
    let keys = place.as_mut_ptr();
    let values = keys.add(layout.values_at);
    match layout.kv_type {
        KvType::F16 => {
            let (keys, values) = (
                keys.cast::<u16>(),
                values.cast::<u16>().add(token * layout.padded_dim),
            );
            for at in (0..layout.head_dim).step_by(LANES) {
                let len = layout.head_dim - at;
                let mut column = [0; LANES];
                within_f16(load_up_to::<L>(k.as_ptr().add(at), len)).store_f16(column.as_mut_ptr());
                scatter(column, len, keys.add(at * BLOCK_TOKENS + token));
                within_f16(load_up_to::<L>(v.as_ptr().add(at), len)).store_f16(values.add(at));
            }
        }
        KvType::Int8 => {
            let (keys, values) = (
                keys.cast::<i8>(),
                values.cast::<i8>().add(token * layout.padded_dim),
            );
            let scales = place.as_mut_ptr().add(layout.scales_at).cast::<f32>();
            let (k_scale, k_inverse) = scale_of::<L>(k);
            let (v_scale, v_inverse) = scale_of::<L>(v);
            *scales.add(token) = k_scale;
            *scales.add(BLOCK_TOKENS + token) = v_scale;
            for at in (0..layout.head_dim).step_by(LANES) {
                let len = layout.head_dim - at;
                let mut column = [0; LANES];
                let scaled = load_up_to::<L>(k.as_ptr().add(at), len).mul(L::splat(k_inverse));
                scaled.store_i8(column.as_mut_ptr());
                scatter(column, len, keys.add(at * BLOCK_TOKENS + token));
                load_up_to::<L>(v.as_ptr().add(at), len)
                    .mul(L::splat(v_inverse))
                    .store_i8(values.add(at));
            }
        }
    }
}

#[inline(always)]
unsafe fn within_f16<L: Lanes>(values: L) -> L {
    values
        .max(L::splat(-LARGEST_F16))
        .min(L::splat(LARGEST_F16))
}

/// Writes up to `len` values a token's stride apart.
#[inline(always)]
unsafe fn scatter<T: Copy>(column: [T; LANES], len: usize, to: *mut T) {
    for (i, value) in column.into_iter().take(len).enumerate() {
        *to.add(i * BLOCK_TOKENS) = value;
    }
}

/// The value of a quant of one, and its inverse.
#[inline(always)]
unsafe fn scale_of<L: Lanes>(values: &[f32]) -> (f32, f32) {
    let mut largest = L::splat(0.0);
    for at in (0..values.len()).step_by(LANES) {
        largest = load_up_to::<L>(values.as_ptr().add(at), values.len() - at)
            .abs()
            .max(largest);
    }
    let largest = largest.largest();
    if (SMALLEST_HEAD..f32::INFINITY).contains(&largest) {
        (largest / LARGEST_QUANT, LARGEST_QUANT / largest)
    } else {
        (0.0, 0.0)
    }
}
