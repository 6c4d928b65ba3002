//! The forward pass: tokens in, logits out, keys and values kept.
//!
//! All arithmetic is row-wise and the kernels promise that a row's result does not depend on its
//! neighbours, so a step may mix prompts, decodes and drafts, and may leave out work that no wanted
//! row needs, without changing a bit of any result.

mod workspace;

use std::sync::Arc;

use kernels::{
    Attention, Compute, KvCache, KvShape, KvType, Product, RopeTable, add_assign, add_bias, attend,
    matmul, rms_norm, rms_norm_in_place, rope, silu_mul, store_kv,
};

use crate::batch::{BLOCK_TOKENS, Batch, Logits};
use crate::config::ModelConfig;
use crate::error::ModelError;
use crate::weights::{Layer, Linear, Weights};

pub use workspace::Workspace;
use workspace::gather;

/// Rows that go through a feed-forward part together. Its inner vectors are the longest of a step: in
/// parts they stay in the processor's cache, and a long prompt does not need memory for all of them.
const FEED_FORWARD_ROWS: usize = 128;

/// A model ready to run.
pub struct Model {
    config: ModelConfig,
    compute: Arc<Compute>,
    weights: Weights,
    rotation: RopeTable,
}

impl Model {
    pub(crate) fn new(config: ModelConfig, compute: Arc<Compute>, weights: Weights) -> Self {
        let frequencies = config.rope.inverse_frequencies(config.head_dim);
        let rotation = RopeTable::new(&frequencies, 1.0, config.context_length);
        Self {
            config,
            compute,
            weights,
            rotation,
        }
    }

    /// Its shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Memory that the packed weights take.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// What a KV block of this model looks like.
    pub fn kv_shape(&self, kv_type: KvType) -> KvShape {
        KvShape {
            layers: self.config.layers,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
            kv_type,
        }
    }

    /// Room for the keys and values of `blocks` blocks.
    pub fn new_cache(&self, blocks: usize, kv_type: KvType) -> Result<KvCache, ModelError> {
        KvCache::new(self.kv_shape(kv_type), blocks).map_err(|source| ModelError::Memory {
            what: format!("a KV cache of {blocks} blocks"),
            source: source.into(),
        })
    }

    /// Runs one step: stores keys and values of all rows, and writes the logits of the wanted rows.
    pub fn forward(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        workspace: &mut Workspace,
        logits: &mut Logits,
    ) -> Result<(), ModelError> {
        self.check(batch, cache)?;
        workspace.begin(batch, &self.config);
        self.weights
            .embedding
            .look_up(&batch.tokens, &mut workspace.x);
        let last = self.config.layers - 1;
        for (index, layer) in self.weights.layers.iter().enumerate() {
            let wanted = (index == last && batch.outputs.len() < batch.rows())
                .then_some(batch.outputs.as_slice());
            self.attention_inputs(layer, batch, workspace, wanted);
            store_kv(
                &self.compute,
                cache,
                index,
                &workspace.rows,
                &batch.tables,
                &workspace.k,
                &workspace.v,
            );
            if let Some(wanted) = wanted {
                workspace.keep_rows(wanted, self.config.dim);
            }
            if workspace.rows.is_empty() {
                break;
            }
            self.attention(index, layer, batch, cache, workspace);
            self.feed_forward(layer, workspace);
        }
        self.logits(batch, workspace, logits);
        Ok(())
    }

    /// Queries, keys and values. Where only some rows are `wanted` afterwards, only they get queries.
    fn attention_inputs(
        &self,
        layer: &Layer,
        batch: &Batch,
        workspace: &mut Workspace,
        wanted: Option<&[u32]>,
    ) {
        let (compute, config) = (&*self.compute, &self.config);
        let m = batch.rows();
        let Workspace {
            x,
            h,
            q,
            k,
            v,
            kept,
            scratch,
            positions,
            ..
        } = workspace;
        rms_norm(compute, x, &layer.attention_norm, config.norm_eps, h);
        k.resize(m * config.kv_dim(), 0.0);
        v.resize(m * config.kv_dim(), 0.0);
        let mut keys_and_values = [product(&layer.k, k), product(&layer.v, v)];
        let query_positions: &[u32] = if let Some(wanted) = wanted {
            matmul(compute, scratch, h, m, &mut keys_and_values);
            q.resize(wanted.len() * config.q_dim(), 0.0);
            if !wanted.is_empty() {
                gather(h, config.dim, wanted, kept);
                matmul(
                    compute,
                    scratch,
                    kept,
                    wanted.len(),
                    &mut [product(&layer.q, q)],
                );
            }
            positions.clear();
            let wanted_positions = wanted
                .iter()
                .filter_map(|&row| batch.positions.get(row as usize));
            positions.extend(wanted_positions);
            positions
        } else {
            q.resize(m * config.q_dim(), 0.0);
            let [keys, values] = keys_and_values;
            matmul(
                compute,
                scratch,
                h,
                m,
                &mut [product(&layer.q, q), keys, values],
            );
            &batch.positions
        };
        for (linear, out) in [(&layer.q, &mut *q), (&layer.k, &mut *k), (&layer.v, v)] {
            if let Some(bias) = &linear.bias
                && !out.is_empty()
            {
                add_bias(compute, out, bias);
            }
        }
        for (norm, out) in [(&layer.q_norm, &mut *q), (&layer.k_norm, &mut *k)] {
            if let Some(norm) = norm
                && !out.is_empty()
            {
                rms_norm_in_place(compute, out, norm, config.norm_eps);
            }
        }
        let head_dim = config.head_dim;
        rope(
            compute,
            q,
            config.heads,
            head_dim,
            query_positions,
            &self.rotation,
        );
        rope(
            compute,
            k,
            config.kv_heads,
            head_dim,
            &batch.positions,
            &self.rotation,
        );
    }

