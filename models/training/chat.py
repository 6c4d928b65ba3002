"""Conversations made from the pages: a question from a title or heading, the answer from the text that stands under it.

Nothing is invented here: every answer about the domain is a passage of a page. Small talk is in `smalltalk.py`.
"""
import re

from . import smalltalk
from .clean import HEADING, split_code

MAX_ANSWER_CHARS = 900
MIN_ANSWER_CHARS = 60
# Openings that speak about the page instead of its subject.
ABOUT_THE_PAGE = re.compile(
    r"(?i)^(this (article|topic|page|section|tutorial|document|guide|quickstart|walkthrough|post|blog|chapter|module|reference|sample|example)|"
    r"in this (article|topic|page|section|tutorial|guide|quickstart|post|blog|chapter|walkthrough)|the following|learn (how|about|more)|see (the|also)|"
    r"for more information|for information|describes how|today|we('re| are)|you can find|note:|author)")
# Headings that mean nothing without their page.
STOCK_HEADING = re.compile(
    r"(?i)^(syntax|remarks|examples?( \w+)?|arguments|permissions|parameters|return (value|code values|types?)|requirements|details|options|"
    r"prerequisites|inputs|outputs|notes|synopsis|description|properties|methods|overview|introduction|before you begin|attributes.*|"
    r"child elements|parent elements|cause|explanation|user action|message|version introduced|affected apis|members|result sets?|"
    r"new behavior|previous behavior|old behavior|reason for change|recommended action|exceptions|schema|parts|summary|conclusion|"
    r"background|limitations( and restrictions)?|security|none|details|usage|applies to|column name.*|step \d.*|type of breaking change|"
    r"when to suppress warnings|how to fix violations|rule description|suppress a warning|change category|.*cli|related.*)$")
VERB = re.compile(
    r"(?i)^(add|access|allow|apply|assign|attach|back up|build|call|change|check|choose|clean|clear|collect|compare|configure|connect|control|convert|"
    r"copy|create|customize|debug|declare|define|delete|deploy|design|detach|determine|disable|display|download|edit|enable|encrypt|enforce|"
    r"execute|export|expose|extend|filter|find|fix|generate|get|grant|handle|host|implement|import|improve|inspect|install|integrate|invoke|"
    r"join|launch|limit|list|load|make|manage|map|migrate|modify|monitor|move|open|optimize|parse|pass|perform|prepare|prevent|protect|publish|"
    r"query|read|rebuild|recover|reduce|refactor|register|remove|rename|replace|resolve|restart|restore|restrict|retrieve|return|review|rotate|run|"
    r"save|scale|schedule|search|secure|select|send|serialize|set|set up|share|show|shrink|sort|specify|start|stop|store|switch|test|track|"
    r"troubleshoot|turn|uninstall|update|upgrade|use|validate|verify|view|work with|write)\s+\S")
GERUNDS = {"using": "use", "creating": "create", "adding": "add", "configuring": "configure", "managing": "manage", "enabling": "enable",
           "setting up": "set up", "setting": "set", "writing": "write", "running": "run", "installing": "install", "removing": "remove",
           "deleting": "delete", "changing": "change", "building": "build", "testing": "test", "viewing": "view", "working with": "work with",
           "customizing": "customize", "troubleshooting": "troubleshoot", "deploying": "deploy", "upgrading": "upgrade", "migrating": "migrate",
           "defining": "define", "specifying": "specify", "disabling": "disable", "updating": "update", "reviewing": "review",
           "connecting to": "connect to", "monitoring": "monitor", "securing": "secure", "publishing": "publish", "debugging": "debug"}
GERUND = re.compile(r"(?i)^(" + "|".join(GERUNDS) + r")\s+")
DOMAIN = {"kubernetes/website": "Kubernetes", "MicrosoftDocs/sql-docs": "SQL Server", "github/docs": "GitHub", "prometheus/docs": "Prometheus",
          "MicrosoftDocs/PowerShell-Docs": "PowerShell", "dotnet/AspNetCore.Docs": "ASP.NET Core", "rust-lang/book": "Rust",
          "rust-lang/reference": "Rust", "dotnet/docs": ".NET"}
# Pages that define one term each, in one or two good sentences: seen more often than the rest.
GLOSSARY = "content/en/docs/reference/glossary/"
GLOSSARY_COPIES = 6
KUBERNETES_CONCEPT = "content/en/docs/concepts/"
CONCEPTS = re.compile(r"kubernetes/website:content/en/docs/concepts/|rust-lang/book:|prometheus/docs:docs/|dotnet/docs:docs/(csharp|standard)/")
CONCEPT_COPIES = 3
# What a reader asks next.
ASK_EXAMPLE = ["Can you show an example?", "Show me an example.", "What does that look like in practice?", "Do you have an example?", "An example, please."]
ASK_MORE = ["Tell me more.", "Can you say more about that?", "Go on.", "What else should I know?", "More details, please."]
GREETINGS = ["Hi! ", "Hello. ", "Hey, ", "Good morning. ", "Thanks. "]


