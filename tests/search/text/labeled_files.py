"""A small file of labeled texts whose classes have words of their own."""

import csv
import random

WORDS = {"food": "apple fruit sweet tree".split(), "traffic": "engine wheel road fuel".split()}
COMMON = "the a of and in is".split()


def write_labeled(path, rows=200, classes=("food", "traffic")):
    draw = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for number in range(rows):
            label = classes[number % len(classes)]
            words = [draw.choice(WORDS[label] + COMMON) for _ in range(draw.randint(5, 12))]
            table.writerow([" ".join(words), label])
    return path
