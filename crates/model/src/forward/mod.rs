//! The forward pass: tokens in, logits out, keys and values kept.
//!
//! All arithmetic is row-wise and the kernels promise that a row's result does not depend on its
//! neighbours, so a step may mix prompts, decodes and drafts, and may leave out work that no wanted
//! row needs, without changing a bit of any result.

mod workspace;

use std::sync::Arc;

use kernels::{
    Attention, Compute, Input, KvCache, KvShape, KvType, Norm, Product, RopeTable, Turn, attend,
    gated, matmul, store_kv,
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
            self.attention_inputs(layer, batch.rows(), workspace, wanted);
            store_kv(
                &self.compute,
                cache,
                index,
                &workspace.rows,
                &batch.tables,
                self.turn(layer.k_norm.as_deref()),
                [&workspace.k, &workspace.v],
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
        m: usize,
        workspace: &mut Workspace,
        wanted: Option<&[u32]>,
    ) {
        let (compute, config) = (&*self.compute, &self.config);
        let Workspace {
            x,
            q,
            k,
            v,
            kept,
            scratch,
            ..
        } = workspace;
        let norm = self.norm(&layer.attention_norm);
        k.resize(m * config.kv_dim(), 0.0);
        v.resize(m * config.kv_dim(), 0.0);
        let mut keys_and_values = [product(&layer.k, k), product(&layer.v, v)];
        let input = Input::Normed(x, norm);
        if let Some(wanted) = wanted {
            matmul(compute, scratch, input, m, &mut keys_and_values);
            gather(x, config.dim, wanted, kept);
            q.resize(wanted.len() * config.q_dim(), 0.0);
            let queries = &mut [product(&layer.q, q)];
            let input = Input::Normed(kept, norm);
            matmul(compute, scratch, input, wanted.len(), queries);
        } else {
            q.resize(m * config.q_dim(), 0.0);
            let [keys, values] = keys_and_values;
            let all = &mut [product(&layer.q, q), keys, values];
            matmul(compute, scratch, input, m, all);
        }
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
            q,
            attended,
            scratch,
            rows,
            ..
        } = workspace;
        let attention = Attention {
            layer: index,
            heads: config.heads,
            turn: self.turn(layer.q_norm.as_deref()),
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            window: config.windows.get(index).copied().flatten(),
            rows,
            tables: &batch.tables,
        };
        attended.resize(q.len(), 0.0);
        attend(compute, scratch, cache, &attention, q, attended);
        let output = product(&layer.attention_output, x).added();
        let input = Input::Rows(attended);
        matmul(compute, scratch, input, rows.len(), &mut [output]);
    }

    fn feed_forward(&self, layer: &Layer, workspace: &mut Workspace) {
        let compute = &*self.compute;
        let Workspace {
            x, gates, scratch, ..
        } = workspace;
        let dim = self.config.dim;
        for part in x.chunks_mut(FEED_FORWARD_ROWS * dim) {
            let m = part.len() / dim;
            let input = Input::Normed(part, self.norm(&layer.feed_forward_norm));
            let matrices = [&layer.gate, &layer.up, &layer.down];
            gated(compute, scratch, input, m, matrices, gates);
            let down = Product::new(&layer.down, part).added();
            matmul(compute, scratch, Input::Encoded(gates), m, &mut [down]);
        }
    }

    fn logits(&self, batch: &Batch, workspace: &mut Workspace, logits: &mut Logits) {
        let wanted = batch.outputs.len();
        let out = logits.resize(wanted, self.config.vocab_size);
        let Workspace { x, scratch, .. } = workspace;
        let input = Input::Normed(x, self.norm(&self.weights.output_norm));
        let output = &mut [Product::new(&self.weights.output, out)];
        matmul(&self.compute, scratch, input, wanted, output);
    }

    fn norm<'a>(&self, weight: &'a [f32]) -> Norm<'a> {
        Norm {
            weight,
            eps: self.config.norm_eps,
        }
    }

    /// What happens to heads of queries or keys before they meet.
    fn turn<'a>(&'a self, norm: Option<&'a [f32]>) -> Turn<'a> {
        Turn {
            norm: norm.map(|weight| self.norm(weight)),
            table: &self.rotation,
        }
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
    Product::new(&linear.matrix, out).with_bias(linear.bias.as_deref())
}
