"""Records how Hugging Face's tokenizer splits strings that tokenizers like to disagree on.

    python -m training.golden_cases tokenizer.json goldens/tokenizer.json
"""
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

CASES = [
    "", " ", "  ", "\n", "\n\n", " \n ", "\t", "\t\tx", "a", " a", "  a", "a  ", "a\n", "a \n b", "Hello, world!", "don't I'LL we've it's THEY'RE 'quoted'",
    "12345", "3.14159", "1,000,000", "x2y3", "v1.29.0", "٣٤٥ ½ ² Ⅷ", "café", "cafe\u0301", "naïve façade Ångström", "Übergrößenträger", "Привет, мир", "你好，世界", "日本語のテキスト",
    "한국어", "مرحبا بالعالم", "שלום עולם", "नमस्ते", "😀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "a\u00a0b", "a\u2003b", "zero\u200bwidth", "\ufeffbom", "line\r\nbreak\r\n", "a\r\rb",
    "fn main() {\n    println!(\"{}\", 1 + 2);\n}\n", "def f(x):\n\treturn x**2  # square\n", "SELECT * FROM [dbo].[Table] WHERE id <> 42;", "kubectl get pods -n kube-system --watch",
    "| a | b |\n|---|---|\n| 1 | 2 |", "```yaml\nkind: Pod\nmetadata:\n  name: nginx\n```", "https://example.com/a?b=c&d=%20#e", "C:\\Program Files\\x.exe", "!!! ??? ... --- ***",
    "        eight spaces", "trailing spaces   \n   leading", "camelCaseAndPascalCase snake_case kebab-case", "\u0000\u0001\u007f", "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "<|im_start", "<|pad|><|pad|>",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "a" * 40, "=" * 50, "  \n\n\n   \n x", "ﬁ ligature ﬀ", "‘single’ “double” – — …",
]


def main():
    tok = Tokenizer.from_file(sys.argv[1])
    cases = [{"text": c, "ids": tok.encode(c, add_special_tokens=False).ids} for c in CASES]
    Path(sys.argv[2]).write_text(json.dumps(cases, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
