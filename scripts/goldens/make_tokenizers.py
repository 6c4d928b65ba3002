"""Trains two tiny tokenizers and writes what Hugging Face makes of tricky texts.

    make_tokenizers.py OUT

OUT/byte-level and OUT/sentencepiece each get `tokenizer.json`, `vocab.gguf` (the same vocabulary as GGUF metadata) and
`ids.json`: for every text the ids with special tokens added and the decoded text. OUT/byte-level/split-rules.json has the ids of the
same texts under other models' rules for cutting text into words.
"""

import json
import sys
from pathlib import Path

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. ",
    "A model reads tokens and writes the next token; a draft guesses, the target checks. ",
    "def add(a, b):\n    return a + b\n",
    '{"name": "value", "number": 123, "list": [1, 2, 3]}\n',
    "Ünïcödé, naïve café, 東京 and Москва are here. ",
] * 8
TEXTS = [
    "", " ", "  ", "   leading", "trailing   ", "\n", "\n\n\n", "\t tab", "a", "Hello, world!", " Hello", "hello  world",
    "The quick brown fox", "don't we'll I'M they'RE", "1234567890", "3.14159 and 1,000,000", "x=1;y=22;z=333",
    "def add(a, b):\n    return a + b\n", '{"name": "value"}', "naïve café", "e\u0301 and \u00e9", "東京", "Москва", "😀",
    "👩‍👩‍👧‍👦 family", "\u200bzero width", "\u00a0nbsp", "a\u0000b", "\ufffd", "tokens.tokens.tokens", "<|im_start|>user\nhi<|im_end|>",
    "a<|im_end|>b", "<|im_end|> spaced", "<s>text</s>", "</s> after", "<0x0A>", "▁already▁marked", "CamelCaseWords", "snake_case_words",
    "line one\nline two\r\nline three", "ÀÉÎÕÜ", "ｆｕｌｌｗｉｄｔｈ", "🇩🇪 flag", "mixed 東京abc123Москва", "!!!???...", "  \n  \n  ",
]
BYTE_LEVEL_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 288
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
# How models cut text into words, under the names that GGUF files give these rules.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=BYTE_LEVEL_SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def split_rules(out):
    """Ids of the same byte-level vocabulary under the splitting rules of several models."""
    isolated = lambda regex: pre_tokenizers.Split(Regex(regex), "isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rules = {
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "llama-bpe": pre_tokenizers.Sequence([isolated(WORDS.replace("DIGITS", r"\p{N}{1,3}")), plain]),
        "qwen2": pre_tokenizers.Sequence([isolated(WORDS.replace("DIGITS", r"\p{N}")), plain]),
    }
    ids = {}
    for name, rule in rules.items():
        tokenizer = byte_level()
        tokenizer.pre_tokenizer = rule
        ids[name] = [tokenizer.encode(text).ids for text in TEXTS]
    (out / "split-rules.json").write_text(json.dumps(ids))


def sentencepiece():
    """A vocabulary with scores, and merges derived from them as transformers' converter does."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=240, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    joined = ["".join(merge) for merge in learned["merges"]]
    letters = [token for token in learned["vocab"] if token not in set(joined)]
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + joined + letters
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(joined) + len(letters))]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab, merges_by_score(vocab, dict(zip(pieces, scores))), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")])
    return tokenizer, pieces, scores


def merges_by_score(vocab, scores):
    merges = []
    for piece, score in scores.items():
        cuts = [(piece[:at], piece[at:], score) for at in range(1, len(piece))]
        cuts = [cut for cut in cuts if cut[0] in vocab and cut[1] in vocab]
        merges += sorted(cuts, key=lambda cut: (vocab[cut[0]], vocab[cut[1]]))
    merges.sort(key=lambda merge: (merge[2], len(merge[0]), len(merge[1])), reverse=True)
    return [(left, right) for left, right, _ in merges]


def write(folder, tokenizer, describe):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    (folder / "ids.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0))
    writer = gguf.GGUFWriter(str(folder / "vocab.gguf"), "llama")
    describe(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe_byte_level(writer, tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in BYTE_LEVEL_SPECIALS else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)


def describe_sentencepiece(writer, pieces, scores):
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types([UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(pieces) - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)


def main():
    out = Path(sys.argv[1])
    tokenizer = byte_level()
    write(out / "byte-level", tokenizer, lambda writer: describe_byte_level(writer, tokenizer))
    split_rules(out / "byte-level")
    tokenizer, pieces, scores = sentencepiece()
    write(out / "sentencepiece", tokenizer, lambda writer: describe_sentencepiece(writer, pieces, scores))


if __name__ == "__main__":
    main()
