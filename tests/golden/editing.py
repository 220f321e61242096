"""Directions of abliteration and steering in f64: writes editing.json beside this file.

Needs numpy 2.x. The numbers under PUBLISHED were made with the reference implementations (refusal_direction for the projected
direction, repeng for `pca_diff`, steering-vectors for the uncentered component); the script stops where it leaves them.
"""
import json, os
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
POSITIVE = np.array([[2, 1, 0], [2.5, -1, .5], [1.8, .2, -.4], [2.2, .4, .1]])
NEGATIVE = np.array([[0, .8, .1], [.2, -.5, .2], [-.1, .6, 0], [.3, -.2, .3]])
HARMFUL, HARMLESS = np.array([[3.5, 0, 1.5], [2.5, 0, 2.5]]), np.array([[1, .5, 0], [1, 1.5, 0]])
PUBLISHED = {
    "mean": [2.025, -.025, -.1],
    "mean-unit": [.998706978, -.012329716, -.049318863],
    "pca-centred": [.252799195, -.929321122, .269174327],
    "pca": [.998939751, -.023161607, -.039785844],
    "projected": [.514495755, -.514495755, .685994341],
}


def unit(v):
    return v / np.linalg.norm(v)


def component(rows):
    """The first right singular vector, turned so that most differences point along it."""
    v = np.linalg.svd(rows, full_matrices=False)[2][0]
    return v if ((POSITIVE - NEGATIVE) @ v > 0).mean() >= .5 else -v


difference = POSITIVE - NEGATIVE
mean = difference.mean(0)
refusal, harmless = HARMFUL.mean(0) - HARMLESS.mean(0), unit(HARMLESS.mean(0))
found = {
    "mean": mean,
    "mean-unit": unit(mean),
    "pca-centred": component(difference - mean),
    "pca": component(difference),
    "projected": unit(refusal - (refusal @ harmless) * harmless),
}
for name, wanted in PUBLISHED.items():
    assert np.abs(found[name] - wanted).max() < 2e-9, (name, found[name])
data = {"positive": POSITIVE, "negative": NEGATIVE, "harmful": HARMFUL, "harmless": HARMLESS}
text = {name: array.tolist() for name, array in {**data, **found}.items()}
with open(os.path.join(HERE, "editing.json"), "w") as file:
    json.dump(text, file, indent=1)
    file.write("\n")
