"""What a method in Python is written with, as editors and type checkers read it: `__init__.py` looks names up when they
are first asked for, which they do not follow.
"""

from wit_world.imports import (
    data as data,
    hidden as hidden,
    learn as learn,
    optimizer as optimizer,
    patch as patch,
    reward as reward,
    sample as sample,
    teacher as teacher,
    text as text,
    types as types,
    weights as weights,
)
from wit_world.imports.data import Batch as Batch, Rows as Rows
from wit_world.imports.learn import backward_from as backward_from, backward as backward, update as update
from wit_world.imports.reward import judge as judge
from wit_world.imports.sample import Completions as Completions, Sampler as Sampler, generate as generate

from tunebox import loss as loss, model as model, pair as pair, run as run, settings as settings, tensor as tensor
from tunebox.declaration import environment as environment, method as method, verifier as verifier
from tunebox.errors import Error as Error, Refused as Refused
from tunebox.model import (
    Scores as Scores,
    Taps as Taps,
    View as View,
    policy as policy,
    reference as reference,
    score as score,
    score_for_learning as score_for_learning,
    snapshot as snapshot,
)
from tunebox.pair import Pair as Pair
from tunebox.run import add_metric as add_metric, log as log, metric as metric
from tunebox.settings import setting as setting
from tunebox.tensor import Scope as Scope, Tensor as Tensor, where as where
