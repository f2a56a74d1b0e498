"""Registry of clustering methods: the names accepted by `--method`, and the estimator behind each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

from .options import Command

DEFAULT_PASSES = 30  # typical number of passes over all rows until k-means converges; used for time estimates only
MAX_NUMBER = 1e300  # largest absolute value of a parameter; larger JSON integers do not convert to float


class MethodSpec(NamedTuple):
    """One entry of the registry."""

    estimator: str  # name of the class in `shoal`, which is imported on first use
    options: dict[str, Any]  # parameters that the method fixes
    is_comparable: bool = True  # starts from given centroids and reports the k-means energy, as `compare` and `sweep` require
    n_passes: int | None = DEFAULT_PASSES  # passes over the rows for time estimates; None: no estimate is possible
    max_clusters: str | None = None  # parameter that limits the number of clusters


def _spectral(estimator: str, max_clusters: str | None = None) -> MethodSpec:
    return MethodSpec(estimator, {}, is_comparable=False, n_passes=None, max_clusters=max_clusters)


REGISTRY: dict[str, MethodSpec] = {
    "auto": MethodSpec("NestedKMeans", {"quality": 0.01}, n_passes=3),
    "exact": MethodSpec("KMeans", {}),
    "lloyd": MethodSpec("KMeans", {"algorithm": "lloyd"}),
    "hamerly": MethodSpec("KMeans", {"algorithm": "hamerly"}),
    "elkan": MethodSpec("KMeans", {"algorithm": "elkan"}),
    "yinyang": MethodSpec("KMeans", {"algorithm": "yinyang"}),
    "exponion": MethodSpec("KMeans", {"algorithm": "exponion"}),
    "projected": MethodSpec("KMeans", {"algorithm": "projected"}),
    "nested": MethodSpec("NestedKMeans", {}),
    "hierarchical": MethodSpec("HierarchicalKMeans", {}, is_comparable=False, n_passes=None),
    "minibatch": MethodSpec("MiniBatchKMeans", {}, n_passes=3),
    "online": MethodSpec("OnlineKMeans", {}, n_passes=10),
    "gradient": MethodSpec("GradientKMeans", {}),
    "vrkm++": MethodSpec("VarianceReducedKMeans", {}),
    "mixture": MethodSpec("SphericalMixture", {}, n_passes=None),
    "compressed": MethodSpec("CompressedKMeans", {}, is_comparable=False),  # its energy is a Hamming distance
    "binary": MethodSpec("BinaryKMeans", {}, is_comparable=False),
    "spectral": _spectral("MiniBatchSpectral"),
    "spectral-exact": _spectral("ExactSpectral"),
    "spectral-power": _spectral("PowerSpectral"),
    "spectral-nystrom": _spectral("NystromSpectral", max_clusters="n_samples"),
    "spectral-landmarks": _spectral("LandmarkSpectral", max_clusters="n_landmarks"),
}
COMPARABLE_METHODS = [name for name, spec in REGISTRY.items() if spec.is_comparable]
INITIALIZATIONS = ("k-means++", "k-means||", "afk-mc2", "random")


class MethodName(click.ParamType):  # type: ignore[type-arg]
    """Name of a method."""

    name = "name"

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.names:
            near = get_close_matches(str(value).lower(), self.names, 1, 0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            self.fail(f"{value!r} is not one of {', '.join(self.names)}{hint}.", param, ctx)
        return str(value)


def _method_option(names: list[str]) -> Callable[[Command], Command]:
    description = f"Clustering method: {', '.join(names)}."
    return click.option("--method", type=MethodName(names), default="auto", show_default=True, metavar="NAME", help=description)


method_option, comparable_method_option = _method_option(list(REGISTRY)), _method_option(COMPARABLE_METHODS)
set_option = click.option(
    "--set", "extra", multiple=True, metavar="NAME=VALUE", help="Set another parameter of the estimator. Repeatable."
)


def parse_assignments(items: tuple[str, ...]) -> dict[str, Any]:
    """Parse the values of `--set`, such as `n_bits=64`. Values that are not valid JSON are strings."""
    parameters = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{item!r} is not of the form NAME=VALUE.", param_hint="--set")
        try:
            parameters[name] = json.loads(value)
        except (ValueError, RecursionError):
            parameters[name] = value
        if not is_parameter(parameters[name]):
            raise click.BadParameter(f"{item[:60]!r} is not a string, a finite number or a list of these.", param_hint="--set")
    return parameters


def is_parameter(value: Any, depth: int = 3) -> bool:
    """Return True if a JSON value is None, a string, a finite number, or lists of these nested at most `depth` deep."""
    if isinstance(value, list):
        return depth > 0 and all(is_parameter(inner, depth - 1) for inner in value)
    if isinstance(value, int | float):
        return -MAX_NUMBER <= value <= MAX_NUMBER  # False for NaN
    return value is None or isinstance(value, str)
