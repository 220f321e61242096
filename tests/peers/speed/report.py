"""A machine's data file: every question with its rows, every row with the measurements of each side, pair by pair."""
import json, os, statistics

import machine

SCHEMA = 1

# A peer this much slower than the fastest one in the first pair is not measured again.
CONTENDS = 0.8


class Row:
    """One setting of a question. `sides` has a list of measurements each, in the order of the pairs."""

    def __init__(self, model, setting, unit):
        self.data = {"model": model, "setting": setting, "unit": unit, "date": machine.today(), "sides": {}}

    def add(self, side, measurement):
        self.data["sides"].setdefault(side, []).append(measurement)
        figures = ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in measurement.items())
        print(f"  {self.data['model']}, {self.data['setting']}: {side}: {figures}", flush=True)

    def middle(self, side, key):
        """The median of a side, where all its measurements have the figure."""
        found = [one.get(key) for one in self.data["sides"][side]]
        return None if None in found else statistics.median(found)

    def contenders(self, names):
        """The peers to measure next: all of them once, then those that may be the fastest."""
        reached = {name: self.data["sides"][name][0]["rate"] for name in names if name in self.data["sides"]}
        return [name for name in names if name not in reached or reached[name] >= CONTENDS * max(reached.values())]

    def line(self):
        """What a person reads: each side's median, and how it stands to tunebox."""
        ours = self.middle("tunebox", "rate")
        parts = [f"tunebox {ours:.4g} {self.data['unit']}"]
        for side in self.data["sides"]:
            theirs = self.middle(side, "rate")
            if side != "tunebox":
                parts.append(f"{side} out of memory" if theirs is None else f"{side} {theirs:.4g} ({ours / theirs:.2f} ×)")
        return f"{self.data['model']}, {self.data['setting']}: " + ", ".join(parts)


class Report:
    """The rows of one question."""

    def __init__(self, question, versions):
        self.question, self.versions, self.rows = question, versions, []

    def row(self, model, setting, unit):
        self.rows.append(Row(model, setting, unit))
        return self.rows[-1]

    def merge(self, path):
        """Puts this question into the file and leaves the others as they are. Other rows of it stay as well, where the
        same machine measured them with the same versions: a long question may be asked in parts."""
        found = json.load(open(path)) if os.path.exists(path) else {"schema": SCHEMA, "questions": {}}
        before, around = found["questions"].get(self.question, {}), {"machine": machine.note(), "versions": self.versions}
        kept = before["rows"] if all(before.get(key) == value for key, value in around.items()) else []
        rows = {(row["model"], row["setting"]): row for row in kept + [row.data for row in self.rows]}
        found["questions"][self.question] = around | {"rows": list(rows.values())}
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path + ".new", "w") as file:
            json.dump(found, file, indent=1, ensure_ascii=False, sort_keys=True)
            file.write("\n")
        os.replace(path + ".new", path)
