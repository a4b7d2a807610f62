#!/usr/bin/env python3
"""picture.py URL SECONDS: draws the dashboard with what the Prometheus at URL has of the last SECONDS, as SVG: a recording for those
who have no Grafana at hand. The panels, their places and their queries are those of grafana-dashboard.json."""

import html
import json
import math
import pathlib
import sys
import time
import urllib.parse
import urllib.request

COLOURS = ["#5794f2", "#73bf69", "#f2cc0c", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#8ab8ff"]
CELL, HEIGHT, GAP = 50, 34, 8


def ask(url, expression, seconds):
    for name, value in {"$__rate_interval": "5s", "$__range": f"{seconds}s", "$instance": ".*", "$probe": ".*", "$stream": ".*"}.items():
        expression = expression.replace(name, value)
    end = time.time()
    query = {"query": expression, "start": end - seconds, "end": end, "step": max(seconds / 120, 0.25)}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(query)}") as answer:
        return json.load(answer)["data"]["result"], end - seconds, end


def short(number):
    if number == 0 or not math.isfinite(number):
        return "0" if number == 0 else "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g}"


def text(x, y, content, size=11, colour="#ccccdc", anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{html.escape(content)}</text>'


def name(legend, labels):
    for label, value in labels.items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend or ", ".join(value for label, value in labels.items() if label != "__name__")


def draw(panel, url, seconds):
    place = panel["gridPos"]
    x, y, width, height = place["x"] * CELL, place["y"] * HEIGHT, place["w"] * CELL - GAP, place["h"] * HEIGHT - GAP
    if panel["type"] == "row":
        return [text(x + 4, y + 20, panel["title"], 14)]
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="#181b1f" stroke="#2c3235"/>',
           text(x + 10, y + 18, panel["title"], 12)]
    series, start, end = [], 0, 1
    for target in panel["targets"]:
        found, start, end = ask(url, target["expr"], seconds)
        for one in found:
            points = [(at, float(value)) for at, value in one["values"]]
            series.append((name(target["legendFormat"], one["metric"]), [(at, v) for at, v in points if math.isfinite(v)]))
    series = sorted((one for one in series if one[1]), key=lambda one: -one[1][-1][1])
    if panel["type"] == "stat":
        return out + [text(x + width / 2, y + height / 2 + 22, short(series[0][1][-1][1]) if series else "-", 34, "#ffffff", "middle")]
    if panel["type"] == "table":
        for index, (label, points) in enumerate(series[: (height - 40) // 20]):
            out += [text(x + 12, y + 44 + 20 * index, label), text(x + width - 12, y + 44 + 20 * index, short(points[-1][1]), anchor="end")]
        return out
    legend = 0 if panel["type"] == "heatmap" else min(len(series), 3)
    top, bottom, left, right = y + 30, y + height - 20 - 15 * legend, x + 54, x + width - 10
    most = max((v for _, points in series for _, v in points), default=0) or 1
    for part in (0, 0.5, 1):
        level = bottom - part * (bottom - top)
        out += [f'<path d="M{left} {level:.0f}H{right}" stroke="#2c3235"/>', text(left - 6, level + 4, short(part * most), 10, anchor="end")]
    for index, (label, points) in enumerate(series[:8]):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{left + (at - start) / (end - start) * (right - left):.1f},{bottom - v / most * (bottom - top):.1f}"
                        for at, v in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        if index < legend:
            level = bottom + 18 + 15 * index
            out += [f'<path d="M{left} {level - 4}h12" stroke="{colour}" stroke-width="2"/>', text(left + 18, level, label[:70], 10),
                    text(right, level, short(points[-1][1]), 10, anchor="end")]
    return out


def main(url, seconds):
    dashboard = json.loads(pathlib.Path(__file__).with_name("grafana-dashboard.json").read_text(encoding="utf-8"))
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    width, height = 24 * CELL, rows * HEIGHT
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">')
    print(f'<rect width="{width}" height="{height}" fill="#111217"/>')
    for panel in dashboard["panels"]:
        print("\n".join(draw(panel, url, seconds)))
    print("</svg>")


main(sys.argv[1], int(sys.argv[2]))
