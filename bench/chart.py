"""A bar chart as SVG, of the figures whose name begins with a prefix: one bar each, its range over the rounds as a line."""
from xml.sax.saxutils import escape

ROW, LABEL, WIDTH, MARGIN = 18, 330, 520, 30


def bars(figures, prefix, path, title, goal=None):
    """Writes `path` and says whether there was anything to draw. `goal` is a value to draw a line at."""
    rows = [f for f in figures if f["name"].startswith(prefix)]
    if not rows:
        return False
    longest = max([f["max"] for f in rows] + [goal or 0]) or 1
    height = MARGIN * 2 + ROW * len(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 90}" height="{height}" font-family="sans-serif"'
           f' font-size="11"><rect width="100%" height="100%" fill="white"/>'
           f'<text x="8" y="18" font-size="13">{escape(title)} ({escape(rows[0]["unit"])})</text>']

    def x(value):
        return LABEL + max(0.0, value) / longest * WIDTH

    for i, figure in enumerate(rows):
        y = MARGIN + i * ROW
        out.append(f'<text x="{LABEL - 6}" y="{y + 12}" text-anchor="end">{escape(figure["name"][len(prefix):])}</text>'
                   f'<rect x="{LABEL}" y="{y + 3}" width="{x(figure["value"]) - LABEL:.1f}" height="{ROW - 7}" fill="#4a78b5"/>'
                   f'<line x1="{x(figure["min"]):.1f}" x2="{x(figure["max"]):.1f}" y1="{y + 8.5}" y2="{y + 8.5}" stroke="black"/>'
                   f'<text x="{x(figure["max"]) + 6:.1f}" y="{y + 12}">{figure["value"]:.3g}</text>')
    if goal is not None:
        out.append(f'<line x1="{x(goal):.1f}" x2="{x(goal):.1f}" y1="{MARGIN}" y2="{height - MARGIN}" stroke="#b5484a"'
                   f' stroke-dasharray="4 3"/>')
    out.append("</svg>\n")
    path.write_text("\n".join(out))
    return True
