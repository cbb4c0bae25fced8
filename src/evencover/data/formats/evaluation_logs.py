"""Read samples of lm-evaluation-harness: log-likelihoods of the choices, and the correct one.

With 0.4 and ``--log_samples`` each line is one question: ``resps`` and ``filtered_resps`` have
[log-likelihood, is greedy] per choice, as text, and ``arguments`` the requests.
"""

from __future__ import annotations

from typing import Any

RESPONSES = ("filtered_resps", "resps")
LABELS, IDS = "target", "doc_id"

Record = dict[str, Any]
Request = tuple[str, str]


def log_likelihoods(responses: Any, record: Record) -> list[float]:
    """Return one number per choice."""
    found = [_first_number(response) for response in responses]
    asked = _asked(record)
    return found[: len(_once(asked))] if len(asked) == len(found) else found


def right_choice(target: Any, record: Record) -> str:
    """Return the index of the correct choice; a target in words is matched by text.

    If the choices are in the questions instead (winogrande), all have the same words. The words
    then stay, and are rejected as a label.
    """
    words = str(target).strip()
    texts = [text.strip() for _, text in _once(_asked(record))]
    is_known = not words.isdigit() and texts.count(words) == 1
    return str(texts.index(words)) if is_known else words


def _asked(record: Record) -> list[Request]:
    """Return the context and continuation of each request, or none if the sample lacks them."""
    listed = record.get("arguments")
    if isinstance(listed, list):  # until 0.4.2
        pairs = [each for each in listed if isinstance(each, list) and len(each) > 1]
        return [(str(context), str(text)) for context, text, *_ in pairs]
    found: list[Request] = []
    while (text := record.get(f"arguments.gen_args_{len(found)}.arg_1")) is not None:
        found.append((str(record.get(f"arguments.gen_args_{len(found)}.arg_0")), str(text)))
    return found


def _once(asked: list[Request]) -> list[Request]:
    """Drop the requests of ``acc_mutual_info``, which repeat choices without the question."""
    half = len(asked) // 2
    once, again = asked[:half], asked[half:]
    twice = again == [("", text) for _, text in once] and any(context for context, _ in once)
    return once if twice else asked


def _first_number(response: Any) -> float:
    while isinstance(response, list):
        response = response[0] if response else None
    return float(response)
