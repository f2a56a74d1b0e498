"""Charts are valid SVG, axes are legible, images are valid PNG."""

import base64
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.report import draw, words
from tests.report.hostile import PAYLOADS

SVG = "{http://www.w3.org/2000/svg}"


def parsed(markup):
    svg, _, rest = str(markup).partition("</svg>")
    return ET.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "</svg>"), rest


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_round_and_inside(low, width):
    axis = draw.axis("x", np.array([low, low + width]))
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12
    slack = 1e-6 * (axis.high - axis.low)
    assert all(axis.low - slack <= tick <= axis.high + slack for tick in ticks)
    assert ticks == sorted(ticks)


@given(st.floats(1e-200, 1e100), st.floats(60, 1e100))
def test_wide_ranges_get_a_logarithmic_axis(low, ratio):
    axis = draw.axis("x", np.array([low, low * ratio]))
    assert axis.log
    assert 2 <= len(axis.ticks()) <= 20
    np.testing.assert_allclose(axis.place(np.array([low, low * ratio])), [0, 1])


@pytest.mark.parametrize(
    "values",
    [[], [0.0], [5.0, 5.0], [-3.0], [np.nan, 1.0], [np.inf, 1.0, 2.0], [0.0, 1e300], [1e-300, 2e-300], [-1.7e308, 1.7e308]],
)
def test_any_values_can_be_drawn(values):
    values = np.array(values, float)
    line = draw.Line("a", np.arange(len(values), dtype=float), values)
    root, _ = parsed(draw.lines("k", "t", [line], "x", "y", level=1.0, mark=0.5))
    assert "nan" not in ET.tostring(root, encoding="unicode")


@pytest.mark.parametrize("values", [[4.0, 2.0, 1.0], [1e6, 1.0, 1e3], [1.0, np.nan, 2.0]])
def test_a_spread_is_a_band_inside_the_chart(values):
    line = draw.Line("a", np.arange(3.0), np.array(values), np.array([1.0, 1e9, np.nan]))
    root, _ = parsed(draw.lines("k", "t", [line], "x", "y"))
    (band,) = root.findall(f"{SVG}path[@class='band']")
    places = [float(number) for number in band.get("d")[1:-1].replace("L", " ").split()]
    assert len(places) == 4 * np.isfinite(values).sum()
    assert all(0 <= left <= draw.WIDTH and 0 <= top <= draw.HEIGHT for left, top in zip(places[::2], places[1::2], strict=True))


def test_bars_with_names_stay_inside_the_chart():
    values, spreads = np.array([0.9, 0.45, 0.0]), np.array([0.1, 0.5, 0.0])
    root, _ = parsed(draw.ranking("k", "t", ["one", "<b>", "three"], values, spreads, "ACC"))
    assert [text.text for text in root.iter(f"{SVG}text")] == [
        "one", "0.900 ± 0.100", "<b>", "0.450 ± 0.500", "three", "0.000", "ACC"
    ]  # fmt: skip
    assert all(float(text.get("x")) < draw.WIDTH - 80 for text in root.iter(f"{SVG}text"))
    widths = [float(path.get("d").split("h")[1].split("v")[0]) for path in root.findall(f"{SVG}path[@class='bars']")]
    assert widths[1] == pytest.approx(widths[0] / 2)
    assert widths[2] == 0


def test_charts_have_a_title_and_a_description():
    series = [draw.Line("first", np.arange(5.0), np.arange(5.0)), draw.Line("second", np.arange(5.0), np.ones(5))]
    root, legend = parsed(draw.lines("k", "Energy against time", series, "seconds", "energy"))
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "Energy against time"
    assert "energy over seconds, 2 lines" in root.find(f"{SVG}desc").text
    assert root.get("aria-labelledby").split() == [root.find(f"{SVG}title").get("id"), root.find(f"{SVG}desc").get("id")]
    assert "first" in legend
    assert len(root.findall(f"{SVG}path[@class='line']")) == 2


