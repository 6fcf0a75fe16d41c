"""Statistics, tables, cards and the page.

The package can be called: `encodery.report(run)` writes the page, and an import of any module in here gives the name
`encodery.report` to the package.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *folders: Any, **options: Any) -> Path:
        """The page of these runs."""
        from encodery.report.page.write import report

        return report(*folders, **options)


sys.modules[__name__].__class__ = _Callable
