"""What pictures in the docs share: SVG with its own background, light or dark, for any page."""

STYLE = """
.card { fill: #ffffff; stroke: #d5d8dd; } .ink { fill: #1b1e23; } .soft { fill: #5a6069; }
.ours { fill: #2f6db5; } .theirs { fill: #8b929c; } .error { stroke: #1b1e23; stroke-width: 1.6; }
.goal { stroke: #0a6b45; stroke-width: 2.5; } .best { fill: #0a6b45; }
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.title { font-size: 16px; font-weight: 600; } .small { font-size: 12.5px; }
@media (prefers-color-scheme: dark) {
.card { fill: #15171b; stroke: #3a3f47; } .ink { fill: #e6e8eb; } .soft { fill: #a5abb4; }
.ours { fill: #5a97dd; } .theirs { fill: #777e88; } .error { stroke: #e6e8eb; }
.goal { stroke: #58c896; } .best { fill: #58c896; } }
"""


def card(size: tuple[int, int], told: list[str], drawn: str, style: str = STYLE) -> str:
    """A picture of this width and height; `told` says in words what is drawn."""
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{"; ".join(told)}"><style>{style}</style>'
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>'
        f"{drawn}</svg>\n"
    )


def titles(x: float, y: float, *lines: str) -> str:
    """A title and smaller lines below it."""
    places = [y, *(y + 22 + 18 * i for i in range(len(lines) - 1))]
    kinds = ["ink title", *["soft small"] * (len(lines) - 1)]
    return "".join(
        text(x, place, line, kind) for place, line, kind in zip(places, lines, kinds, strict=True)
    )


def error_bar(low: float, high: float, middle: float) -> str:
    ends = "".join(line("error", x, middle - 4, x, middle + 4) for x in (low, high))
    return line("error", low, middle, high, middle) + ends


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
