"""Examples that can be read in any order: Arrays, Csv, ImageFolder, Tfds."""
