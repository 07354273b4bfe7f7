#!/usr/bin/env python3
"""Checks the #include lines of kernels/ and sim/ against the allowed directions, and a few rules of layout.

    include_directions.py ROOT      check the tree at ROOT; exit 1 with one line per violation
                                    (the checker first proves on small trees that it can fail)
"""

import re
import sys
import tempfile
from pathlib import Path

SHARED_KERNEL_HEADERS = ("kernels/shapes.hpp", "kernels/traffic_", "kernels/linear_dispatch.hpp", "kernels/profile_columns.hpp")
YAML_READER = ("sim/config/yaml", "sim/config/quantity.hpp")  # read any document; know nothing of experiments

# Folder -> prefixes that its files may include. The longest matching folder counts; a folder may always include itself.
ALLOWED = {
    "kernels": (),
    "kernels/reference": ("kernels/shapes.hpp", "kernels/split_word.hpp", "kernels/traffic_"),
    "kernels/calibrate": ("kernels/", "sim/base/", "sim/config/"),
    "sim/base": (),
    "sim/engine": ("sim/base/",),
    "sim/model": ("sim/base/", *SHARED_KERNEL_HEADERS),
    "sim/cost": ("sim/base/", "sim/model/", "sim/cost/tables/", "sim/cost/graph/", *YAML_READER, *SHARED_KERNEL_HEADERS),
    "sim/cost/tables": ("sim/base/", "sim/cost/", *YAML_READER, *SHARED_KERNEL_HEADERS),
    "sim/cost/graph": ("sim/base/", "sim/model/", "sim/cost/", "sim/cost/tables/", *SHARED_KERNEL_HEADERS),
    "sim/memory": ("sim/base/", "sim/model/", "sim/cost/", *SHARED_KERNEL_HEADERS),
    "sim/workload": ("sim/base/",),
    "sim/config": ("sim/base/", "sim/model/", "sim/cost/", "sim/memory/", "sim/policies/", "sim/workload/", *SHARED_KERNEL_HEADERS),
    "sim/policies": ("sim/base/", "sim/model/", "sim/cost/", "sim/memory/", *SHARED_KERNEL_HEADERS),
    "sim/results": ("sim/base/", "sim/cost/", "sim/memory/", "sim/workload/", *SHARED_KERNEL_HEADERS),
    "sim/serving": ("sim/base/", "sim/engine/", "sim/model/", "sim/cost/", "sim/memory/", "sim/workload/",
                    "sim/policies/", "sim/results/", "sim/config/experiment.hpp", *SHARED_KERNEL_HEADERS),
    "sim/cli": ("sim/", *SHARED_KERNEL_HEADERS),
    "sim": ("sim/cli/", "sim/base/"),  # main.cpp
}

# Libraries that stay in one place: include prefix -> (where it may stand, in how many files).
CONFINED = {
    "boost/graph/": (re.compile(r"sim/cost/(graph/)?[^/]+\.cpp"), 1),
    "cuda": (re.compile(r"kernels/.*"), None),
    "cupti": (re.compile(r"kernels/calibrate/.*"), None),
    "yaml-cpp/": (re.compile(r"sim/(config/.*|cli/result_files\.cpp)"), None),
    "CLI/": (re.compile(r"(sim/(cli/.*|main\.cpp)|kernels/calibrate/.*)"), None),
}

SOURCE_SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".h"}
MAX_LINES = 500
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def allowed_prefixes(path):
    """The folder of ALLOWED that rules over `path`, and the prefixes that it may include."""
    folders = [f for f in ALLOWED if path.startswith(f + "/")]
    if not folders:
        return None, ()
    folder = max(folders, key=len)
    return folder, ALLOWED[folder]


def check_include(root, path, line, quote, target):
    """Yields what is wrong with one #include."""
    where = f"{path}:{line}"
    for prefix, (place, _) in CONFINED.items():
        if target.startswith(prefix) and not place.fullmatch(path):
            yield f"{where}: <{target}> is confined to {place.pattern}"
    ours = target.startswith(("kernels/", "sim/"))
    if quote == '"' and not ours:
        yield f'{where}: "{target}" is not a path from the root of the repository'
    if not ours:
        return
    if not (root / target).is_file():
        yield f"{where}: {target} does not exist"
    folder, prefixes = allowed_prefixes(path)
    if folder is None:
        yield f"{where}: no rule for this folder; add it to ALLOWED"
    elif Path(target).parent.as_posix() != folder and not target.startswith(prefixes):
        yield f"{where}: {folder} may not include {target}"


