"""How often goldline names the right layer, beside the rules of today's tools: docs/accuracy.md.

usage: run.py [--bin PATH] [--set DIR] [--docs FILE]

Makes the set (make.py) in the user's cache where it is not there yet, runs `goldline diff` on every pair and
prints the table; `--docs` also puts it between the markers of the document. Needs torch and safetensors.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- begin table: run.py -->", "<!-- end table -->"
OUTCOMES = ["right", "missed", "wrong", "clean", "alarm"]


def pairs(base):
    for root in sorted(name for name in os.listdir(base) if not name.endswith(".part")):
        gold = os.path.join(base, root, "golden")
        for scenario in sorted(os.listdir(os.path.join(base, root))):
            place = os.path.join(base, root, scenario)
            if os.path.exists(os.path.join(place, "expect.json")):
                with open(os.path.join(place, "expect.json")) as file:
                    yield f"{root}/{scenario}", gold, os.path.join(place, "candidate"), json.load(file)


def goldline(binary, golden, candidate):
    done = subprocess.run([binary, "diff", golden, candidate, "--json"], capture_output=True, text=True, timeout=300)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"verdict": "failed: " + done.stderr.strip()[-200:]}


def leads(report):
    """Names of the layer that the report puts first."""
    first = (report.get("origins") or [{}])[0]
    names = [first.get("layer"), first.get("candidate_layer")]
    if report.get("verdict") == "nonfinite" and report.get("nonfinite_origins"):
        birth = report["nonfinite_origins"][0]
        names += [birth.get(key) for key in ("layer", "candidate_layer", "cause_layer")]
    return [name for name in names if name]


def truths(expect):
    return expect.get("origins") or ([expect["origin"]["layer"]] if expect.get("origin") else [])


def outcome(expect, names):
    """`names`: what the rule puts first; empty where it names nothing."""
    if expect["kind"] == "benign":
        return "alarm" if names else "clean"
    if not names:
        return "missed"
    return "right" if set(names) & set(truths(expect)) else "wrong"


def size_of(expect):
    times = expect.get("times_own")
    if expect["kind"] == "benign":
        return "clean"
    if times is None:
        return "nonfinite"
    return "below 2" if times < 2 else "2 to 5" if times < 5 else "5 to 20" if times < 20 else "20 and more"


def one(binary, pair):
    sys.path.insert(0, HERE)
    import rules

    name, gold, cand, expect = pair
    report = goldline(binary, gold, cand)
    names = leads(report)
    if report.get("verdict") != "pass" and not names:
        names = ["(%s)" % report.get("verdict")] if expect["kind"] == "benign" else []
    if report.get("verdict") == "pass":
        names = []
    found = {o.get(key) for o in report.get("origins") or [] for key in ("layer", "candidate_layer")}
    answers = {"goldline": names}
    for rule, named in zip(rules.NAMES, rules.first_named(rules.load(gold), rules.load(cand))):
        answers[rule] = [named] if named else []
    why = ((report.get("origins") or report.get("nonfinite_origins") or [{}])[0].get("why") or "")[:400]
    return {"name": name, "expect": expect, "size": size_of(expect), "verdict": report.get("verdict"), "answers": answers, "why": why,
            "both": None if not expect.get("all_origins") else set(expect["all_origins"]) <= found,
            "outcomes": {rule: outcome(expect, given) for rule, given in answers.items()}}


def table(rows):
    faulty = [row for row in rows if row["expect"]["kind"] == "fault"]
    quiet = [row for row in rows if row["expect"]["kind"] == "benign"]
    lines = [f"{len(faulty)} runs with faults, {len(quiet)} clean runs.", "",
             "| rule | top-1 | missed | wrong layer | false alarms |", "|---|---|---|---|---|"]
    for rule in rows[0]["outcomes"]:
        share = lambda kind, among: "%.1f %% (%d)" % (100 * sum(r["outcomes"][rule] == kind for r in among) / max(len(among), 1), sum(r["outcomes"][rule] == kind for r in among))
        lines.append("| %s | %s | %s | %s | %s |" % (rule, share("right", faulty), share("missed", faulty), share("wrong", faulty), share("alarm", quiet)))
    lines += ["", "Goldline by the fault's size at its layer, in multiples of what a correct operator leaves there:", "",
              "| size | runs | top-1 | missed | wrong layer |", "|---|---|---|---|---|"]
    for size in ("below 2", "2 to 5", "5 to 20", "20 and more", "nonfinite"):
        among = [row for row in faulty if row["size"] == size]
        counts = [sum(r["outcomes"]["goldline"] == kind for r in among) for kind in OUTCOMES[:3]]
        lines.append("| %s | %d | %d | %d | %d |" % (size, len(among), *counts))
    two = [row for row in faulty if row["both"] is not None]
    lines += ["", f"Both faults among the origins in {sum(row['both'] for row in two)} of {len(two)} runs with two faults."]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/goldline")
    parser.add_argument("--set", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "goldline-accuracy"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--docs", help="write the table into this document")
    parser.add_argument("--json", help="keep every pair and what was said of it; with --go-on, leave out the pairs that are in it")
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--no-make", action="store_true", help="take the set as it is")
    parser.add_argument("--only", default="", help="part of the pair's name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if not options.no_make:
        subprocess.run([sys.executable, os.path.join(HERE, "make.py"), options.set, "--seeds", str(options.seeds)], check=True, stdout=sys.stderr)
    work, started = [pair for pair in pairs(options.set) if options.only in pair[0]], time.time()
    rows = []
    if options.go_on and options.json and os.path.exists(options.json):
        with open(options.json) as file:
            rows = json.load(file)
    known = {row["name"] for row in rows}
    work = [pair for pair in work if pair[0] not in known]
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        rows += pool.map(one, [options.bin] * len(work), work, chunksize=4)
    for row in rows:
        if row["outcomes"]["goldline"] in ("missed", "wrong", "alarm"):
            expect = row["expect"]
            times = expect.get("times_own")
            print("%-7s %-36s %-9s %s want %s: %s; %s" % (row["outcomes"]["goldline"], row["name"], expect.get("precision", ""),
                  "" if times is None else "x%.3g" % times, truths(expect), row["answers"]["goldline"][:1], row["why"]))
    text = "\n".join(table(rows))
    print(text)
    print("%.0f s" % (time.time() - started), file=sys.stderr)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)
    if options.docs:
        with open(options.docs) as file:
            before, _, rest = file.read().partition(BEGIN)
        with open(options.docs, "w") as file:
            file.write(before + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
