"""Public exceptions and the page that documents them."""

import inspect
import re
from pathlib import Path

import pytest

from shoal import exceptions

PAGE = Path(__file__).parents[1] / "docs" / "exceptions.md"
PUBLIC = {name: cls for name, cls in inspect.getmembers(exceptions, inspect.isclass) if not name.startswith("_")}


def test_the_page_lists_every_exception_and_its_base_class():
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {name: cls.__base__.__name__ for name, cls in PUBLIC.items()}


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_say_what_raises_it_and_how_to_fix_it(name):
    doc = inspect.getdoc(PUBLIC[name])
    assert doc.startswith("Raised ")
    assert "Notes\n-----" in doc
