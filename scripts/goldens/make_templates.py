"""Renders a template that uses every idiom of the wild with transformers' own renderer.

    make_templates.py OUT

Reads OUT/templates/*.jinja and writes beside each a JSON file of conversations with the prompts that transformers makes of them.
"""

import json
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather in a <city> & its 'surroundings', ü",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
            "required": ["city"],
        },
    },
}
CALL = {"type": "function", "id": "1", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "exact": True, "x": None}}}
SYSTEM = {"role": "system", "content": "  Be brief.\n"}
USER = {"role": "user", "content": "Hi\r\nthere"}
CASES = [
    {"messages": [USER], "add_generation_prompt": True},
    {"messages": [SYSTEM, USER], "add_generation_prompt": False},
    {"messages": [SYSTEM, USER], "add_generation_prompt": True, "arguments": {"enable_thinking": False, "date_string": "1 May 2026"}},
    {
        "messages": [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nLet me look.", "tool_calls": [CALL]},
            {"role": "tool", "content": "12 °C"},
            {"role": "tool", "content": "13 °C"},
            {"role": "note", "content": "skipped"},
            {"role": "assistant", "content": "It is cold."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [TOOL],
        "add_generation_prompt": True,
    },
]


def main():
    for path in sorted((Path(sys.argv[1]) / "templates").glob("*.jinja")):
        cases = []
        for case in CASES:
            rendered, _ = render_jinja_template(
                [case["messages"]],
                tools=case.get("tools"),
                chat_template=path.read_text(),
                add_generation_prompt=case["add_generation_prompt"],
                bos_token="<s>",
                eos_token="</s>",
                **case.get("arguments", {}),
            )
            cases.append({**case, "prompt": rendered[0]})
        path.with_suffix(".json").write_text(json.dumps(cases, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
