//! Merges of a SentencePiece vocabulary that stores only scores.
//!
//! SentencePiece joins the neighbours whose joint piece has the best score. Written as BPE merges:
//! every way to cut a piece into two known pieces is a merge, better scores first, then longer left
//! parts. This is the order in which transformers converts such vocabularies.

use std::collections::HashMap;

/// Pieces longer than this cannot be reached by merges. Real ones end at some dozens of characters;
/// the bound keeps the quadratic search for cuts small on a hostile vocabulary.
const MAX_PIECE_CHARS: usize = 256;

pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) score: f32,
}

pub(super) fn merges(pieces: &[Piece<'_>], ids: &HashMap<&str, u32>) -> Vec<(String, String)> {
    struct Merge<'a> {
        left: &'a str,
        right: &'a str,
        score: f32,
        left_chars: usize,
        right_chars: usize,
    }
    let mut merges = Vec::new();
    for piece in pieces {
        let chars = piece.text.chars().count();
        if chars > MAX_PIECE_CHARS {
            continue;
        }
        let mut cuts: Vec<(u32, u32, Merge<'_>)> = Vec::new();
        for (left_chars, (index, _)) in piece.text.char_indices().enumerate().skip(1) {
            let (left, right) = piece.text.split_at(index);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                let merge = Merge {
                    left,
                    right,
                    score: piece.score,
                    left_chars,
                    right_chars: chars - left_chars,
                };
                cuts.push((left_id, right_id, merge));
            }
        }
        cuts.sort_by_key(|(left, right, _)| (*left, *right));
        merges.extend(cuts.into_iter().map(|(_, _, merge)| merge));
    }
    merges.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(b.left_chars.cmp(&a.left_chars))
            .then(b.right_chars.cmp(&a.right_chars))
    });
    merges
        .into_iter()
        .map(|merge| (merge.left.to_owned(), merge.right.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_merge_first_and_all_cuts_count() {
        let texts = ["a", "b", "c", "ab", "bc", "abc"];
        let ids = texts
            .iter()
            .zip(0..)
            .map(|(text, id)| (*text, id))
            .collect();
        let piece = |text, score| Piece { text, score };
        let pieces = [piece("ab", -2.0), piece("bc", -1.0), piece("abc", -3.0)];
        let merges = merges(&pieces, &ids);
        let shown: Vec<String> = merges.iter().map(|(l, r)| format!("{l}+{r}")).collect();
        assert_eq!(shown, ["b+c", "a+b", "ab+c", "a+bc"]);
    }
}
