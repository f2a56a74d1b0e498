"""Methods by the names that people type, and the estimator behind each."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from .errors import reading_data
from .options import Command

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("NestedKMeans", {"quality": 0.01}),
    "exact": ("KMeans", {}),
    "lloyd": ("KMeans", {"algorithm": "lloyd"}),
    "hamerly": ("KMeans", {"algorithm": "hamerly"}),
    "elkan": ("KMeans", {"algorithm": "elkan"}),
    "yinyang": ("KMeans", {"algorithm": "yinyang"}),
    "exponion": ("KMeans", {"algorithm": "exponion"}),
    "projected": ("KMeans", {"algorithm": "projected"}),
    "nested": ("NestedKMeans", {}),
    "minibatch": ("MiniBatchKMeans", {}),
    "online": ("OnlineKMeans", {}),
    "gradient": ("GradientKMeans", {}),
    "vrkm": ("VarianceReducedKMeans", {"variant": "vrkm"}),
    "vrkm++": ("VarianceReducedKMeans", {"variant": "vrkm++"}),
    "mixture": ("SphericalMixture", {}),
    "compressed": ("CompressedKMeans", {}),
    "binary": ("BinaryKMeans", {}),
    "spectral": ("MiniBatchSpectral", {}),
    "spectral-exact": ("ExactSpectral", {}),
    "spectral-power": ("PowerSpectral", {}),
    "spectral-nystrom": ("NystromSpectral", {}),
    "spectral-landmarks": ("LandmarkSpectral", {}),
}
MOVERS = [name for name, (cls, _) in METHODS.items() if cls.endswith("KMeans") or cls == "SphericalMixture"]
MOVERS = [name for name in MOVERS if name not in ("compressed", "binary")]  # those start from codes
RESERVED = ("n_clusters", "verbose", "callback")  # parameters that commands set themselves
SEEDINGS = ("k-means++", "k-means||", "afk-mc2", "random")
WARM = 1000  # rows, at most
MAX_NUMBER = 1e300  # as the value of a parameter; larger integers are no floats


def _method_option(names: list[str]) -> Callable[[Command], Command]:
    choice, told = click.Choice(names), ", ".join(names) + "."
    return click.option("--method", type=choice, default="auto", show_default=True, metavar="NAME", help=told)


method_option, mover_option = _method_option(list(METHODS)), _method_option(MOVERS)
set_option = click.option("--set", "extra", multiple=True, metavar="NAME=VALUE", help="Any other parameter of the method.")


def assignments(given: tuple[str, ...]) -> dict[str, Any]:
    """`--set n_bits=64` as a parameter; what is no JSON is text."""
    out = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{item!r} is no NAME=VALUE.", param_hint="--set")
        try:
            out[name] = json.loads(value)
        except (ValueError, RecursionError):
            out[name] = value
        if not is_parameter(out[name]):
            raise click.BadParameter(f"{item[:60]!r} is no text, finite number or list of these.", param_hint="--set")
    return out


def is_parameter(value: Any, depth: int = 3) -> bool:
    """Whether JSON can be the value of a parameter: text, a finite number of ordinary size, or (lists of) lists of these."""
    if isinstance(value, list):
        return depth > 0 and all(is_parameter(inner, depth - 1) for inner in value)
    if isinstance(value, int | float):
        return -MAX_NUMBER <= value <= MAX_NUMBER  # which NaN is not
    return value is None or isinstance(value, str)


def estimator(method: str, k: int, settings: Mapping[str, Any], **more: Any) -> Any:
    """An estimator for these settings, or a usage error that says which of them it does not take.

    A callback among them should be a function: what a bound method belongs to would be copied with the estimator.
    """
    import shoal

    name, fixed = METHODS[method]
    cls = getattr(shoal, name)
    takes = inspect.signature(cls).parameters
    given = {
        "init": _start(settings),
        "metric": None if settings.get("metric") == "euclidean" else settings.get("metric"),
        "time_budget": settings.get("time"),
        "n_threads": settings.get("threads"),
        "random_state": settings.get("seed", 0),
        **settings.get("extra", {}),
        **more,
    }
    given = {name: value for name, value in given.items() if value is not None}
    for parameter in given:
        if parameter not in takes or (parameter in RESERVED and parameter in settings.get("extra", {})):
            flag = {"time_budget": "--time", "init": "--init", "metric": "--metric"}.get(parameter, f"--set {parameter}")
            raise click.UsageError(f"{flag} means nothing to --method {method}: leave it out, or choose another method.")
    model = cls(k, **{**fixed, **given})
    try:
        model._validate_params()
    except (ValueError, TypeError, OverflowError) as error:
        raise click.UsageError(str(error)) from error
    return shoal.Standardized(model) if settings.get("standardize") else model


def warm(method: str, rows: Any, settings: Mapping[str, Any]) -> None:
    """Compile what the method needs for such rows, so that it does not count as time of the fit. Workers do so themselves."""
    if settings.get("engine") == "dask":
        return
    some = _made(rows)
    k = min(settings["clusters"], max(2, some.shape[0] // 10))
    init = settings.get("init") if settings.get("init") in SEEDINGS else None
    model = estimator(method, k, {**settings, "init": init, "time": None, "extra": {}, "standardize": False})
    quick = {"n_init": 1, "max_iter": 3}
    model.set_params(**{name: value for name, value in quick.items() if name in model.get_params()})
    with reading_data(), warnings.catch_warnings(action="ignore"):
        model.fit(some)


def _made(rows: Any) -> Any:
    """A few rows of the same type, layout and width. They are made up: those of a packed file would be unpacked once more."""
    import numpy as np
    from scipy import sparse

    rng, d = np.random.default_rng(0), rows.shape[1]
    m = max(4, min(WARM, (1 << 20) // d))
    if not sparse.issparse(rows.read(0, 0)):
        return rng.integers(1, 100, (m, d)).astype(rows.dtype)
    filled = min(d, 8)  # columns of a row, none of them twice
    values, columns = rng.integers(1, 100, m * filled).astype(rows.dtype), np.arange(m * filled) % d
    return sparse.csr_array((values, columns, np.arange(m + 1) * filled), shape=(m, d))


def _start(settings: Mapping[str, Any]) -> Any:
    """Where to start: by name, or centres from a file."""
    init = settings.get("init")
    if init is None or init in SEEDINGS:
        return init
    if not Path(init).exists():
        raise click.BadParameter(f"{init!r} is neither {', '.join(SEEDINGS)} nor a file.", param_hint="--init")
    if settings.get("standardize"):
        raise click.UsageError(f"--init {init}: its centres are in units that --standardize does away with: leave one out.")
    import numpy as np

    import shoal

    from .data import is_model, open_data
    from .errors import Turned, opening

    if not is_model(init):
        rows = open_data(init, {})
        with opening(init):
            return _in_order(init, np.asarray(rows), rows.feature_names, settings.get("names"))
    with opening(init):
        model = shoal.load(init)
    if not hasattr(model, "cluster_centers_"):
        raise Turned(f"{init}: is a {type(model).__name__} without centres to start from: name a model that has some.")
    return _in_order(init, model.cluster_centers_, getattr(model, "feature_names_in_", None), settings.get("names"))


def _in_order(init: str, centers: Any, names: Any, wanted: list[str] | None) -> Any:
    """Centres with their columns in the order of those of the rows, where both have names."""
    from .errors import BadData

    if names is None or wanted is None or list(names) == wanted:
        return centers
    if len(set(wanted)) < len(wanted) or sorted(names) != sorted(wanted):
        shown = [", ".join(some[:5]) + ", ..." * (len(some) > 5) for some in (list(names), wanted)]
        raise BadData(f"{init}: has the columns {shown[0]}, but the rows have {shown[1]}: give the centres those of the rows.")
    return centers[:, [list(names).index(name) for name in wanted]]
