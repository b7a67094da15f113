"""make.py: logits of tiny models with control vectors, in float64, for engine/steers.c.
takes: tools/ref_forward.py of the shared fixtures (numpy), the models of tests/golden/models.
gives: steer.json.   python3 tests/golden/steer/make.py SHARED/tools > tests/golden/steer/steer.json

After layer i the residual gets factor * vector k of layer i. Value n of that vector is
((i * hidden + n) * (7919 + 2 k) mod 401 - 200) / 800; vector 1 has none for layer 0."""
import json
import os
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
from ref_forward import Model

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'models')
SETS = [[], [(0, 1.5)], [(0, -2.0), (1, 0.75)]]
POSITIONS = 6


class Steered(Model):
    """The first norm of the next layer, or the final one, reads the residual after a layer: it is changed in place."""
    def norm(self, x, key, rms=None, heads=False):
        if key in self.after:
            x += self.after[key]
        return super().norm(x, key, rms, heads)


def vector(model, k, layer):
    if k == 1 and layer == 0:
        return np.zeros(model.H)
    at = (layer * model.H + np.arange(model.H)) * (7919 + 2 * k)
    return (at % 401 - 200) / 800


def run(name):
    folder = os.path.join(MODELS, name)
    golden = json.load(open(os.path.join(folder, 'golden.json')))
    tokens = golden['tokens'][0]
    model = Steered(folder)
    sets = []
    for uses in SETS:
        model.after = {}
        for layer in range(model.L):
            key = f'model.layers.{layer + 1}.input_layernorm' if layer + 1 < model.L else 'model.norm'
            model.after[key] = sum((f * vector(model, k, layer) for k, f in uses), np.zeros(model.H))
        y = model.forward(tokens)
        top = np.argsort(-y, 1, kind='stable')[:, :4]
        sums = np.log(np.exp(y - y.max(1, keepdims=True)).sum(1)) + y.max(1)
        if not uses:  # the model alone is transformers'
            assert np.abs(y[-1] - np.array(golden['logits_last'][0])).max() < 1e-6
            continue
        last = range(len(tokens) - 1 - POSITIONS, len(tokens) - 1)
        sets.append({'uses': [[k, f] for k, f in uses], 'logsumexp': [round(float(sums[p]), 5) for p in last],
                     'top_ids': [[int(t) for t in top[p]] for p in last],
                     'top_logits': [[round(float(y[p][t]), 5) for t in top[p]] for p in last]})
    return {'model': name, 'tokens': tokens, 'sets': sets}


rows = [run(name) for name in ('llama3-rope', 'gemma2', 'cohere')]
print('[' + ',\n '.join(json.dumps(row, separators=(',', ':')) for row in rows) + ']')
