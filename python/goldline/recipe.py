"""What an unmodified script is to do: recipes of `GOLDLINE_RECORD` and lists of `GOLDLINE_KEEP_FP32`.

A recipe is YAML or JSON:

    schema: goldline.recipe/1
    out: runs/npu          # the run is out/step{N}/rank{R}
    steps: [0, 100]        # default [0]
    ranks: [0]             # default: all
    module: model          # glob on the class of the outermost module; default: the first that has parameters
    level: operator        # the rest as in goldline.record
    save: stats
    include: ["encoder.3.*"]

The reader knows the YAML that such files need: keys, scalars, lists in brackets or with dashes, comments.
"""

import json
import re
from typing import Any, Dict, List

SCHEMA = "goldline.recipe/1"

KEYS = {
    "schema", "out", "steps", "ranks", "module", "level", "save", "include", "exclude", "budget", "checkpoint", "seed",
    "rows", "samples", "observer_check", "name",
}  # fmt: skip


def read_recipe(path: str) -> Dict[str, Any]:
    """The recipe in a file; `ValueError` with file and line where it is none."""
    recipe = read_mapping(path)
    if recipe.get("schema", SCHEMA) != SCHEMA:
        raise ValueError("%s: schema: expected %s, found %r" % (path, SCHEMA, recipe["schema"]))
    unknown = sorted(set(recipe) - KEYS)
    if unknown:
        raise ValueError("%s: expected one of %s, found key %r" % (path, ", ".join(sorted(KEYS)), unknown[0]))
    if not isinstance(recipe.get("out"), str):
        raise ValueError("%s: out: expected a directory, found %r" % (path, recipe.get("out")))
    for key in ("steps", "ranks", "include", "exclude"):
        if key in recipe and not isinstance(recipe[key], list):
            recipe[key] = [recipe[key]]
    for key in ("steps", "ranks"):
        for item in recipe.get(key, []):
            if not isinstance(item, int) or isinstance(item, bool):
                raise ValueError("%s: %s: expected numbers, found %r" % (path, key, item))
    return recipe


def read_patterns(path: str) -> List[str]:
    """What to keep in fp32: one pattern a line, a JSON list, or a report of goldline with a blacklist."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.lstrip()[:1] in ("[", "{"):
        found = json.loads(text)
        if isinstance(found, dict):
            entries = found.get("blacklist", [])
            found = [layer for entry in entries for layer in entry.get("layers") or ["op:" + entry["op"]]]
        if not all(isinstance(item, str) for item in found):
            raise ValueError("%s: expected a list of patterns, found %r" % (path, found))
        return list(dict.fromkeys(found))
    lines = (
        line.partition("#")[0].strip() if line.lstrip().startswith("#") else line.strip() for line in text.splitlines()
    )
    return [line for line in lines if line]


def read_mapping(path: str) -> Dict[str, Any]:
    """A file with keys at its left edge."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.lstrip().startswith("{"):
        return json.loads(text)
    found: Dict[str, Any] = {}
    key = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = without_comment(raw).rstrip()
        if not line.strip() or line.strip() == "---":
            continue
        item = re.match(r"\s*-\s+(.*)$", line)
        if item is not None and key:
            if found[key] is None:
                found[key] = []
            if isinstance(found[key], list):
                found[key].append(scalar(item.group(1), path, number))
                continue
        entry = re.match(r"([A-Za-z_][\w]*)\s*:(?:\s+(.*))?$", line)
        if entry is None:
            raise ValueError("%s:%d: expected `key: value` or `- item`, found %r" % (path, number, raw))
        key = entry.group(1)
        if key in found:
            raise ValueError("%s:%d: expected each key once, found %r again" % (path, number, key))
        found[key] = scalar(entry.group(2), path, number) if entry.group(2) else None
    return found


def without_comment(line: str) -> str:
    """The line up to a `#` that stands outside quotes and after a space."""
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            return line[:at]
    return line


def scalar(text: str, path: str, line: int) -> Any:
    """A YAML value of one line."""
    text = text.strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError("%s:%d: expected `]` at the end of the list, found %r" % (path, line, text))
        parts = re.findall(r"\"[^\"]*\"|'[^']*'|[^,\[\]]+", text[1:-1])
        return [scalar(part, path, line) for part in parts if part.strip()]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if text in ("null", "~", ""):
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
