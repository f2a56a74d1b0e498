"""Docstrings of the k-means estimators: complete, and alike where parameters and attributes are shared."""

import inspect
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import shoal

ESTIMATORS = [
    shoal.KMeans,
    shoal.NestedKMeans,
    shoal.HierarchicalKMeans,
    shoal.MiniBatchKMeans,
    shoal.OnlineKMeans,
    shoal.GradientKMeans,
    shoal.VarianceReducedKMeans,
    shoal.SphericalMixture,
]
SECTIONS = ["Parameters", "Attributes", "See Also", "Notes", "References", "Examples"]
# Entries whose meaning depends on the estimator.
OWN = {
    "max_iter",
    "history_",
    "batch_size",
    "learning_rate",
    ("SphericalMixture", "n_clusters"),
    ("SphericalMixture", "n_init"),
    ("SphericalMixture", "tol"),
    ("MiniBatchKMeans", "tol"),
    ("HierarchicalKMeans", "tol"),
    ("HierarchicalKMeans", "callback"),
    ("HierarchicalKMeans", "summary_"),
    ("NestedKMeans", "stop_reason_"),
}


def sections(cls):
    """Return the sections of a docstring by their titles."""
    parts = re.split(r"^(\w[\w ]+)\n-+\n", inspect.getdoc(cls), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(text):
    """Return the type and description of each entry of a section, without line breaks."""
    found = re.findall(r"^(\w+) : (.*)\n((?: .*\n?|\n)*)", text, re.MULTILINE)
    return {name: (kind, " ".join(description.split())) for name, kind, description in found}


every = pytest.mark.parametrize("cls", ESTIMATORS)


@every
def test_has_all_sections_in_order(cls):
    assert list(sections(cls)) == SECTIONS


@every
def test_parameters_are_those_of_the_constructor(cls):
    found, parameters = entries(sections(cls)["Parameters"]), inspect.signature(cls).parameters
    assert list(found) == list(parameters)
    for name, parameter in parameters.items():
        stated = re.search(r"default=(.*)$", found[name][0])[1]
        default = parameter.default
        assert stated.strip('"') == str(default) or float(stated) == default, name


@every
def test_attributes_are_those_of_a_fitted_model(cls):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(2, max_iter=5, random_state=0).fit(X)
    public = {name for name in dir(model) if name.endswith("_") and not name.startswith("_")}
    assert set(entries(sections(cls)["Attributes"])) == public


@pytest.mark.parametrize("section", ["Parameters", "Attributes"])
def test_shared_entries_are_described_alike(section):
    seen = {}
    for cls in ESTIMATORS:
        for name, entry in entries(sections(cls)[section]).items():
            if name not in OWN and (cls.__name__, name) not in OWN:
                assert seen.setdefault(name, entry) == entry, (cls.__name__, name)
