"""Make the data of the starter `tabular`: `python tools/make_penguins.py penguins.csv`.

The file is that of the package palmerpenguins 0.1.4. Run it by hand; what it writes is committed,
and it writes the same bytes every time.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "trainer_skeleton" / "starters" / "tabular" / "data"
VALIDATION_ROWS = 70


def main(source: str) -> None:
    """Write train.csv and validation.csv, without the two birds that were not measured."""
    with Path(source).open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    rows = [row for row in rows if row[header.index("bill_length_mm")] not in {"", "NA"}]
    random.Random(0).shuffle(rows)  # noqa: S311 - no secret
    FOLDER.mkdir(parents=True, exist_ok=True)
    parts = {"validation": rows[:VALIDATION_ROWS], "train": rows[VALIDATION_ROWS:]}
    for name, part in parts.items():
        with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *part])


if __name__ == "__main__":
    main(sys.argv[1])
