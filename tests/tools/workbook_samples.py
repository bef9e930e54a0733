"""Workbooks as a spreadsheet program writes them, for the tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_DATE, _TIME = 1, 2
_FORMATS = f"""<styleSheet xmlns="{_MAIN}"><cellXfs count="3">
<xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/><xf numFmtId="22" applyNumberFormat="1"/>
</cellXfs></styleSheet>"""


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]], last: str = "") -> bytes:
    """Returns a workbook with these rows in its sheets, and a last one as XML; ``None`` is an empty cell."""
    numbered = list(enumerate(sheets.items(), 1))
    listed = "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, (name, _) in numbered)
    kinds = "".join(
        f'<Relationship Id="r{at}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{at}.xml"/>' for at, _ in numbered
    )
    styles = f'<Relationship Id="s" Type="{_OFFICE}/styles" Target="styles.xml"/>'
    relations = f'<Relationships xmlns="{_PACKAGE}/relationships">'
    whole = f'<Relationship Id="w" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{_PACKAGE}/content-types"/>')
        archive.writestr("_rels/.rels", f"{relations}{whole}</Relationships>")
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>'
        )
        archive.writestr("xl/_rels/workbook.xml.rels", f"{relations}{kinds}{styles}</Relationships>")
        archive.writestr("xl/styles.xml", _FORMATS)
        for at, (_, rows) in numbered:
            data = "".join(f'<row r="{number}">{_cells(number, row)}</row>' for number, row in enumerate(rows, 1))
            archive.writestr(
                f"xl/worksheets/sheet{at}.xml",
                f'<worksheet xmlns="{_MAIN}"><sheetData>{data}{last}</sheetData></worksheet>',
            )
    return made.getvalue()


def _cells(number: int, row: Sequence[Any]) -> str:
    return "".join(_cell(f"{chr(ord('A') + at)}{number}", value) for at, value in enumerate(row) if value is not None)


def _cell(place: str, value: Any) -> str:
    match value:
        case bool():
            return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
        case str():
            return f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        case datetime():
            since = value - datetime(1899, 12, 30)
            return f'<c r="{place}" s="{_TIME}"><v>{since.total_seconds() / 86_400}</v></c>'
        case date():
            return f'<c r="{place}" s="{_DATE}"><v>{(value - date(1899, 12, 30)).days}</v></c>'
    return f'<c r="{place}"><v>{value}</v></c>'
