"""Conversations that ask for a given text again: the whole of it, or a part to be quoted.

No page asks for that, so a model of pages does not learn it. The passages are prose, lists, tables and code of the pages. Most are
changed (words replaced, sentences of several pages put together, words and numbers by chance), because what was read dozens of
times can be said by heart, and then nothing is learned about copying.
"""
import re

from . import smalltalk
from .chat import conversations, is_prose, render
from .clean import SENTENCE_END

# About 40 to 400 tokens.
SHORTEST, LONGEST = 160, 1600
WORD = re.compile(r"[A-Za-z]{3,}")
WHOLE = [
    "Repeat the following text.", "Repeat this text word for word:", "Copy this text word for word:", "Copy the text below exactly.", "Copy the following.",
    "Write out the passage below again.", "Write the following passage again, word for word.", "Please repeat this:", "Please copy this text.", "Repeat after me:",
    "Say this again:", "Correct nothing, return the text unchanged.", "Return this text unchanged:", "Return the following text exactly as it is.", "Echo this:",
    "Echo the text below.", "Reproduce the following text verbatim.", "Reproduce this passage exactly:", "Give me this text back without any change.",
    "Quote the following text in full.", "Quote this passage in full:", "Print the following text.", "Output the text below as it is.", "Type this out again:",
    "Rewrite the following without changing anything.", "Change nothing in this text and write it down:", "Can you repeat this text?", "Could you copy this passage for me?",
    "I need an exact copy of this text:", "Here is a text. Repeat it.", "Here is a passage. Copy it word for word.", "repeat this", "copy:", "Repeat:", "Copy this:",
    "Transcribe the following text.", "Write this text down once more:", "Duplicate this text:", "Keep every word and return this:", "Proofread nothing, only repeat:"]
AFTERWARDS = [
    "Repeat the text above.", "Copy the text above word for word.", "Write that text again.", "Repeat this text.", "Return the text above unchanged.", "Say it again, word for word.",
    "Quote all of it.", "Please repeat it exactly.", "Now write it out once more.", "Reproduce the passage above verbatim.", "Give it back unchanged."]
SENTENCES = [
    "Quote the first {} of this text.", "Quote the first {} of the following text:", "Copy only the first {}:", "Repeat the first {} of this passage.", "What are the first {} of this text?",
    "Summarise this text by quoting its first {}.", "Summarize the following by quoting its first {}:", "Give me the first {} of the text below.", "Write out the first {} and stop:"]
ONE_SENTENCE = [
    "Quote the first sentence of this text.", "Summarise this text by quoting its first sentence.", "Repeat only the first sentence:", "What does the first sentence say? Quote it.",
    "Summarize the passage with its first sentence, word for word.", "Copy the first sentence of the following text:"]
PARAGRAPHS = ["Quote the first {} of this text.", "Copy the first {} of the text below:", "Repeat the first {} of the following text.", "Write out the first {} again:",
              "Summarise this text by quoting its first {}."]
AGAIN = ["Repeat that word for word.", "Say that again.", "Repeat your answer.", "Could you repeat that exactly?", "Once more, please, word for word.", "Quote your last answer.", "again please"]
COUNTS = {1: ("one", "1"), 2: ("two", "2"), 3: ("three", "3"), 4: ("four", "4")}
# Wordings that training does not contain, for measuring.
UNSEEN = ["Please write the text below a second time, exactly as it stands.", "Give the following passage back to me, every word of it:",
          "Here is something to copy out. Do not leave anything out.", "Repeat what follows without alterations:"]
SEPARATORS = ["\n\n", "\n\n", "\n\n", "\n", " "]


def bounded(text, size):
    """The beginning of a text, of about so many characters, up to the end of a sentence or line, or else of a word."""
    if len(text) <= size:
        return text
    ends = [m.start() for m in re.finditer(r"(?<=[.!?:])\s|\n", text[:size + 1])]
    end = ends[-1] if ends and ends[-1] >= size // 2 else text.rfind(" ", 0, size)
    return text[:end if end > 0 else size].rstrip()


def size_drawn(rng):
    return int(SHORTEST * (LONGEST / SHORTEST) ** rng.random())


def excerpt(text, rng):
    """Some of a page, from the beginning of one of its paragraphs on."""
    starts = [0] + [m.end() for m in re.finditer(r"\n\n", text)]
    at, size = rng.choice(starts), size_drawn(rng)
    if len(text) - at < SHORTEST:
        at = starts[0]
    part = text[at:at + LONGEST + 200].strip()
    if rng.random() < 0.15:  # cut anywhere
        return part[:part.rfind(" ", 0, size)] if len(part) > size else part
    return bounded(part, size)


def sentences(text):
    return [s.strip() for p in text.split("\n\n") if is_prose(p) and "\n" not in p for s in SENTENCE_END.split(p) if len(s) > 15]