def check_tree(root):
    """All violations below `root`, in the order of the files."""
    problems = []
    users = {prefix: set() for prefix in CONFINED}
    for top in ("kernels", "sim", "tests", "plots"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in SOURCE_SUFFIXES | {".py", ".sh"}:
                continue
            lines = file.read_text(encoding="utf-8").splitlines()
            if len(lines) > MAX_LINES:
                problems.append(f"{path}: {len(lines)} lines; split a file above {MAX_LINES}")
            if top in ("tests", "plots") or file.suffix not in SOURCE_SUFFIXES:
                continue
            if file.suffix in {".hpp", ".cuh", ".h"} and "#pragma once" not in lines:
                problems.append(f"{path}: no #pragma once")
            for number, text in enumerate(lines, 1):
                match = INCLUDE.match(text)
                if match:
                    quote, target = match.groups()
                    problems.extend(check_include(root, path, number, quote, target))
                    for prefix in CONFINED:
                        if target.startswith(prefix):
                            users[prefix].add(path)
    for prefix, (_, most) in CONFINED.items():
        if most is not None and len(users[prefix]) > most:
            problems.append(f"<{prefix}> is included by {len(users[prefix])} files, at most {most} may: "
                            + ", ".join(sorted(users[prefix])))
    return problems


# Small trees, each with one fault, and a piece of the message that must name it.
GOOD = {
    "kernels/shapes.hpp": "#pragma once\n#include <array>\n",
    "kernels/launch.hpp": '#pragma once\n#include <cuda_runtime.h>\n#include "kernels/shapes.hpp"\n',
    "kernels/calibrate/main.cpp": '#include "kernels/launch.hpp"\n#include "sim/base/units.hpp"\n',
    "sim/base/units.hpp": "#pragma once\n",
    "sim/cost/price.cpp": '#include <boost/graph/adjacency_list.hpp>\n#include "kernels/shapes.hpp"\n',
    "sim/serving/simulate.hpp": '#pragma once\n#include "sim/base/units.hpp"\n',
    "sim/engine/queue.hpp": '#pragma once\n#include "sim/base/units.hpp"\n',
}
BAD = [
    ({"sim/cost/price.cpp": '#include "sim/serving/simulate.hpp"\n'}, "sim/cost may not include sim/serving"),
    ({"sim/engine/queue.hpp": '#pragma once\n#include "kernels/shapes.hpp"\n'}, "sim/engine may not include"),
    ({"sim/base/units.hpp": '#pragma once\n#include "sim/engine/queue.hpp"\n'}, "sim/base may not include"),
    ({"kernels/step.cu": '#include "sim/base/units.hpp"\n'}, "kernels may not include sim/base"),
    ({"kernels/calibrate/main.cpp": '#include "sim/engine/queue.hpp"\n'}, "kernels/calibrate may not include"),
    ({"sim/serving/simulate.hpp": '#pragma once\n#include "kernels/launch.hpp"\n'}, "sim/serving may not include"),
    ({"sim/cost/price.cpp": "#include <cuda_runtime.h>\n"}, "confined"),
    ({"sim/cost/price.cpp": "\n", "sim/engine/queue.hpp": "#pragma once\n#include <boost/graph/graph_traits.hpp>\n"},
     "confined"),
    ({"sim/cost/other.cpp": "#include <boost/graph/graph_traits.hpp>\n"}, "included by 2 files"),
    ({"sim/base/units.hpp": "\n"}, "no #pragma once"),
    ({"sim/cost/price.cpp": '#include "price.hpp"\n'}, "not a path from the root"),
    ({"sim/cost/price.cpp": '#include "sim/base/absent.hpp"\n'}, "does not exist"),
    ({"sim/novel/x.cpp": '#include "sim/serving/simulate.hpp"\n'}, "may not include"),
    ({"sim/base/long.cpp": "\n" * (MAX_LINES + 1)}, "lines; split"),
]


def self_test():
    """What the checker gets wrong on the small trees: empty when it is sound."""
    faults = []
    for change, message in [({}, None), *BAD]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in {**GOOD, **change}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            problems = check_tree(root)
        if message is None and problems:
            faults.append(f"self-test: a sound tree was refused: {problems}")
        if message is not None and (len(problems) != 1 or message not in problems[0]):
            faults.append(f"self-test: expected one problem with '{message}', got {problems}")
    return faults


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    if not (root / "sim").is_dir():
        sys.exit(f"{root}: not the root of the repository")
    problems = self_test() + check_tree(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
