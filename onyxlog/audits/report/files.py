"""Files of an audit's findings: `violations.parquet`, `audit.json` and `report.html`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from onyxlog.audits.errors import AuditError
from onyxlog.audits.report.findings import Findings, as_json
from onyxlog.audits.report.page import page
from onyxlog.audits.report.plots import plots_of

VIOLATIONS_FILE: Final = "violations.parquet"
JSON_FILE: Final = "audit.json"
PAGE_FILE: Final = "report.html"


def write(findings: Findings, directory: Path) -> None:
    """Replace what an earlier audit wrote there.

    Raises:
        AuditError: the directory cannot be written to.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from onyxlog.audits.jobs.keyed import VIOLATIONS, as_batch

    batches = [as_batch(findings.violations)] if findings.violations else []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_batches(batches, VIOLATIONS), directory / VIOLATIONS_FILE)
        (directory / JSON_FILE).write_text(json.dumps(as_json(findings), indent=1) + "\n", encoding="utf-8")
        (directory / PAGE_FILE).write_text(page(findings, plots_of(findings)), encoding="utf-8")
    except OSError as error:
        raise AuditError(f"--out: cannot write to {directory}: {error.strerror}") from error
