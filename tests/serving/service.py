"""What a service is asked in the tests."""

K, NAMES, TOKEN = 5, ["ant", "bee", "wasp", "fly", "naïve"], "open sesame"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def body(data, part=slice(300, 600), ids=True, labels=False):
    numbers = range(*part.indices(600))
    content = {"rows": data.rows[part].tolist()}
    content |= {"ids": [f"row {n}" for n in numbers]} if ids else {}
    return content | ({"labels": data.labels[part].tolist()} if labels else {})