@pytest.mark.parametrize("text", PAYLOADS, ids=range(len(PAYLOADS)))
def test_names_add_no_markup(text):
    line = draw.Line(text, np.arange(3.0), np.arange(3.0))
    root, legend = parsed(draw.lines("k", text, [line, line], text, text))
    plain, plain_legend = parsed(draw.lines("k", "t", [line._replace(name="n")] * 2, "x", "y"))
    assert [e.tag for e in root.iter()] == [e.tag for e in plain.iter()]
    assert legend.count("<") == plain_legend.count("<")


def test_thinning_retains_the_first_and_last_point():
    shown = draw.thinned(100_000)
    assert len(shown) == draw.MAX_LINE_POINTS
    assert (shown[0], shown[-1]) == (0, 99_999)
    assert draw.thinned(0).tolist() == []
    assert draw.thinned(3).tolist() == [0, 1, 2]


def test_bars_and_points():
    root, _ = parsed(draw.bars("k", "Sizes", np.array([5, 3, 0]), "clusters", "rows"))
    assert root.find(f"{SVG}path[@class='bars']").get("d").count("M") == 2
    labels = np.arange(50) % 3
    points = np.random.default_rng(0).normal(size=(50, 2)) + 9 * labels[:, None]
    root, _ = parsed(draw.scatter("m", "Map", points, labels, [0, 2], ("first, 60%", "second")))
    groups = root.findall(f"{SVG}path[@class='points']")
    assert [g.get("data-cluster") for g in groups] == ["0", "1", "2"]
    assert sum(g.get("d").count("M") for g in groups) == 50
    assert [t.text for t in root.findall(f"{SVG}text[@class='center']")] == ["0", "2"]
    assert [t.text for t in root.findall(f"{SVG}text[@class='name']")] == ["first, 60%", "second"]


def test_labels_on_the_map_do_not_overlap():
    """Earlier labels take precedence; those that fit only on wide pages are marked."""
    points = np.array([[0, 0], [0.1, 0.1], [60, 0], [0, 1.9], [30, 30]])
    root, _ = parsed(draw.scatter("m", "Map", points, np.arange(5), [1, 2, 0, 3], ("x", "y")))
    numbers = {t.text: t.get("class") for t in root.iter(f"{SVG}text") if "center" in t.get("class")}
    assert numbers == {"1": "center", "2": "center", "3": "center close"}


def test_colours_of_neighbours_differ():
    colours = [draw.colour(i) for i in range(300)]
    assert all(len(c) == 7 for c in colours)
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours], float)
    for i in range(12):
        for j in range(i):
            assert np.linalg.norm(rgb[i] - rgb[j]) > 25
    brightness = rgb @ [0.2126, 0.7152, 0.0722]
    assert brightness.min() > 60  # visible on black
    assert brightness.max() < 215  # and on white


def decoded(url):
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    size = struct.unpack(">I", data[33:37])[0]
    lines = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(height, -1)
    assert depth == 8
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:].reshape(height, width, 3) if kind == 2 else lines[:, 1:]


