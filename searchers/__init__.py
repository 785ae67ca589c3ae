"""Search spaces in Ray Tune's terms, and the algorithms that search them.

An algorithm is its knobs (`Hyperband(max_t=27)`); `start` gives the search, a `gandiva_ray.core.search.Searcher`.
"""

from searchers.asha import ASHA
from searchers.grid import GridSearch
from searchers.halving import SuccessiveHalving
from searchers.hyperband import Hyperband
from searchers.random_search import RandomSearch
from searchers.space import (
    Space,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

__all__ = [
    "RandomSearch",
    "GridSearch",
    "SuccessiveHalving",
    "ASHA",
    "Hyperband",
    "Space",
    "uniform",
    "quniform",
    "loguniform",
    "qloguniform",
    "randn",
    "qrandn",
    "randint",
    "qrandint",
    "lograndint",
    "qlograndint",
    "choice",
    "grid_search",
    "sample_from",
]
