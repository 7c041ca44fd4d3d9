"""Records of TFRecord files, and the index of where they begin."""
