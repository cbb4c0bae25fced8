"""Small made-up inputs and models: pictures of a color, texts, linear models in NumPy."""

import csv
import sys

import numpy as np

NAMES = ["blue", "green", "grey", "red"]
COLORS = np.array([[20, 30, 220], [30, 200, 40], [120, 125, 130], [210, 30, 20]])

# A model of pictures and one of texts, as a user would write them.
MODEL = '''
import numpy as np

WEIGHTS = np.random.default_rng(5).normal(size=(48, 4)).astype(np.float32)

def pictures(images):
    small = [np.asarray(image.resize((4, 4)), dtype=np.float32) / 255 for image in images]
    return np.stack(small).reshape(len(small), -1) @ WEIGHTS

pictures.class_names = ["blue", "green", "grey", "red"]

def nameless(images):
    return pictures(images)

class Prepared:
    """The same, with a step of its own that threads do for one input at a time."""
    class_names = pictures.class_names
    def prepare(self, image):
        return np.asarray(image.resize((4, 4)), dtype=np.float32).ravel() / 255
    def __call__(self, rows):
        return np.stack(rows) @ WEIGHTS

def texts(batch):
    letters = np.array([[text.count(letter) for letter in "abcdefghij"] for text in batch])
    return letters @ np.random.default_rng(6).normal(size=(10, 4))

texts.class_names = pictures.class_names
'''


def picture(label, seed):
    """A picture of about the color of its class, of a size of its own."""
    from PIL import Image

    rng = np.random.default_rng([label, seed])
    height, width = rng.integers(6, 12, 2)
    pixels = COLORS[label] + rng.integers(-20, 20, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_pictures(folder, n_per_class=5, names=NAMES):
    """One subfolder per class; the ids in the order in which they must come."""
    ids = []
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(n_per_class):
            picture(label % len(NAMES), number).save(folder / name / f"{number:03d}.png")
            ids.append(f"{name}/{number:03d}.png")
    return ids


def write_list(path, ids, folder=""):
    """A table of paths and labels."""
    lines = [f"{folder}{image},{image.split('/')[0]}" for image in ids]
    path.write_text("path,label\n" + "\n".join(lines) + "\n")


def write_texts(path, n_rows, seed=0, **more):
    """Lines of text and label, and other columns if there are any."""
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(list("abcdefghij "), 20)) for _ in range(n_rows)]
    labels = [NAMES[index] for index in rng.integers(0, 4, n_rows)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", *more])
        writer.writerows(zip(texts, labels, *more.values(), strict=True))
    return texts, labels


def write_model(folder, text=MODEL, name="mine"):
    """The file of the models."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return f"{folder / name}.py"


def add_function(model, text):
    """Append a function to the file of a model."""
    with open(model, "a", encoding="utf-8") as file:
        file.write(f"\n\n{text}\n")


def expected_logits(model, function, values):
    """What the function returns for each value alone, without evencover."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("oracle_model", model)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("oracle_model", None)
    return np.concatenate([np.asarray(getattr(module, function)([value])) for value in values])


def read(folder):
    """All parts as one table, in the order of their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.glob("part-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def matrix(table, column="logits"):
    """A column of lists as an array."""
    values = table.column(column).combine_chunks()
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)


def content(folder):
    """Every file with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
