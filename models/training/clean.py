"""Turns raw documentation pages into text worth learning from.

A small model spends its few parameters on whatever is frequent, and in documentation the most frequent lines are page
furniture: include markers, image directives, "See also" link lists, table rulers. All of that goes. Two sources
(Kubernetes, GitHub) have lost their template variables on the way into the corpus, which leaves holes in the middle of
sentences ("Pods are managed by a ."); such a sentence is dropped as a whole, because half a sentence teaches nonsense.

    python -m training.clean CORPUS.jsonl.xz PAGES.jsonl.xz
"""
import hashlib
import json
import lzma
import re
import sys
import unicodedata

# Template variables were cut out of these, so sentences can have holes.
HOLED = ("kubernetes/website", "github/docs")
# These break lines at a fixed column; the breaks mean nothing.
HARD_WRAPPED = ("kubernetes/website", "prometheus/docs", "rust-lang/book", "rust-lang/reference", "MicrosoftDocs/PowerShell-Docs")
# Sections that are lists of links, whose targets are gone.
LINK_SECTIONS = re.compile(
    r"(?i)^(see also|related (content|links|sections|tasks|articles|topics|information|reading)|next steps?|further reading|"
    r"additional resources|learn more|what'?s next\??|in this section|external resources|references?|in this topic)$")
MIN_CHARS = 80

FENCE = re.compile(r"^[\s>]*(```|~~~)")
TAGS = re.compile(
    r"(?i)</?(div|span|a|br|p|table|thead|tbody|tr|td|th|ul|ol|li|img|sup|sub|b|i|em|strong|details|summary|colgroup|col|h[1-6]|"
    r"figure|figcaption|video|iframe|hr|dl|dt|dd|blockquote|pre|kbd|center|font|listing|section|picture|source|nobr)\b[^<>]*>")
CODE_TAG = re.compile(r"(?i)<code>(.*?)</code>")
COMMENT = re.compile(r"<!--.*?-->", re.S)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?:[^()]|\([^()]*\))*\)")
XREF = re.compile(r"<xref:([^>?#]+)[^>]*>")
DIRECTIVE_INLINE = re.compile(r":::(?:image|code)\b.*?:::|:::no-loc text=\"([^\"]*)\":::")
FURNITURE_LINE = re.compile(
    r"(?i)^[\s>*-]*(:::.*|\[?!code-.*|\[?!(include|video|div|tab).*|r\[[\w.\-]+\]|\[/?!?include.*|\*\*applies to:?\*\*.*|applies to:.*|"
    r"view or download sample code.*|transact-sql syntax conventions|(\*\*)?this (article|topic) applies to:?.*|"
    r"by \[?[A-Z][\w.'-]+ [A-Z][\w.'-]+\]?((,| and) .{3,60})*|\{\{.*\}\}|\{%.*%\}|back to top|\[top\]|---+|\*\*\*+|___+|[-*])\s*$")
ALERT = re.compile(r"^([\s>]*)\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*", re.I)
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
LIST_ITEM = re.compile(r"^(\s*)([-*+]|\d+[.)])\s+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*_\"“(\[0-9])")
REFERENCE_LINK = re.compile(r"\[([^\[\]]+)\](?:\[[^\[\]]*\])?")
HOLE = re.compile(r"\S {2,}\S|\s[.,;:!?)]+(?:\s|$)|\(\s|^[.,;:)]|\b(?:a|an|the|of|to|by|in|on|with|using|your|for)[.,;:]?$|AUTOTITLE|\"\"|\*{4}|''")


def split_code(text):
    """Yields (is_code, lines): fenced blocks whole, fences included, and the prose between them."""
    block, inside = [], False
    for line in text.split("\n"):
        if FENCE.match(line):
            if inside:
                yield True, block + [line]
                block, inside = [], False
                continue
            if block:
                yield False, block
            block, inside = [line], True
            continue
        block.append(line)
    if block:
        yield inside, block


