"""The text of the small encoder: what may be passed on, of ENCODERY_DATA, as one Parquet file in random order.

    ENCODERY_DATA=... python stories/pretraining/text.py petit.parquet

Film reviews are left out, so that SST-2 stays another domain; Brown, ABC and web text may not be passed on.
"""

import os
import sys
from pathlib import Path

import pandas

TEXT = Path(os.environ["ENCODERY_DATA"]) / "text"
BOOKS_AND_SPEECHES = ["gutenberg", "state_union", "inaugural", "genesis"]


def main(out: Path) -> None:
    """Write the file and say what is in it."""
    first = pandas.read_parquet(TEXT / "pretrain_docs.parquet")
    documents = [first[first.corpus.isin(BOOKS_AND_SPEECHES)], pandas.read_parquet(TEXT / "more_docs.parquet")]
    both = pandas.concat(documents, ignore_index=True).sample(frac=1.0, random_state=1).reset_index(drop=True)
    both.to_parquet(out)
    sizes = both.text.str.len().groupby(both.corpus).agg(["size", "sum"])
    print(sizes.rename(columns={"size": "documents", "sum": "characters"}))
    print(f"{len(both):,} documents, {both.text.str.len().sum():,} characters in {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