def shuffled(pages, rng):
    """Sentences of several pages in no order."""
    pool = [s for page in rng.sample(pages, min(4, len(pages))) for s in sentences(page["text"])]
    rng.shuffle(pool)
    size, out = size_drawn(rng), []
    while pool and sum(map(len, out)) < size:
        out.append(pool.pop())
    return bounded(rng.choice([" ", " ", "\n\n", "\n"]).join(out), LONGEST)


def changed(text, words, rng):
    """A few words replaced by others."""
    share = rng.choice([0.03, 0.1, 0.3])
    return WORD.sub(lambda m: rng.choice(words) if rng.random() < share else m.group(), text)


def by_chance(words, rng):
    """Words, numbers and names by chance, as a line, a list or pairs."""
    thing = lambda: rng.choice(words) if rng.random() < 0.8 else rng.choice([str(rng.randrange(10 ** rng.randrange(1, 7))), f"{rng.choice(words)}_{rng.choice(words)}", f"{rng.choice(words)}-{rng.randrange(100)}"])
    size, kind, out = size_drawn(rng), rng.randrange(3), []
    while sum(map(len, out)) < size:
        phrase = " ".join(thing() for _ in range(rng.randrange(1, 12)))
        out.append([phrase + rng.choice([".", ",", ";", ""]), f"- {phrase}", f"{thing()}: {thing()}"][kind])
    return bounded((" " if kind == 0 else "\n").join(out), LONGEST)


def passage(pages, words, rng):
    draw = rng.random()
    if draw < 0.1:
        return by_chance(words, rng)
    text = shuffled(pages, rng) if draw < 0.3 else excerpt(rng.choice(pages)["text"], rng)
    return changed(text, words, rng) if rng.random() < 0.5 else text


def quotable(pages, words, rng):
    """A text of at least two sentences that can be told apart, and its sentences."""
    pool = sentences(rng.choice(pages)["text"]) if rng.random() < 0.6 else sentences(shuffled(pages, rng))
    begin = rng.randrange(max(1, len(pool) - 3))
    out = []
    while begin < len(pool) and sum(map(len, out)) < size_drawn(rng) and len(out) < 12:
        out.append(changed(pool[begin], words, rng) if rng.random() < 0.3 else pool[begin])
        begin += 1
    return out if sum(map(len, out)) <= LONGEST else out[:2]


def asked_for_part(pages, words, rng):
    """(text, instruction, answer) for the first sentences or paragraphs, or None where the draw does not give a text."""
    parts = quotable(pages, words, rng)
    if len(parts) < 2:
        return None
    if rng.random() < 0.35:  # paragraphs of one or two sentences
        cut = rng.randrange(1, 3)
        parts = [" ".join(parts[i:i + cut]) for i in range(0, len(parts), cut)]
        unit, forms, joint = "paragraph", PARAGRAPHS, "\n\n"
    else:
        unit, forms, joint = "sentence", SENTENCES, " "
    count = min(rng.choice([1, 2, 2, 2, 3, 4]), len(parts))
    if count == 1 and unit == "sentence":
        instruction = rng.choice(ONE_SENTENCE)
    else:
        instruction = rng.choice(forms).format(f"{rng.choice(COUNTS[count])} {unit}s" if count > 1 else unit)
    return joint.join(parts), instruction, joint.join(parts[:count])


def joined(instruction, text, rng):
    """Instruction and text as one message."""
    if "\n" not in text and "\"" not in text and rng.random() < 0.1:
        text = f"\"{text}\""
    elif "```" not in text and rng.random() < 0.08:
        text = f"```\n{text}\n```"
    separator = rng.choice(SEPARATORS)
    return instruction + ("\n\n" if separator == " " and not instruction.endswith(":") else separator) + text


def copy_talk(pages, words, rng):
    """One conversation, or None where the draw gives none."""
    draw = rng.random()
    if draw < 0.06:
        found = conversations(rng.choice(pages), rng)
        if not found:
            return None
        turns = found[0][:1]
        return turns + [(rng.choice(AGAIN), turns[0][1])]
    if draw < 0.22:
        part = asked_for_part(pages, words, rng)
        return part and [(joined(part[1], part[0], rng), part[2])]
    text = passage(pages, words, rng).strip()
    if len(text) < SHORTEST // 2 or "<|" in text:
        return None
    if rng.random() < 0.12:
        return [(f"{text}\n\n{rng.choice(AFTERWARDS)}", text)]
    return [(joined(rng.choice(WHOLE), text, rng), text)]


def all_copies(pages, count, rng):
    """So many conversations, rendered."""
    words = sorted({w for page in rng.sample(pages, min(len(pages), 2000)) for w in WORD.findall(page["text"])})
    out = []
    while len(out) < count:
        talk = copy_talk(pages, words, rng)
        if talk:
            out.append(render(talk, rng.choice(smalltalk.SYSTEM) if rng.random() < 0.1 else None))
    return out