def clean_line(line):
    """One prose line without markup that only a renderer understands; None when nothing is left that was worth keeping."""
    if not line.strip():
        return ""
    line = DIRECTIVE_INLINE.sub(lambda m: m.group(1) or "", line)
    line = ALERT.sub(lambda m: f"{m.group(1)}{m.group(2).capitalize()}: ", line)
    line = CODE_TAG.sub(r"`\1`", line)
    line = TAGS.sub("", line)
    line = XREF.sub(lambda m: "`" + m.group(1).split(".")[-1] + "`", line)
    line = LINK.sub(r"\1", line)
    line = re.sub(r"\s*\{#[\w.-]+\}", "", line)
    line = re.sub(r"\\([<>_#\[\]~|])", r"\1", line)
    line = re.sub(r"\s*\\$", "", line)
    if line.lstrip().startswith("|"):
        return table_row(line)
    if FURNITURE_LINE.match(line) or not line.strip(" >*-:"):
        return None
    indent = re.match(r"\s*", line).group()
    body = line.strip()
    item = LIST_ITEM.match(line)
    if item:
        marker = "-" if item.group(2) in "*+-" else item.group(2)
        return f"{indent}{marker} {line[item.end():].lstrip()}"
    # A space at the end is the trace of a lost variable, too.
    return indent + re.sub(r"^(>|#+) {2,}", r"\1 ", body) + (" " if line.endswith(" ") else "")


def table_row(line):
    """A table row without padding; rulers are kept short, one per column."""
    cells = [re.sub(r"\s+", " ", c.strip()) for c in line.strip().strip("|").split("|")]
    if all(re.fullmatch(r":?-*:?", c) for c in cells):
        return "|" + "---|" * len(cells)
    return "| " + " | ".join(cells) + " |"


def is_plain(line):
    """Whether a line is running text: no heading, quote, table or list item starts here."""
    return bool(line.strip()) and not re.match(r"\s*(#{1,6}\s|>|\||([-*+]|\d+[.)])\s)", line)


def unwrap(lines):
    """Joins lines that were broken at a fixed column."""
    out = []
    for line in lines:
        previous = out[-1] if out else ""
        continues = is_plain(line) and previous.strip() and not previous.lstrip().startswith(("#", "|"))
        quoted = line.startswith("> ") and previous.startswith("> ") and is_plain(line[2:]) and is_plain(previous[2:])
        if quoted and not re.match(r"> (Note|Tip|Important|Warning|Caution|Example):?$", previous):
            out[-1] = previous + " " + line[2:]
        elif continues and not previous.startswith(">"):
            # A leading space in the middle of a paragraph is the trace of a lost variable: it must stay visible as a hole.
            out[-1] = previous + " " + (line if line.startswith(" ") and not line.startswith("  ") else line.strip())
        else:
            out.append(line)
    return out


def mend(lines):
    """Drops the sentences that have a hole where a template variable was."""
    out = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("|"):
            out.append(line)
            continue
        prefix = re.match(r"\s*(?:(?:[-*+]|\d+[.)]|>|#{1,6})\s+)*", line).group()
        body = line[len(prefix):]
        if body[:1].islower() and len(prefix) <= 1 and not (out and out[-1].strip()):
            body = "  x " + body  # a paragraph that begins in mid-sentence: its first sentence has lost its head
        kept = [s for s in SENTENCE_END.split(body) if not HOLE.search(s.strip("\n")) and not s.startswith("  x")]
        if kept and not re.search(r"[.!?:;`*)|\"”]$", kept[-1]) and len(prefix) <= 1 and len(kept[-1]) > 12:
            kept = kept[:-1]  # ended at a hole: the rest of the sentence stood after a blank line
        if kept:
            out.append(prefix + " ".join(kept))
    return out


def drop_link_sections(blocks):
    """Removes sections that hold nothing but links, and headings that are left with nothing under them."""
    kept, skip_level = [], 0
    for is_code, lines in blocks:
        if is_code:
            if not skip_level:
                kept.append((True, "\n".join(lines)))
            continue
        for line in lines:
            heading = HEADING.match(line)
            if heading:
                level = len(heading.group(1))
                if skip_level and level <= skip_level:
                    skip_level = 0
                if not skip_level and LINK_SECTIONS.match(heading.group(2).strip("* ")):
                    skip_level = level
            if not skip_level:
                kept.append((False, line))
    return drop_empty_headings(kept)


