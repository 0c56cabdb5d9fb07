"""Run benchmarks: `python benchmarks/run.py NAME [options]`, or `--list`.

fiveloop and its peers run alternately, each library in its own process. Results must agree.
Prints tables and writes JSON.
"""

import argparse
import importlib
import keyword
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report
from benchmarks.duel import Row, Runner, Settings
from benchmarks.model import Benchmark, Case
from benchmarks.pool import Pool
from benchmarks.verdicts import Finding, findings, geomean_finding, growths

NAMES = ("core", "inplace", "loops", "planning", "remat", "state", "transformer", "while")
QUICK = Settings(rounds=3, round_seconds=0.01, lower_rounds=1, pace=0.3)


def load(name: str) -> Benchmark:
    """The benchmark of that name; the folder of one called by a keyword gains a noun."""
    folder = f"{name}_loop" if keyword.iskeyword(name) else name
    benchmark: Benchmark = importlib.import_module(f"benchmarks.{folder}.declared").BENCHMARK
    return benchmark


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(
        prog="benchmarks/run.py", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parse.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(NAMES)}"
    )
    parse.add_argument("--list", action="store_true", help="list the benchmarks and their cases")
    parse.add_argument(
        "--only", metavar="TEXT", action="append", help="cases whose name contains TEXT"
    )
    parse.add_argument("--sizes", metavar="N,N", help="only these of the declared sizes")
    parse.add_argument("--without", metavar="NAME", action="append", help="leave a contender out")
    parse.add_argument(
        "--quick", action="store_true", help="two sizes, three rounds: to see that all runs"
    )
    parse.add_argument("--rounds", type=int, help="timed rounds per case and size")
    parse.add_argument("--json", type=Path, metavar="PATH", help="where to write the results")
    parse.add_argument(
        "--control",
        action="store_true",
        help="run our side beside itself instead: every ratio should be 1",
    )
    parse.add_argument(
        "--enforce", action="store_true", help="exit with 1 also when a limit is missed"
    )
    return parse


def print_list() -> None:
    """Every benchmark, its cases, contenders and sizes."""
    for name in NAMES:
        benchmark = load(name)
        print(f"{benchmark.name}: {benchmark.about}")
        for case in benchmark.cases:
            print(
                f"  {case.name}: n = {', '.join(map(str, case.sizes))}; {', '.join(c.name for c in case.contenders)}"
            )


def settings_of(options: argparse.Namespace) -> Settings:
    """How much to measure, from the command line."""
    settings = QUICK if options.quick else Settings()
    return settings if options.rounds is None else replace(settings, rounds=options.rounds)


def sizes_of(case: Case, options: argparse.Namespace) -> tuple[int, ...]:
    """The sizes of a case to run."""
    sizes = case.sizes
    if options.sizes:
        wanted = {int(text) for text in options.sizes.split(",")}
        sizes = tuple(size for size in sizes if size in wanted)
    return sizes[:2] if options.quick else sizes


def chosen(benchmark: Benchmark, options: argparse.Namespace) -> list[Case]:
    """The cases to run."""
    cases = [
        c
        for c in benchmark.cases
        if not options.only or any(text in c.name for text in options.only)
    ]
    return [control(case) for case in cases] if options.control else cases


def control(case: Case) -> Case:
    """Our contender beside itself in a second process: what the ratios are where there is no difference."""
    again = replace(case.ours, name=f"{case.ours.name} again", side=f"{case.ours.side}:again")
    return replace(case, peers=(again,), limits=())


def run(benchmark: Benchmark, options: argparse.Namespace) -> tuple[list[Row], list[Finding]]:
    """Measure one benchmark, print its tables and write its results."""
    print(f"{benchmark.name}: {benchmark.about}", flush=True)
    rows: list[Row] = []
    found: list[Finding] = []
    grown = []
    with Pool() as pool:
        runner = Runner(pool, settings_of(options), progress, frozenset(options.without or ()))
        for case in chosen(benchmark, options):
            mine = runner.case(case, sizes_of(case, options))
            rows += mine
            grown += growths(case, mine)
            found += findings(case, mine)
        found += [geomean_finding(limit, rows) for limit in benchmark.limits]
        versions = pool.versions()
    print(report.versions_line(versions))
    for table in (
        report.rows_table(rows),
        report.growth_table(grown),
        report.findings_table(found),
    ):
        print(f"\n{table}")
    name = f"{benchmark.name}-control" if options.control else benchmark.name
    path = options.json or report.RESULTS / f"{name}-{tag(versions)}.json"
    measured = {"rows": rows, "growth": grown, "limits": found}
    about = {"benchmark": benchmark.name, "machine": report.machine(), "versions": versions}
    report.write_json(path, {**about, **measured})
    print(f"\nwritten: {path}")
    return rows, found


def progress(line: str) -> None:
    """Show what is being built, apart from the tables."""
    print(f"  {line}", file=sys.stderr, flush=True)


def tag(versions: dict[str, dict[str, str]]) -> str:
    """The jaxlib version that ran, for a file name."""
    known = [v["jaxlib"] for v in versions.values() if "jaxlib" in v]
    return f"jaxlib-{known[0]}" if known else "no-jaxlib"


def failed(rows: Sequence[Row]) -> list[str]:
    """What makes a run a failure: a wrong result, but for a peer outvoted by another, or our own side not running."""
    bad = [
        row
        for row in rows
        if (row.wrong and not is_outvoted(row, rows))
        or (row.contender == "fiveloop" and row.run is None)
    ]
    return [
        f"{row.case} n={row.size} {row.contender}: {row.note}\n{last_lines(row.trace)}"
        for row in bad
    ]


def is_outvoted(row: Row, rows: Sequence[Row]) -> bool:
    """Whether another peer agrees with us where this one does not: the table says so, and that is all."""
    peers = [
        other
        for other in rows
        if (other.case, other.size) == (row.case, row.size) and other.ratio is not None
    ]
    return row in peers and any(not other.wrong for other in peers)


def last_lines(trace: str, count: int = 12) -> str:
    """The end of a traceback."""
    return "\n".join(f"    {line}" for line in trace.splitlines()[-count:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 if results disagree, or if limits are missed and enforced."""
    options = parser().parse_args(arguments)
    if options.list:
        print_list()
        return 0
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown or not options.names:
        given = ", ".join(unknown) or "none"
        parser().error(f"expected the names of benchmarks out of {', '.join(NAMES)}, got {given}")
    status = 0
    for name in options.names:
        rows, found = run(load(name), options)
        trouble = failed(rows)
        for line in trouble:
            print(f"FAILED {line}")
        if trouble or (options.enforce and any(f.kept is False for f in found)):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
