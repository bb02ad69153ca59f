"""Tokenizes texts with the libraries that package tokenizer is compared with: tokenizers, tiktoken, mistral-common.

python reference.py TEXTS FOLDER...    TEXTS has a JSON string a line. Each folder has a model's tokenizer.json,
                                       tekken.json or tiktoken.model, and gets ids.jsonl; texts.jsonl is a copy.
                                       Tekken's special tokens are cut out first, since its library knows none in texts
"""

import json
import pathlib
import re
import shutil
import sys

import tiktoken
import tiktoken.load
import tokenizers
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([
    r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?" + LETTERS[0] + "*" + LETTERS[1] + "+" + SHORT,
    r"[^\r\n\p{L}\p{N}]?" + LETTERS[0] + "+" + LETTERS[1] + "*" + SHORT,
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def encoder(folder):
    if (folder / "tokenizer.json").exists():
        t = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: t.encode(text, add_special_tokens=False).ids
    if (folder / "tekken.json").exists():
        t = Tekkenizer.from_file(folder / "tekken.json")
        special = {s["token_str"]: s["rank"] for s in t._all_special_tokens if "<SPECIAL_" not in s["token_str"]}
        cut = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        return lambda text: [i for part in cut.split(text) if part
                             for i in ([special[part]] if part in special else t.encode(part, bos=False, eos=False))]
    ranks = tiktoken.load.load_tiktoken_bpe(str(folder / "tiktoken.model"))
    names = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    special = {names.get(str(i), {}).get("content", f"<|reserved_token_{i}|>"): i
               for i in range(len(ranks), len(ranks) + 256)}
    t = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    return lambda text: t.encode(text, allowed_special="all")


for folder in map(pathlib.Path, sys.argv[2:]):
    encode = encoder(folder)
    shutil.copy(sys.argv[1], folder / "texts.jsonl")
    with open(sys.argv[1]) as texts, open(folder / "ids.jsonl", "w") as out:
        for line in texts:
            print(json.dumps(encode(json.loads(line))), file=out)