def drop_empty_headings(rows):
    out = []
    for is_code, line in reversed(rows):
        heading = None if is_code else HEADING.match(line)
        if heading:
            below = next((r for r in reversed(out) if r[0] or r[1].strip()), None)
            next_heading = below and not below[0] and HEADING.match(below[1])
            if below is None or (next_heading and len(next_heading.group(1)) <= len(heading.group(1))):
                continue
        out.append((is_code, line))
    return [line for _, line in reversed(out)]


def clean_text(text, source):
    repository = source.split(":")[0]
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ")
    text = re.sub("[\u200b-\u200f\ufeff\u2028\u2029]", "", text)
    blocks = []
    for is_code, lines in split_code(text):
        if not is_code:
            lines = COMMENT.sub("", "\n".join(lines)).split("\n")
            lines = [c for c in map(clean_line, lines) if c is not None]
            if repository.startswith("rust-lang/"):
                lines = [REFERENCE_LINK.sub(r"\1", l) for l in lines]
            if repository in HARD_WRAPPED:
                lines = unwrap(lines)
            if repository in HOLED:
                lines = mend(lines)
            lines = drop_empty_notes([tidy_spaces(l) for l in lines])
        blocks.append((is_code, [l.rstrip() for l in lines]))
    out = "\n".join(drop_link_sections(blocks))
    return re.sub(r"\n{3,}", "\n\n", out).strip()


def tidy_spaces(line):
    """Single spaces inside a line; one leading space is a habit of some editors, not an indent."""
    indent = re.match(r"\s*", line).group()
    return (indent if len(indent) > 1 else "") + re.sub(r" {2,}", " ", line.strip())


def drop_empty_notes(lines):
    """Removes "> Note:" where nothing was left to note, and the indent of a paragraph right under a heading."""
    out = []
    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else ""
        if re.match(r"\s*> (Note|Tip|Important|Warning|Caution):$", line) and not following.lstrip().startswith(">"):
            continue
        above = next((l for l in reversed(out) if l.strip()), "")
        out.append(line.strip() if HEADING.match(above) and is_plain(line) else line)
    return out


def clean_title(title, text, source):
    """The page's name: its own field, or its first heading, or for generated command pages the command."""
    title = title or next((m.group(2) for m in map(HEADING.match, text.split("\n")) if m), "")
    if title.lower() in ("synopsis", "name", ""):
        title = source.rsplit("/", 1)[-1].removesuffix(".md").replace("_", " ")
    title = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", title)
    return re.sub(r"\s+", " ", title.replace("`", "").replace("*", "")).strip()


def clean_description(description):
    """The page's one-line summary, or nothing when it says nothing."""
    if re.match(r"(?i)(learn (more )?about:|learn (how|about|more|what)|.*(\{%|\{\{))", description) or len(description) < 30:
        return ""
    return re.sub(r"\s+", " ", description).strip()


def clean_page(page):
    text = clean_text(page["text"], page["source"])
    title = clean_title(page["title"], text, page["source"])
    first = HEADING.match(text.split("\n", 1)[0])
    if first and (len(first.group(1)) == 1 or clean_title(first.group(2), "", "") == title):
        text = f"# {first.group(2)}" + text[first.end():]
    elif title:
        text = f"# {title}\n\n{text}"
    return {"source": page["source"], "title": title, "description": clean_description(page["description"]), "text": text}


def is_held_out(source):
    """One page in a hundred, chosen by its name, so that the choice survives reordering and additions."""
    return int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big") % 100 == 0


def pages_of(corpus):
    """Cleaned pages, without those that are nearly empty or that repeat another one."""
    seen = set()
    with lzma.open(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            page = clean_page(json.loads(line))
            digest = hashlib.sha256(page["text"].encode()).digest()
            if len(page["text"]) >= MIN_CHARS and digest not in seen:
                seen.add(digest)
                yield page


def main():
    corpus, target = sys.argv[1:3]
    count = size = 0
    with lzma.open(target, "wt", preset=5, encoding="utf-8") as out:
        for page in pages_of(corpus):
            out.write(json.dumps(page, ensure_ascii=False) + "\n")
            count, size = count + 1, size + len(page["text"].encode())
    print(f"{count} pages, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
