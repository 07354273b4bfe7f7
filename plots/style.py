"""What all figures share: colours, fonts and sizes that survive a printed column, and how files are read and written."""

import csv
import sys
from pathlib import Path

try:
    import matplotlib
except ImportError:
    sys.exit(f"{Path(sys.argv[0]).name}: this python3 has no matplotlib (package python3-matplotlib); "
             "/usr/bin/python3 may have it")

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of backend)
from matplotlib import ticker  # noqa: E402

# Okabe and Ito: told apart with every common colour vision. Yellow is left out: too pale for a line on white.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]

COLUMN_INCHES = 3.4  # one column of a two-column paper
PNG_DPI = 200


def apply():
    """Sets matplotlib's defaults; call before making a figure."""
    plt.rcParams.update({
        "font.family": "sans-serif", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8,
        "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7,
        "axes.linewidth": 0.6, "lines.linewidth": 1.2, "lines.markersize": 4,
        "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.linewidth": 0.4, "grid.color": "#dddddd", "axes.axisbelow": True,
        "legend.frameon": False,
        "pdf.fonttype": 42,  # text stays text
    })


def fail(message):
    """Ends the script for bad input: one message, exit code 2."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def read_csv(path, columns):
    """Rows of a CSV file as dictionaries; ends the script when the file or one of `columns` is missing."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    missing = [name for name in columns if name not in (reader.fieldnames or [])]
    if missing:
        fail(f"{path}: no column {', '.join(missing)}")
    return rows


def save(figure, folder, name):
    """Writes FOLDER/name.pdf and FOLDER/name.png; returns the path of the PDF."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pdf = folder / f"{name}.pdf"
    figure.savefig(pdf, bbox_inches="tight", metadata={"CreationDate": None})  # same input, same bytes
    figure.savefig(folder / f"{name}.png", bbox_inches="tight", dpi=PNG_DPI)
    return pdf
