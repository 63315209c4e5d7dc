"""The whole run as a picture: which members were up, when faults were injected, and how clients were answered meanwhile."""
from xml.sax.saxutils import escape

from .history import ANSWERED
from .site import ALL

LEFT, RIGHT, ROW, CHART, TOP = 90, 20, 16, 120, 30
COLOURS = {"ALIVE": "#8fbf8f", "SUSPECT": "#e8c15a", "DEAD": "#c0504d", "LEFT": "#999999", "DRAINING": "#9db7dd",
           "AWAY": "#c0504d"}
BUCKET = 0.5  # seconds


class Picture:
    def __init__(self, history, end):
        self.history, self.begin, self.end = history, history.start, end
        self.width = max(700, min(3000, int((end - self.begin) * 6)))
        self.out = []

    def x(self, at):
        return LEFT + (at - self.begin) / (self.end - self.begin) * self.width

    def text(self, x, y, text, **more):
        extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(str(text))}</text>')

    def bands(self, top):
        """A row a member, coloured by what the manager said of it; the manager's row shows whether it could be reached."""
        for row, name in enumerate(ALL):
            y = top + row * ROW
            self.text(LEFT - 6, y + 11, name, text_anchor="end")
            states = [(at, text) for at, kind, member, text in self.history.marks() if kind == "state" and member == name]
            for (at, state), (until, _) in zip(states, [*states[1:], (self.end, "")]):
                self.out.append(f'<rect x="{self.x(at):.1f}" y="{y + 2}" width="{max(0.5, self.x(until) - self.x(at)):.1f}" '
                                f'height="{ROW - 4}" fill="{COLOURS.get(state, "#dddddd")}"/>')
        return top + len(ALL) * ROW + 8

    def faults(self, top, bottom):
        for at, kind, member, text in self.history.marks():
            if kind == "kind":
                self.out.append(f'<line x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{top}" y2="{bottom}" '
                                f'stroke="#444" stroke-dasharray="2 3"/>')
                self.text(0, 0, text, font_size=9, transform=f"translate({self.x(at) + 3:.1f} {bottom + 8}) rotate(60)")

    def answers(self, top):
        """Answered operations a second, and tries that were not answered well as ticks below."""
        counts = [0] * (int((self.end - self.begin) / BUCKET) + 1)
        for operation in self.history.operations():
            if operation.outcome == ANSWERED and operation.ended <= self.end:
                counts[int((operation.ended - self.begin) / BUCKET)] += 1
        most = max(counts) or 1
        points = " ".join(f"{self.x(self.begin + (i + 0.5) * BUCKET):.1f},{top + CHART - count / most * CHART:.1f}"
                          for i, count in enumerate(counts[:-1]))
        self.out.append(f'<polyline points="{points}" fill="none" stroke="#2f5d9b"/>')
        self.text(LEFT - 6, top + 10, f"{most / BUCKET:.0f}/s", text_anchor="end")
        self.text(LEFT - 6, top + CHART, "answers", text_anchor="end")
        y = top + CHART + 6
        for at, *_ in self.history.failed_tries(self.begin, self.end):
            self.out.append(f'<line x1="{self.x(at):.1f}" x2="{self.x(at):.1f}" y1="{y}" y2="{y + 8}" stroke="#c0504d"/>')
        self.text(LEFT - 6, y + 9, "tries failed", text_anchor="end")
        return y + 12


def write(path, history, end, title):
    picture = Picture(history, end)
    picture.text(8, 18, title, font_size=13)
    below = picture.bands(TOP)
    bottom = picture.answers(below)
    picture.faults(TOP, bottom)
    height = bottom + 130
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + picture.width + RIGHT}" height="{height}" '
                    'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
                    + "".join(picture.out) + "</svg>\n")
