"""The findings of `doctor`."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: its stable name, the file or folder concerned, and what it means."""

    severity: Severity
    rule: str
    subject: str
    message: str
