"""Turns a GGUF file back into a Hugging Face folder, so that transformers and vLLM serve the very same weights.

    python -m training.to_hf forespeak-target.gguf FOLDER

The matrices are the dequantised Q8_0 ones, in f32: nothing is lost, and nothing is better than what the GGUF file holds.
"""
import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .model import CONTEXT
from .tokenizer import END_OF_TEXT, END_OF_TEXT_ID, IM_END, IM_END_ID, PAD, PAD_ID, SPECIALS, SPLIT
from .weights import field, read_gguf


def tokenizer_from(reader):
    tokens, merges = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.merges")
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    return tok


def config(shape, reader):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_width, "vocab_size": shape.vocab, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": float(field(reader, "llama.attention.layer_norm_rms_epsilon")), "rope_theta": float(field(reader, "llama.rope.freq_base")),
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
        "bos_token_id": END_OF_TEXT_ID, "eos_token_id": IM_END_ID, "pad_token_id": PAD_ID}


def hf_state(state):
    """Our flat names in transformers' nesting."""
    out = {}
    for name, weight in state.items():
        part = name.split(".")[-2]
        if part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            name = name.replace(part, f"self_attn.{part}")
        if part in ("gate_proj", "up_proj", "down_proj"):
            name = name.replace(part, f"mlp.{part}")
        out["model." + name] = weight.contiguous()
    return out


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def convert(gguf_path, folder):
    shape, state, reader = read_gguf(gguf_path)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(hf_state(state), str(folder / "model.safetensors"), metadata={"format": "pt"})
    write_json(folder / "config.json", config(shape, reader))
    # A raw continuation ends with the page, an answer with the turn.
    write_json(folder / "generation_config.json", {"bos_token_id": END_OF_TEXT_ID, "eos_token_id": [IM_END_ID, END_OF_TEXT_ID], "pad_token_id": PAD_ID})
    tokenizer_from(reader).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END_OF_TEXT, "eos_token": IM_END, "pad_token": PAD, "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT, "chat_template": field(reader, "tokenizer.chat_template")})


def main():
    convert(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
