"""A training loop of its own, as docs/do/fit-scripts.md has it; the last batch is smaller."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(5)
x = np.random.default_rng(5).normal(size=(280, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)

strategy = tf.distribute.get_strategy()


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        losses = keras.losses.mean_squared_error(y, model(x, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


for batch in strategy.experimental_distribute_dataset(data.batch(64)):
    strategy.run(step, batch)

print("Weights:", float(np.abs(model.layers[0].kernel.numpy()).sum()))
model.save("model.keras")
