"""Samples of lm-evaluation-harness: log-likelihoods of the choices, and which of them is right.

With 0.4 and ``--log_samples`` each line is one question: ``resps`` and ``filtered_resps`` hold
[log-likelihood, is greedy] per choice, as text, and ``arguments`` what was asked of the model.
"""

from __future__ import annotations

from typing import Any

RESPONSES = ("filtered_resps", "resps")
LABELS, IDS = "target", "doc_id"

Record = dict[str, Any]


def log_likelihoods(responses: Any, record: Record) -> list[float]:
    """One number per choice.

    The metric ``acc_mutual_info`` asks for every choice a second time, without the question: those
    are no further choices.
    """
    found = [_first_number(response) for response in responses]
    asked, half = _asked(record), len(found) // 2
    once, again = asked[:half], asked[half:]
    twice = again == [("", text) for _, text in once] and any(context for context, _ in once)
    return found[:half] if twice else found


def right_choice(target: Any, record: Record) -> str:
    """The place of the right choice; of a target in words that of the choice with these words."""
    words = str(target)
    texts = [text.strip() for _, text in _asked(record)]
    is_known = not words.isdigit() and words.strip() in texts
    return str(texts.index(words.strip())) if is_known else words


def _asked(record: Record) -> list[tuple[str, str]]:
    """The context and the continuation of each request, or none if the sample lacks them."""
    found: list[tuple[str, str]] = []
    while (text := record.get(f"arguments.gen_args_{len(found)}.arg_1")) is not None:
        found.append((str(record.get(f"arguments.gen_args_{len(found)}.arg_0")), str(text)))
    return found


def _first_number(response: Any) -> float:
    while isinstance(response, list):
        response = response[0] if response else None
    return float(response)