def test_pictures():
    values = np.array([[0.0, 1.0, 2.0], [4.0, np.nan, 9.0]])
    np.testing.assert_array_equal(decoded(draw.picture(values, 0, 4)), [[0, 64, 128], [255, 0, 255]])
    colours = np.random.default_rng(0).integers(0, 256, (4, 5, 3))
    np.testing.assert_array_equal(decoded(draw.picture(colours, 0, 255)), colours)
    assert decoded(draw.picture(np.ones((300, 200)), 0, 1)).shape == (60, 40)
    assert decoded(draw.picture(np.ones((2, 2, 1)), 1, 1)).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234.5678, "1,235"), (12345.678, "12,346"), (123456789, "123.5M"), (5.4321e9, "5.432G"), (5e12, "5e12"),
        (0.00012, "0.00012"), (49152.0, "49,152"), (-1.5, "−1.5"),
        (-1234567.0, "−1.235M"), (1e-12, "1e−12"), (float("inf"), "∞"), (float("nan"), "–"), (None, "–"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert words.number(value) == text


def test_times_and_ticks():
    assert [words.seconds(s) for s in (0.0123, 1.234, 90, 600, 10_000, None)] == [
        "12.3 ms", "1.23 s", "90 s", "10.0 min", "2.8 h", "–",
    ]  # fmt: skip
    assert [words.short(v) for v in (0, 0.5, 1500, 2e6, 3e9, 1e15, -2000)] == ["0", "0.5", "1.5k", "2M", "3G", "1e15", "−2k"]


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_neighbours_on_an_axis_differ(low, width):
    labels = list(draw.axis("x", np.array([low, low + width])).labels().values())
    assert len(set(labels)) == len(labels) >= 2


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (57_050, 57_062, ["57,050", "57,055", "57,060"]),
        (57_050, 57_150, ["57.06k", "57.08k", "57.10k", "57.12k", "57.14k"]),
        (0, 2100, ["0", "500", "1,000", "1,500", "2,000"]),
        (-4e5, 1.2e6, ["0", "0.5M", "1.0M"]),
        (0, 4e-5, ["0", "1e−5", "2e−5", "3e−5", "4e−5"]),
        (1e13, 1.01e13, ["1.000e13", "1.002e13", "1.004e13", "1.006e13", "1.008e13", "1.010e13"]),
    ],
)
def test_labels_have_the_digits_of_the_step(low, high, labels):
    assert list(draw.Axis("x", low, high).labels().values()) == labels


def test_labels_fit_at_the_font_size_of_narrow_pages():
    """The font size is 18 units of 640; a digit is 0.6 of that wide."""
    line = draw.Line("a", np.linspace(0, 2e5, 9), np.linspace(57_050.1, 57_050.2, 9))
    root, _ = parsed(draw.lines("k", "t", [line], "rows", "energy"))
    texts = list(root.iter(f"{SVG}text"))
    for text in texts:
        wide, place = 18 * 0.6 * len(text.text), float(text.get("x"))
        first = place - {"end": 1, "middle": 0.5}.get(text.get("text-anchor"), 0) * wide
        assert 0 <= first < first + wide <= draw.WIDTH
    name = next(text for text in texts if text.text == "energy")
    assert float(name.get("y")) + 6 < min(float(text.get("y")) for text in texts if text is not name) - 12


@pytest.mark.parametrize("text", PAYLOADS, ids=range(len(PAYLOADS)))
def test_clean_text_is_short_and_printable(text):
    found = words.clean(text, 100)
    assert len(found) <= 100 * 6
    assert all(c.isprintable() or c in words.JOINERS for c in found)
    found.encode()


def test_first_points_far_above_the_rest_are_cut_off():
    """The axis covers the other points, and the line begins where it crosses the edge of the chart."""
    x, y = np.arange(6.0), np.array([1000.0, 14, 12, 11, 10.5, 10])
    root, _ = parsed(draw.lines("k", "t", [draw.Line("a", x, y)], "x", "y"))
    ticks = [float(text.text) for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert max(ticks) <= 15
    (path,) = (path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "line")
    first, second = (list(map(float, place.split())) for place in path[1:].split("L")[:2])
    assert first[1] == draw.TOP < second[1]
    assert first[0] < second[0]
    assert first[0] == pytest.approx(second[0], abs=1)


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "0.40"), (-0.126, "−0.13"), (0.0, "0.00"), (None, "–"), (float("nan"), "–"), (float("inf"), "∞")]
)
def test_scores_have_a_fixed_number_of_decimals(value, text):
    assert words.fixed(value) == text


def test_bars_of_clusters_have_their_numbers_and_colours():
    root, _ = parsed(draw.cluster_bars("k", "Sizes", np.array([5, 3, 0]), [2, 0, 1], "rows"))
    bars = [path for path in root.iter() if path.get("fill")]
    assert [bar.get("fill") for bar in bars] == [draw.colour(2), draw.colour(0), draw.colour(1)]
    heights = [-float(bar.get("d").partition("v")[2].partition("h")[0]) for bar in bars]
    assert heights[0] / heights[1] == pytest.approx(5 / 3, rel=1e-3)
    assert heights[2] == 0
    words = [text.text for text in root.iter() if text.tag.endswith("text")]
    assert words[:3] == ["2", "0", "1"]
