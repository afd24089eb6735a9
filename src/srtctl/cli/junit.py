"""Check results as JUnit XML, which CI systems read: a suite a check, a test case a target. Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from srtctl.runs.causes import check_results
from srtctl.runs.model import CheckResult, TargetResult


def junit(run: str, checks: Mapping[str, Any]) -> str:
    """The XML of a checks.json; a failure that only warns is a passed case with the words in its output."""
    root = ET.Element("testsuites", name=f"srtctl check {run}", time=f"{checks.get('seconds', 0):.3f}")
    for raw, check in zip(checks.get("checks", ()), check_results(checks), strict=True):
        root.append(_suite(check, raw.get("seconds", 0)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False)


def _suite(check: CheckResult, seconds: float) -> ET.Element:
    targets = list(check.targets)
    if check.verdict == "fail" and not any(target.verdict == "fail" for target in targets):
        targets.append(TargetResult("", "fail", check.reason))  # wrong apart from any target
    suite = ET.Element("testsuite", name=check.name, time=f"{seconds:.3f}", tests=str(len(targets)))
    for target in targets:
        suite.append(_case(check, target))
    for kind, attribute in (("failure", "failures"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{kind}"))))
    return suite


def _case(check: CheckResult, target: TargetResult) -> ET.Element:
    case = ET.Element("testcase", classname=check.name, name=target.target or "deployment")
    words = target.message
    if target.diagnosis:
        words += f"\ncause: {target.diagnosis.cause}\nremedy: {target.diagnosis.remedy}"
    if target.verdict == "skip":
        ET.SubElement(case, "skipped", message=target.message)
    elif target.verdict == "fail" and check.on_failure == "fail":
        ET.SubElement(case, "failure", message=target.message).text = words
    elif target.verdict == "fail":
        ET.SubElement(case, "system-out").text = f"warning: {words}"
    return case
