"""The words that the model knows: `python -m trainer.vocabulary` writes them to a file.

Run it once, when the training data have changed. All workers read the file, so they give a word
the same number; the words that each would find by itself in its part of the data differ.
"""

import re
import warnings
from itertools import islice

import keras
import tensorflow as tf

from trainer import data

PATH = f"{data.DATA}/vocabulary.txt"
MOST_WORDS = 5000
LENGTH = 32  # words of a sentence; the others are cut off
LEAST_KNOWN = 0.8  # of the words of the training data, without a warning


def vectorization(vocabulary: list[str] | None = None) -> keras.layers.TextVectorization:
    """Return the layer that makes a vector of numbers of a sentence."""
    return keras.layers.TextVectorization(
        max_tokens=MOST_WORDS, output_sequence_length=LENGTH, vocabulary=vocabulary
    )


def read_vocabulary() -> list[str]:
    """Return the words of the file; warn if they are few of those of the training data."""
    with tf.io.gfile.GFile(PATH) as file:
        words = file.read().split("\n")
    known = known_share(words)
    if known < LEAST_KNOWN:
        warnings.warn(
            f"{PATH} knows {known:.0%} of the words of train.tsv: has the data changed? "
            "`python -m trainer.vocabulary` renews it, for a run from scratch",
            stacklevel=2,
        )
    return words


def known_share(vocabulary: list[str], sentences: int = 1000) -> float:
    """Return which part of the words of the first sentences a vocabulary has."""
    with tf.io.gfile.GFile(f"{data.DATA}/train.tsv") as file:
        lines = [line.rstrip("\n").split("\t")[1] for line in islice(file, 1, sentences + 1)]
    # As the layer splits them: in lower case, and without punctuation.
    words = re.sub(r"[^\w\s]|_", "", " ".join(lines).lower()).split()
    known = set(vocabulary)
    return sum(word in known for word in words) / max(1, len(words))


def main() -> None:
    """Find the most frequent words of the training data, and write them."""
    lines = tf.data.TextLineDataset(f"{data.DATA}/train.tsv").skip(1)
    layer = vectorization()
    layer.adapt(lines.map(lambda line: tf.strings.split(line, "\t")[1]).batch(1000))
    words = layer.get_vocabulary(include_special_tokens=False)
    with tf.io.gfile.GFile(PATH, "w") as file:
        file.write("\n".join(words))
    print(f"{PATH}: {len(words):,} words")


if __name__ == "__main__":
    main()
