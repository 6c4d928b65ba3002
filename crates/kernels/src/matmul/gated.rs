//! The first half of a feed-forward part.

use super::Scratch;
use super::cuts::{Cuts, PanelSet};
use super::input::Input;
use super::panel::{Piece, Sums};
use crate::activations::{Activations, Encodings, Tiling};
use crate::compute::Compute;
use crate::matrix::Matrix;
use crate::silu::silu_mul;

/// Computes `silu(input * gate^T) * (input * up^T)`, and leaves it as `down` is multiplied with. A panel has as many
/// outputs as a block of activations, so whoever computed a panel encodes it.
///
/// # Panics
/// If the shapes do not fit.
pub fn gated(
    compute: &Compute,
    scratch: &mut Scratch,
    input: Input<'_>,
    m: usize,
    [gate, up, down]: [&Matrix; 3],
    out: &mut Activations,
) {
    let (rows, cols) = (gate.rows(), gate.cols());
    assert!(
        up.rows() == rows && up.cols() == cols && down.cols() == rows,
        "gate, up and down do not belong together"
    );
    assert!(m > 0, "there is nothing to multiply with");
    let tier = compute.tier();
    let tiling = Tiling::new(tier, m);
    let encodings = Encodings::for_weights([gate.format(), up.format()].into_iter());
    let input = input.prepare(compute, &mut scratch.activations, tiling, cols, encodings);
    let encodings = Encodings::for_weights(std::iter::once(down.format()));
    let writer = out.begin(tier, tiling, rows, encodings);
    let panels = std::iter::once(PanelSet::of(&[gate, up]));
    Cuts::new(compute, tiling, panels).run(compute, |_, panels, strip| {
        let weights = gate.panels_from(panels.start, panels.len());
        input.with(tier, weights.as_ptr(), |activations| {
            let (mut gates, mut ups) = (Sums::new(), Sums::new());
            let piece = |matrix| Piece {
                tier,
                activations,
                matrix,
                panels: panels.clone(),
                strip,
            };
            let (gate, up) = (piece(gate), piece(up));
            let first = gate.first_output();
            let (gates, ups) = (gates.multiply(&gate), ups.multiply(&up));
            for (row, (gate, up)) in strip.rows().zip(gates.zip(ups)) {
                let len = (rows - first).min(gate.len());
                // SAFETY: each piece of work writes its own part of its own rows; the machine has the tier.
                unsafe {
                    silu_mul(tier, gate, up);
                    writer.write(row, first, &gate[..len]);
                }
            }
        });
    });
}
