"""What no language model is needed for: the constant answer and naive Bayes on words, printed beside every model's row.

People will ask. A model that loses to them has learned little, and the table says so first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from earnest.task import Row, Task

WORDS = r"[\u3400-\u9fff]|\w\w+"  # words of two letters or more, and each Chinese character


def baselines(task: Task, train: Sequence[Row], dev: Sequence[Row], test: Sequence[Row]) -> list[dict[str, Any]]:
    """Accuracy of the constant answer and of multinomial naive Bayes on a bag of words, both fitted to the train rows.

    An answer counts as right when it is among the row's acceptable labels. Empty for a task that is no classification.
    """
    if task.baseline_text is None:
        return []
    known = [(text, labels) for text, labels in map(task.baseline_text, train) if labels]
    if not known:
        return []
    common = Counter(labels[0] for _, labels in known).most_common(1)[0][0]
    rows = [_entry(f"constant answer ({common})", lambda texts: [common] * len(texts), task, dev, test, len(known))]
    if len({labels[0] for _, labels in known}) > 1 and any(re.search(WORDS, text) for text, _ in known):
        rows.append(_entry("naive Bayes on words", _fit(known), task, dev, test, len(known)))
    return rows


def _fit(known: Sequence[tuple[str, Sequence[str]]]) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(CountVectorizer(token_pattern=WORDS), MultinomialNB())
    model.fit([text for text, _ in known], [labels[0] for _, labels in known])
    return model.predict


def _entry(name: str, predict: Any, task: Task, dev: Sequence[Row], test: Sequence[Row], count: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, "n_train": count}
    for split, rows in (("dev", dev), ("test", test)):
        judged = [(text, labels) for text, labels in map(task.baseline_text, rows) if labels]
        guesses = predict([text for text, _ in judged]) if judged else []
        right = sum(guess in labels for guess, (_, labels) in zip(guesses, judged, strict=True))
        entry[f"{split}_accuracy"] = right / len(judged) if judged else None
    return entry
