"""A container engine: what it is asked (`client`), how it is reached, and what it may say of it."""