def topic(title):
    """The subject of a title: without product suffixes, colons that only announce a kind of page, or final marks."""
    t = re.sub(r"^(?i:tutorial|quickstart|how to|walkthrough|breaking change|sample|lesson \d+|step \d+|overview of|introduction to|about|understanding|get started with)\b:?\s+", "", title)
    t = re.sub(r"\s*\((Transact-SQL|SSIS|SSRS|SSAS|Report Builder.*|SQL Server.*|\w+ToSQL|Database Engine|MDX|DMX|Azure.*|C#.*|Visual Basic)\)\s*", " ", t)
    t = re.sub(r"\s+[|-]\s+.*$|\s+in (SQL Server|Kubernetes|\.NET|GitHub|PowerShell|Rust|ASP\.NET Core)$|\s+overview$", "", t)
    return t.strip().rstrip(".?!:")


def lower_first(text):
    """Lower case for the first letter, unless the first word is a name or an abbreviation."""
    word = text.split(" ", 1)[0]
    return text if not word[1:].islower() else text[0].lower() + text[1:]


def article_for(term):
    return "an" if term[:1].lower() in "aeiou" else "a"


def task_in(title):
    """The task a title names, as an infinitive, or None."""
    t = re.sub(r"(?i)^(how to:?|tutorial:|quickstart:|walkthrough:|to)\s+", "", title).rstrip(".?!:")
    gerund = GERUND.match(t)
    if gerund:
        return GERUNDS[gerund.group(1).lower()] + " " + t[gerund.end():]
    return lower_first(t) if VERB.match(t) else None


def question(title, repository, rng):
    """One of many ways to ask for what a title promises."""
    if title.rstrip().endswith("?"):
        return title
    domain = DOMAIN[repository]
    task = task_in(title)
    where = f" in {domain}" if rng.random() < 0.4 and domain.lower() not in title.lower() else ""
    if task:
        forms = ["How do I {}{}?", "How can I {}{}?", "How to {}{}?", "What's the way to {}{}?", "Explain how to {}{}.", "I want to {}{}. How?", "Show me how to {}{}."]
        return rng.choice(forms).format(task, where)
    if re.fullmatch(r"[A-Z]\w+-[A-Z]\w+", title):
        return rng.choice(["What does {} do?", "What does the {} cmdlet do?", "What is {} for?", "Explain {}.", "How do I use {} in PowerShell?"]).format(title)
    name = topic(title)
    is_or_are = "are" if is_plural(name) else "is"
    forms = [f"What {is_or_are} {{}}{{}}?"] * 2 + ["Explain {}{}.", "Tell me about {}{}.", "What should I know about {}{}?", "Describe {}{}.", "What does {} mean{}?", "{}{}?"]
    return rng.choice(forms).format(name, where)


def is_plural(name):
    return bool(re.search(r"[a-z](?<![suis])s$", name))


def glossary_question(term, rng):
    a = article_for(term)
    bare = [f"What is {term}?", f"What does {term} mean?", f"Explain {term}.", f"Define {term}.", f"What is {term} in Kubernetes?"]
    counted = [f"What is {a} {term}?", f"What is a Kubernetes {term}?", f"What is {a} {term} in Kubernetes?", f"Explain what {a} {term} is.",
               f"Tell me what a Kubernetes {term} is.", f"What's {a} {term}?", f"In Kubernetes, what is {a} {term}?", f"what is a kubernetes {term.lower()}"]
    return rng.choice(bare + counted * 2)


def is_prose(paragraph):
    return len(paragraph) > 20 and not re.match(r"\s*(#|>|\||```|<|:|!|\[|\d+[.)]\s|[-*+]\s)", paragraph)


def is_list(paragraph):
    return bool(re.match(r"\s*([-*]|\d+[.)])\s", paragraph))


def whole_sentences(text, limit):
    """The text, or as many of its sentences as fit."""
    if len(text) <= limit:
        return text
    end = max(text.rfind(mark, 0, limit) for mark in (". ", ".\n", "? ", "! "))
    return text[:end + 1] if end > MIN_ANSWER_CHARS else ""


def passage(paragraphs, limit=MAX_ANSWER_CHARS, most=3):
    """The opening paragraphs that speak about the subject; a list goes along with the sentence that announces it."""
    out, size = [], 0
    for i, p in enumerate(paragraphs):
        announced = out and out[-1].endswith(":")
        if announced and (is_list(p) or p.startswith("```")) and size + len(p) <= limit:
            out.append(p)
            size += len(p)
            continue
        if announced:
            out.pop()  # what it announced is not here
        if not is_prose(p) or ABOUT_THE_PAGE.match(p) or re.search(r"(shown|figure|diagram|image|screenshot|see the next) ", p.lower()):
            if out:
                break
            continue
        p = whole_sentences(p, limit - size)
        if not p or len(out) >= most:
            break
        out.append(p)
        size += len(p)
    if out and out[-1].endswith(":"):
        out.pop()
    return "\n\n".join(out)