    fn attention(
        &self,
        index: usize,
        layer: &Layer,
        batch: &Batch,
        cache: &KvCache,
        workspace: &mut Workspace,
    ) {
        let (compute, config) = (&*self.compute, &self.config);
        let Workspace {
            x,
            h,
            q,
            scratch,
            rows,
            ..
        } = workspace;
        let attention = Attention {
            layer: index,
            heads: config.heads,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            window: config.windows.get(index).copied().flatten(),
            rows,
            tables: &batch.tables,
        };
        h.resize(q.len(), 0.0);
        attend(compute, scratch, cache, &attention, q, h);
        // The queries are done with; their buffer takes what comes out.
        let out = q;
        out.resize(x.len(), 0.0);
        let output = &layer.attention_output;
        matmul(compute, scratch, h, rows.len(), &mut [product(output, out)]);
        if let Some(bias) = &output.bias {
            add_bias(compute, out, bias);
        }
        add_assign(compute, x, out);
        h.resize(x.len(), 0.0);
    }

    fn feed_forward(&self, layer: &Layer, workspace: &mut Workspace) {
        let (compute, config) = (&*self.compute, &self.config);
        let Workspace {
            x,
            h,
            gate,
            up,
            scratch,
            rows,
            ..
        } = workspace;
        rms_norm(compute, x, &layer.feed_forward_norm, config.norm_eps, h);
        let most = rows.len().min(FEED_FORWARD_ROWS) * config.feed_forward;
        gate.resize(most, 0.0);
        up.resize(most, 0.0);
        for part in h.chunks_mut(FEED_FORWARD_ROWS * config.dim) {
            let m = part.len() / config.dim;
            let gate = &mut gate[..m * config.feed_forward];
            let up = &mut up[..m * config.feed_forward];
            let products = &mut [
                Product {
                    matrix: &layer.gate,
                    out: gate,
                },
                Product {
                    matrix: &layer.up,
                    out: up,
                },
            ];
            matmul(compute, scratch, part, m, products);
            silu_mul(compute, gate, up);
            let down = Product {
                matrix: &layer.down,
                out: part,
            };
            matmul(compute, scratch, gate, m, &mut [down]);
        }
        add_assign(compute, x, h);
    }

    fn logits(&self, batch: &Batch, workspace: &mut Workspace, logits: &mut Logits) {
        let wanted = batch.outputs.len();
        let out = logits.resize(wanted, self.config.vocab_size);
        if wanted == 0 {
            return;
        }
        let Workspace { x, h, scratch, .. } = workspace;
        h.resize(x.len(), 0.0);
        rms_norm(
            &self.compute,
            x,
            &self.weights.output_norm,
            self.config.norm_eps,
            h,
        );
        let output = Product {
            matrix: &self.weights.output,
            out,
        };
        matmul(&self.compute, scratch, h, wanted, &mut [output]);
    }

    /// The step loop is trusted to make sound batches; a mistake there must not become a wrong answer
    /// or a read out of bounds.
    fn check(&self, batch: &Batch, cache: &KvCache) -> Result<(), ModelError> {
        let refuse = |what: &str| Err(ModelError::Batch(what.to_owned()));
        let rows = batch.rows();
        if rows == 0 || batch.positions.len() != rows {
            return refuse("it needs as many positions as tokens, and at least one");
        }
        if batch
            .tokens
            .iter()
            .any(|&token| token as usize >= self.config.vocab_size)
        {
            return refuse("a token is not in the vocabulary");
        }
        let most = self.config.context_length;
        if batch
            .positions
            .iter()
            .any(|&position| position as usize >= most)
        {
            return refuse("a position is beyond the model's context");
        }
        if batch
            .tables
            .iter()
            .any(|&block| block as usize >= cache.blocks())
        {
            return refuse("a block is not in the cache");
        }
        if *cache.shape() != self.kv_shape(cache.shape().kv_type) {
            return refuse("the cache was made for another model");
        }
        let mut next = 0;
        for span in &batch.spans {
            let positions = batch.positions.get(span.rows.clone());
            let table = batch.tables.get(span.table.clone());
            let (Some([first, .., last] | [first @ last]), Some(table)) = (positions, table) else {
                return refuse("a span is empty or out of range");
            };
            let consecutive =
                (*last as usize).checked_sub(*first as usize) == Some(span.rows.len() - 1);
            if span.rows.start != next || !consecutive {
                return refuse("spans do not cover rows with consecutive positions");
            }
            if table.len() * BLOCK_TOKENS <= *last as usize {
                return refuse("a block table is too short for its span");
            }
            next = span.rows.end;
        }
        let ascending = batch.outputs.windows(2).all(|pair| pair[0] < pair[1]);
        let in_range = batch
            .outputs
            .last()
            .is_none_or(|&row| (row as usize) < rows);
        if next != rows || !ascending || !in_range {
            return refuse("spans and outputs do not fit its rows");
        }
        Ok(())
    }
}

fn product<'a>(linear: &'a Linear, out: &'a mut [f32]) -> Product<'a> {
    Product {
        matrix: &linear.matrix,
        out,
    }
}
