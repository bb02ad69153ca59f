"""Renders chat templates with transformers, to compare package jinja with.

python reference.py corpus DIR > corpus.jsonl     hashes of all conversations.json with each *.jinja of a folder
python reference.py small < FILE > small.jsonl    texts of templates, one JSON string a line, with vars.json
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import transformers.utils.chat_template_utils as utils

HERE = pathlib.Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


utils.datetime = Clock


def attempt(render):
    try:
        return {"text": render()}
    except Exception as e:  # whatever ends a rendering there has to end it here
        return {"error": "raised" if type(e) is jinja2.exceptions.TemplateError else "error"}


def conversation(source, variables):
    rest = {k: v for k, v in variables.items() if k != "messages"}
    return utils.render_jinja_template(
        [variables["messages"]], chat_template=source, documents=None, **rest, **SPECIAL)[0][0]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def corpus(folder):
    conversations = json.loads((HERE / "conversations.json").read_text())
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_bytes().decode()
        renders = {}
        for name, variables in conversations.items():
            got = attempt(lambda: conversation(source, variables))
            renders[name] = got.get("error") or digest(got["text"])[:16]
        print(json.dumps({"template": digest(source), "file": path.name, "renders": renders}))


def small():
    for line in sys.stdin:
        source, variables = json.loads(line), json.loads((HERE / "vars.json").read_text())
        got = attempt(lambda: utils._compile_jinja_template(source).render(**variables))
        print(json.dumps({"source": source, **got}, ensure_ascii=False))


if __name__ == "__main__":
    corpus(sys.argv[2]) if sys.argv[1] == "corpus" else small()
