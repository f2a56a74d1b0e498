"""`shoal methods`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

from .estimators import OPTION_OF_PARAMETER, RESERVED_PARAMETERS
from .methods import REGISTRY, MethodName, MethodSpec
from .options import debug_option, json_option

OPTIONS = {**OPTION_OF_PARAMETER, "random_state": "--seed", "n_threads": "--threads"}  # parameters with an option of their own


@click.command("methods", short_help="List the methods, or the parameters of one.")
@click.argument("name", type=MethodName(REGISTRY), required=False)
@json_option
@debug_option
def list_methods(name: str | None, as_json: bool) -> None:
    """List the clustering methods, or the parameters of the method NAME that --set accepts.

    Example: shoal methods spectral
    """
    import shoal

    from .output import echo_stdout, show

    if name is None:
        rows = [[method, _call(spec), _summary(getattr(shoal, spec.estimator))] for method, spec in REGISTRY.items()]
        if as_json:
            show({"methods": [dict(zip(("method", "estimator", "summary"), row, strict=True)) for row in rows]}, True, {})
            return
        width = max(len(method) for method in REGISTRY)
        for method, estimator, summary in rows:
            echo_stdout(f"{method:<{width}}  {estimator}: {summary}")
        return
    spec = REGISTRY[name]
    cls = getattr(shoal, spec.estimator)
    described = _described(cls)
    parameters = [
        {"name": key, "default": _default(spec.options.get(key, parameter.default)), "description": described.get(key, "")}
        for key, parameter in inspect.signature(cls).parameters.items()
        if key not in RESERVED_PARAMETERS
    ]
    if as_json:
        show({"method": name, "estimator": spec.estimator, "parameters": parameters}, True, {})
        return
    echo_stdout(f"{name}: {spec.estimator}. {_summary(cls)}")
    width = max(len(p["name"]) for p in parameters)
    for p in parameters:
        option = OPTIONS.get(p["name"], f"--set {p['name']}=")
        echo_stdout(f"{p['name']:<{width}}  {p['description']} Default: {p['default']} ({option})")


def _call(spec: MethodSpec) -> str:
    """Return the estimator with the parameters that the method sets."""
    fixed = ", ".join(f"{name}={value!r}" for name, value in spec.options.items())
    return f"{spec.estimator}({fixed})"


def _summary(cls: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def _default(value: Any) -> str:
    return str(value) if isinstance(value, str) else repr(value)


def _described(cls: Any) -> dict[str, str]:
    """Return the first sentence on each parameter, from the docstring."""
    section = (inspect.getdoc(cls) or "").partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\w[\w ]+\n-+\n", section)[0]
    found = {}
    for match in re.finditer(r"^(\w+) : [^\n]*\n((?: {4}[^\n]*\n?|\n)+)", section, re.MULTILINE):
        found[match[1]] = re.split(r"(?<=\.)\s", " ".join(match[2].split()))[0]
    return found
