"""The words that the model knows: `python -m trainer.vocabulary` writes them to a file.

Run it once, when the training data have changed. All workers read the file, so they give a word
the same number; the words that each would find by itself in its part of the data differ.
"""

import keras
import tensorflow as tf

from trainer import data

PATH = f"{data.DATA}/vocabulary.txt"
MOST_WORDS = 5000
LENGTH = 32  # words of a sentence; the others are cut off


def vectorization(vocabulary: list[str] | None = None) -> keras.layers.TextVectorization:
    """Return the layer that makes a vector of numbers of a sentence."""
    return keras.layers.TextVectorization(
        max_tokens=MOST_WORDS, output_sequence_length=LENGTH, vocabulary=vocabulary
    )


def read_vocabulary() -> list[str]:
    """Return the words of the file."""
    with tf.io.gfile.GFile(PATH) as file:
        return file.read().split("\n")


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
