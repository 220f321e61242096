"""Writes the Parquet tables in `data/` as Hugging Face's libraries do: by pyarrow, one for each compression.

usage: python data.py        (pyarrow 21 or later)
"""

from pathlib import Path

import pyarrow
from pyarrow import parquet

FOLDER = Path(__file__).parent / "data"

message = pyarrow.struct([("content", pyarrow.string()), ("role", pyarrow.string())])
schema = pyarrow.schema([
    ("messages", pyarrow.list_(message)),
    ("score", pyarrow.float64()),
    ("count", pyarrow.int64()),
    ("good", pyarrow.bool_()),
    ("tags", pyarrow.list_(pyarrow.string())),
    ("text", pyarrow.string()),
])


def record(question, answer, **fields):
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": turns, **fields}


rows = [
    record("Name a river.", "The Rhine.", score=0.5, count=7, good=True, tags=["a", "b"], text="ä"),
    record("Name a lake.", "Lake Constance.", score=0.25, count=8, good=False, tags=["c"], text="b"),
    record("Name a sea.", "The Baltic Sea.", score=None, count=9, good=None, tags=[], text=None),
]
for compression in ["snappy", "gzip", "zstd", "none"]:
    table = pyarrow.Table.from_pylist(rows, schema=schema)
    parquet.write_table(table, FOLDER / f"{compression}.parquet", compression=compression, row_group_size=2)
