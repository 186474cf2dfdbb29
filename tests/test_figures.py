"""Figures that can be read: labels keep apart, and every curve has a name."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

from gradband.core import figures


def boxes(texts, figure):
    """Where the texts that are seen stand, in pixels."""
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in texts if text.get_visible() and text.get_text()]


def apart(texts, figure):
    found = boxes(texts, figure)
    return all(not one.overlaps(other) for one, other in itertools.combinations(found, 2))


@pytest.mark.parametrize(
    "values",
    [
        np.geomspace(1, 0.0016, 30),
        np.geomspace(1, 0.3, 30),
        np.linspace(0.0105, 0.0101, 30),
        np.geomspace(1, 1e-6, 30),
        np.full(30, 0.02),
        np.array([0.05]),
    ],
    ids=["small", "within a decade", "nearly constant", "tiny", "constant", "one"],
)
@pytest.mark.parametrize("count", [1, 3])
def test_ticks_of_parameters_keep_apart_and_all_have_names(values, count):
    names = ["theta"] if count == 1 else ["a", "b", "theta"]
    columns = np.stack([values * (1 + 0.2 * i) for i in range(count)], 1)
    figure, axes = plt.subplots(2, 1, figsize=(7, 5.6), layout="constrained")
    figures.parameters(axes[1], np.arange(len(values)), columns, names)
    seen = [text for text in axes[1].get_yticklabels() if text.get_text()]
    figure.canvas.draw()
    low, high = axes[1].get_ylim()
    inside = [
        text
        for text, place in zip(axes[1].get_yticklabels(), axes[1].get_yticks(), strict=True)
        if low <= place <= high
    ]
    assert apart(inside, figure)
    assert len({text.get_text() for text in inside}) == len(inside) >= 2, seen
    assert not [text for text in axes[1].get_yticklabels(minor=True) if text.get_text()]
    legend = axes[1].get_legend()
    shown = [text.get_text() for text in legend.get_texts()] if legend else [axes[1].get_ylabel()]
    assert shown == (["θ"] if count == 1 else ["a", "b", "θ"])
    plt.close(figure)
