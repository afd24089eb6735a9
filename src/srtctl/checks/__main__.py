"""`python3 -m srtctl.checks`: run the post-launch checks of a bundle against its running job."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from srtctl.checks import report, runner
from srtctl.checks.context import Context, Limits
from srtctl.checks.model import FAIL, CheckResult, InputError
from srtctl.checks.net import Deadline
from srtctl.checks.plan_file import load

EXIT_PASSED, EXIT_BAD_INPUT, EXIT_FAILED = 0, 2, 3


def main(argv: Sequence[str] | None = None, limits: Limits | None = None) -> int:
    """Run the checks, write checks.json, tell people on stderr. Returns 0 (pass or warn), 3 (fail) or 2 (bad input)."""
    args = _parser().parse_args(argv)
    try:
        return _check(args, limits or Limits())
    except InputError as error:
        print(f"srtctl checks: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _check(args: argparse.Namespace, limits: Limits) -> int:
    deployment = load(args.plan, args.nodes)
    selected = runner.select(deployment, args.only, args.through)
    if not args.out.parent.is_dir():
        raise InputError(f"{args.out}: its folder does not exist")
    started, clock = time.time(), time.monotonic()
    context = Context(deployment, limits, Deadline.after(args.timeout))
    results = runner.run(context, selected, _tell)
    content = report.document(results, started, time.monotonic() - clock)
    report.write(args.out, content)
    if args.cause:
        print(report.first_failure(results))
    return EXIT_FAILED if content["verdict"] == FAIL else EXIT_PASSED


def _tell(check: CheckResult) -> None:
    print("\n".join(report.lines(check)), file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m srtctl.checks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="plan.json of the bundle")
    parser.add_argument("--nodes", type=Path, required=True, metavar="FILE", help="state/nodes.tsv of the run")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where checks.json goes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run this check; repeatable")
    parser.add_argument("--through", metavar="NAME", help="run the checks up to this one, whichever are planned")
    parser.add_argument("--cause", action="store_true", help="print the first failure in one line on stdout")
    parser.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="SECONDS", help="for all checks together (default: 300)"
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
