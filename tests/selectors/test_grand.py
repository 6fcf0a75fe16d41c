"""GraNd: the closed form at the last layer is what autograd says."""

import numpy as np
import pytest
import torch

from encodery.analysis.attack import labelled
from encodery.config.load import load
from encodery.errors import UserError
from encodery.inference.classifier import open_classifier
from encodery.selectors.base import Pool
from encodery.selectors.grand import Grand, last_linear, norms_of


@pytest.mark.slow
def test_the_closed_form_is_the_gradient_of_the_last_layer(trained):
    model = open_classifier(trained("pair"), "cpu")
    task = load(trained("pair")).tasks[0][0]
    examples = list(task.examples("train"))[:6]
    table = labelled(model, model.head, examples)
    last = last_linear(model)
    expected, whole = [], []
    for row in range(6):
        batch = model.batcher.batch(table, np.array([row]), model.head.name, 0)
        model.model.zero_grad(set_to_none=True)
        next(iter(model.model(batch)[1].values())).backward()
        grads = {id(p): p.grad.double().square().sum() for p in model.model.parameters() if p.grad is not None}
        expected.append(float((grads[id(last.weight)] + grads[id(last.bias)]).sqrt()))
        whole.append(float(torch.stack(list(grads.values())).sum().sqrt()))
    assert np.allclose(norms_of(model, examples, "last"), expected, rtol=1e-4)
    assert np.allclose(norms_of(model, examples, "all"), whole, rtol=1e-4)
    pool = Pool(examples, task.labels, models=[str(trained("pair"))])
    found = Grand()(pool, 6)
    assert np.all(np.diff(found.scores[found.order]) <= 0)
    by_id = {e.id: value for e, value in zip(examples, expected, strict=True)}
    assert np.allclose(found.scores, [by_id[id] for id in pool.ids], rtol=1e-4)
    with pytest.raises(UserError, match="other labels"):
        Grand()(Pool(examples, ("a", "b", "c"), models=[str(trained("pair"))]), 6)
    with pytest.raises(UserError, match="needs trained models"):
        Grand()(Pool(examples, task.labels), 6)
