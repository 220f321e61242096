"""Figures with what is wanted of them, as one table and as data."""
import json


class Table:
    def __init__(self, machine):
        self.machine, self.rows = machine, []

    def add(self, part, case, figure, wanted="", holds=None, **data):
        """One figure; `holds` says whether it is what is wanted, None where nothing is."""
        self.rows.append({"part": part, "case": case, "figure": figure, "wanted": wanted, "holds": holds, **data})
        # Shown at once, so that a stopped run shows what was measured.
        print(" | ".join([part, case, figure, wanted, VERDICTS[holds]]), flush=True)

    def failed(self):
        return [row for row in self.rows if row["holds"] is False]

    def show(self):
        keys = ["part", "case", "figure", "wanted"]
        lines = [keys + ["holds"]] + [[row[key] for key in keys] + [VERDICTS[row["holds"]]] for row in self.rows]
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        print(f"\n{self.machine}")
        for line in lines:
            print("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip())

    def write(self, path):
        with open(path, "w") as out:
            json.dump({"machine": self.machine, "rows": self.rows}, out, indent=1)


VERDICTS = {True: "yes", False: "NO", None: ""}


def gib(count):
    return f"{count / 2**30:.1f} GiB"
