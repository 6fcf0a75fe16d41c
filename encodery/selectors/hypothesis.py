"""Hypothesis-only hardness: rows whose label cannot be guessed from the last text alone (Gururangan et al. 2018).

A bag of words and word pairs, a logistic regression fitted on the other folds; score = 1 − p(label).
"""

import numpy as np
from pydantic import Field

from encodery.errors import UserError
from encodery.selectors.base import Numbers, Pool, Ranked, Selector

FEATURES = 1 << 18


class HypothesisOnly(Selector):
    """Rows that a hypothesis-only model gets wrong first. It sees the last text alone, and is cross-validated."""

    folds: int = Field(default=5, ge=2)
    """Number of cross-validation folds."""
    drop_right: bool = False
    """Leave out the rows that the model gets right."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """All positions, or those whose label is not guessed."""
        if single := next((example for example in pool.examples if len(example.texts) < 2), None):
            raise UserError(f"selector.kind: hypothesis needs pairs of texts; example {single.id} has one")
        chances = self.chances(pool)
        scores = 1.0 - chances[np.arange(len(pool)), pool.labels]
        order = pool.sorted(scores)
        if not self.drop_right:
            return Ranked(order, scores)
        right = chances.argmax(1) == pool.labels
        note = f"{int(right.sum()):,} of {len(pool):,} labels are guessed from the last text alone; left out"
        return Ranked(order[~right[order]], scores, notes=(note,))

    def chances(self, pool: Pool) -> Numbers:
        """Probabilities of each label from the other folds: [n, labels]."""
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier

        words = HashingVectorizer(n_features=FEATURES, ngram_range=(1, 2), alternate_sign=False)
        x = words.transform([example.texts[-1] for example in pool.examples])
        fold, chances = pool.draws % np.uint64(self.folds), np.zeros((len(pool), len(pool.label_names)))
        for number in range(self.folds):
            out = fold == number
            model = SGDClassifier(loss="log_loss", alpha=1e-5, max_iter=100, tol=1e-3, random_state=pool.seed)
            model.fit(x[~out], pool.labels[~out])
            chances[np.ix_(out, model.classes_)] = model.predict_proba(x[out])
        return chances
