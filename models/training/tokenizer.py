"""Byte-level BPE with the pre-tokenizer that llama.cpp knows as "qwen2": every engine splits text the same way.

No normaliser: llama.cpp has none, so a tokenizer that normalised would disagree with it on decomposed accents.

    python -m training.tokenizer PAGES.jsonl.xz tokenizer.json
"""
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT, IM_START, IM_END, PAD = SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
END_OF_TEXT_ID, IM_START_ID, IM_END_ID, PAD_ID = range(4)
VOCAB = 8192
PRE_TOKENIZER = "qwen2"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Longer tokens are rulers and padding: they would take places that words need.
MAX_TOKEN_CHARS = 24


def train(texts):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_CHARS, show_progress=False))
    return tok


def main():
    from .data import read_pages
    pages, target = sys.argv[1:3]
    # Every third page holds the same words as all of them.
    train([p["text"] for p in read_pages(pages, held_out=False)[::3]]).save(target)


if __name__ == "__main__":
    main()