def sections(text):
    """(heading, paragraphs) of a page; the first heading is the title. Code blocks are paragraphs of their own."""
    found = [("", [])]
    for is_code, lines in split_code(text):
        if is_code:
            found[-1][1].append("\n".join(lines))
            continue
        paragraph = []
        for line in lines + [""]:
            heading = HEADING.match(line)
            if (heading or not line.strip()) and paragraph:
                found[-1][1].append("\n".join(paragraph))
                paragraph = []
            if heading:
                found.append((re.sub(r"[`*]", "", heading.group(2)), []))
            elif line.strip():
                paragraph.append(line)
    return found


def opening_answer(page, parts):
    """What the page says first about its subject; its description leads when the text does not repeat it."""
    first = next((ps for _, ps in parts if any(is_prose(p) for p in ps)), [])
    body = passage(first, limit=700)
    description = page["description"] if not ABOUT_THE_PAGE.match(page["description"]) else ""
    if description and description != page["title"] and description.endswith(".") and description[:40] not in body and len(body) < 200:
        return f"{description}\n\n{body}".strip()
    return body


def example_in(parts):
    """The first code block of the page that is short enough to quote, with the sentence before it."""
    for _, paragraphs in parts:
        for before, code in zip(paragraphs, paragraphs[1:]):
            if code.startswith("```") and len(code) < 700 and is_prose(before) and before.endswith(":") and len(before) < 300:
                return f"{before}\n\n{code}"
    return None


def conversations(page, rng):
    """Question and answer turns from one page: its subject, then perhaps a follow-up; and its sections on their own."""
    repository = page["source"].split(":")[0]
    parts = sections(page["text"])
    opening = opening_answer(page, parts)
    titled = page["title"] and len(page["title"]) < 90
    usable = [(h, passage(ps, limit=600)) for h, ps in parts[1:] if h and not STOCK_HEADING.match(h) and len(h) < 80 and h != page["title"]]
    usable = [(h, a) for h, a in usable if len(a) >= MIN_ANSWER_CHARS]
    out = []
    if titled and len(opening) >= MIN_ANSWER_CHARS:
        glossary = GLOSSARY in page["source"]
        copies = GLOSSARY_COPIES if glossary else CONCEPT_COPIES if CONCEPTS.match(page["source"]) else 1
        for _ in range(copies):
            term = page["title"][:-1] if is_plural(page["title"]) else page["title"]
            defines = glossary or (KUBERNETES_CONCEPT in page["source"] and not task_in(term) and rng.random() < 0.5)
            asked = glossary_question(term, rng) if defines else question(page["title"], repository, rng)
            turns = [(greeted(asked, rng), opening)] + follow_up(parts, usable, rng)
            out.append(turns)
    for heading, answer in rng.sample(usable, min(2, len(usable))):
        asked = question(heading, repository, rng)
        # Most headings lean on their page: name it, as a person would.
        if not heading.endswith("?") and topic(page["title"]).lower() not in heading.lower() and rng.random() < 0.7:
            asked = asked.rstrip("?.") + f" ({topic(page['title'])})" + asked[-1]
        out.append([(asked, answer)])
    return out


def greeted(asked, rng):
    if rng.random() < 0.04:
        return rng.choice(GREETINGS) + asked
    return asked.lower().rstrip("?.") if rng.random() < 0.06 else asked


def follow_up(parts, usable, rng):
    """At most two more turns that lean on the first."""
    turns, draw = [], rng.random()
    example = example_in(parts)
    if example and draw < 0.25:
        turns.append((rng.choice(ASK_EXAMPLE), example))
    elif usable and draw < 0.5:
        heading, answer = rng.choice(usable[:4])
        task = task_in(heading)
        asked = f"How do I {task}?" if task else rng.choice(["And what about {}?", "What about {}?", "Tell me about {}.", "And {}?"]).format(lower_first(heading.rstrip("?")))
        turns.append((rng.choice(ASK_MORE) if draw < 0.32 else asked, answer))
    if turns and rng.random() < 0.15:
        turns.append(smalltalk.thanks(rng))
    return turns


def render(turns, system=None):
    """The chat template, written out; one string per piece, with whether the model is to learn it."""
    pieces = [(f"<|im_start|>system\n{system}<|im_end|>\n", False)] if system else []
    for asked, answered in turns:
        pieces.append((f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n", False))
        pieces.append((f"{answered}<|im_end|>", True))
        pieces.append(("\n", False))
    return pieces


def all_conversations(pages, rng):
    """Everything the chat tuning sees, shuffled; a few with a system message, which changes nothing but must not confuse."""
    found = [c for page in pages for c in conversations(page, rng)]
    found += smalltalk.conversations(found, rng)
    rng.shuffle(found)
    return [render(c, rng.choice(smalltalk.SYSTEM) if rng.random() < 0.1 else None) for c in found]
