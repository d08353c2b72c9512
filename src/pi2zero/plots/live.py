"""Pictures as SVG text: drawn in a millisecond, so that they follow a slider.

Text and lines have the colour of the page around them, light or dark. `ghost` is what was shown
before, as a dashed line.
"""

import html
import itertools
import math
import re

from pi2zero.plots.style import ORANGE, rank_color

__all__ = ["column_svg", "grid_svg", "line_svg", "stacked_bars_svg"]

WIDTH, ROW, GAP = 560, 20, 8  # units of the picture, which is as wide as there is room
DASHED = 'stroke="currentColor" stroke-dasharray="4 3" fill="none"'


def stacked_bars_svg(rows, colors, unit, limit=None, longest=None, ghost=(), bold="", title=""):
    """A stacked bar for each row, with its sum.

    rows: {label: {part: value}}. colors: {part: colour}; other parts are left out. limit: where a
    line is drawn. longest: where the axis ends; a longer bar is cut there. ghost: {label: sum}.
    """
    sums = {label: sum(parts.get(name, 0) for name in colors) for label, parts in rows.items()}
    ghost = dict(ghost)
    above = max((len(label) for label in rows), default=0) > 9  # long labels get their own line
    left, height = (4, 2 * ROW + GAP) if above else (72, ROW + GAP)
    longest = longest or max([*sums.values(), *ghost.values(), limit or 0]) * 1.02 or 1
    scale = (WIDTH - left - 90) / longest
    used = [name for name in colors if any(parts.get(name) for parts in rows.values())]
    pieces, first = _legend({name: colors[name] for name in used})
    top = first
    for label, parts in rows.items():
        weight = "bold" if label == bold else "normal"
        y = top + (ROW if above else 0)
        place = (left, y - 5, label, "start") if above else (left - 6, y + 15, label, "end")
        pieces.append(_text(*place, weight))
        x = 0.0
        for name in used:
            end = min(x + parts.get(name, 0), longest)
            pieces.append(_box(left + x * scale, y, (end - x) * scale, ROW, colors[name]))
            x = end
        if label in ghost:
            former = min(ghost[label], longest)
            pieces.append(
                f'<rect x="{left}" y="{y}" width="{former * scale:.1f}" height="{ROW}" {DASHED}/>'
            )
            x = max(x, former)  # the number stands outside of it
        more = "▸ " if sums[label] > longest else ""
        number = f"{more}{_short(sums[label])}{unit}"
        pieces.append(_text(f"{left + x * scale + 5:.1f}", y + 15, number, "start", weight))
        top += height
    if limit:
        x = left + min(limit, longest) * scale
        pieces.append(
            f'<path d="M{x:.1f} {first - GAP} V{top}" stroke="currentColor" stroke-width="2"/>'
        )
        pieces.append(_text(x, top + 14, f"limit {_short(limit)}{unit}"))
        top += 20
    return _svg(pieces, WIDTH, top, title)


def line_svg(xs, ys, mark, ghost=(), x_label="", y_label="", title=""):
    """A curve of percentages over powers of 2, with the point `mark` = (x, y) on it."""
    left, top, width, height = 50, 28, WIDTH - 70, 220
    last = math.log2(max(xs))

    def point(x, y):
        return f"{left + width * math.log2(x) / last:.1f},{top + height * (1 - y / 100):.1f}"

    pieces = []
    for y in (0, 25, 50, 75, 100):
        start, end = point(1, y), point(max(xs), y)
        pieces.append(f'<polyline points="{start} {end}" stroke="currentColor" opacity=".2"/>')
        pieces.append(_text(left - 8, float(start.split(",")[1]) + 4, y, "end"))
    for x in xs[::2]:
        pieces.append(_text(float(point(x, 0).split(",")[0]), top + height + 16, f"{x:,}"))
    pieces.append(_text(left + width / 2, top + height + 34, x_label))
    pieces.append(_text(left, 11, y_label, "start"))
    for values, style in ((ghost, f"{DASHED} opacity='.6'"), (ys, _stroke(rank_color(0)))):
        points = " ".join(point(x, y) for x, y in zip(xs, values, strict=False))
        pieces.append(f'<polyline points="{points}" {style}/>')
    x, y = point(*mark).split(",")
    pieces.append(f'<circle cx="{x}" cy="{y}" r="6" fill="{ORANGE}"/>')
    former = dict(zip(xs, ghost, strict=False)).get(mark[0], mark[1])
    away = -12 if former < mark[1] else 22  # from the former curve
    pieces.append(_text(x, float(y) + away, f"{mark[1]:.1f} %", weight="bold"))
    return _svg(pieces, WIDTH, top + height + 40, title)


def grid_svg(layout, ranks_per_node, title=""):
    """Each rank's part of the model, as plots.layout_grid draws it."""
    replicas, stages, strips = layout.data, layout.pipeline, layout.spatial
    columns = replicas * (strips + 0.4)
    size = min(46.0, (WIDTH - 70) / columns)
    row, pieces = min(max(size, 20), 34), []
    for replica, stage, strip in itertools.product(range(replicas), range(stages), range(strips)):
        places = {"spatial": strip, "data": replica, "pipeline": stage}
        rank = sum(place * layout.stride(name) for name, place in places.items())
        x, y = 66 + (replica * (strips + 0.4) + strip) * size, stage * row
        pieces.append(_box(x, y, size - 2, row - 2, rank_color(rank // ranks_per_node), 0.6))
        if size >= 18:
            pieces.append(_text(x + size / 2 - 1, y + row / 2 + 4, rank))
    for stage in range(stages):
        both = f" and {stages - 1 - stage}" if layout.is_bidirectional else ""
        pieces.append(_text(60, stage * row + row / 2 + 4, f"stage {stage}{both}", "end"))
    words = "block: replica; column: strip; colour: node"
    pieces.append(_text(66, stages * row + 16, words, "start"))
    return _svg(pieces, WIDTH, stages * row + 24, title)


def column_svg(*pictures, title=""):
    """One picture with these below each other."""
    pieces, top = [], 0.0
    for picture in pictures:
        height = float(re.search(r'viewBox="0 0 \S+ (\S+)"', picture)[1])
        place = f'<svg y="{top:.0f}" width="{WIDTH}" height="{height:.0f}"'
        pieces.append(re.sub(r' style="[^"]*"', "", picture, count=1).replace("<svg", place, 1))
        top += height + GAP
    return _svg(pieces, WIDTH, top, title)


def _svg(pieces, width, height, title):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'font-family="sans-serif" font-size="13" fill="currentColor" style="width:100%;'
        f'max-width:{1.25 * width:.0f}px"><title>{html.escape(title)}</title>'
        f"{''.join(pieces)}</svg>"
    )


def _legend(colors):
    """(its pieces, where it ends)"""
    pieces, x, y = [], 4, 2
    for name, color in colors.items():
        width = 26 + 7.8 * len(name)
        if x + width > WIDTH:
            x, y = 4, y + ROW
        pieces += [_box(x, y, 12, 12, color), _text(x + 17, y + 11, name, "start")]
        x += width
    return pieces, y + ROW + GAP


def _box(x, y, width, height, color, opacity=1.0):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
        f'fill="{color}" opacity="{opacity}"/>'
    )


def _text(x, y, text, anchor="middle", weight="normal"):
    words = html.escape(str(text))
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def _stroke(color):
    return f'stroke="{color}" stroke-width="3" fill="none"'


def _short(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
