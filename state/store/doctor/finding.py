"""What an examination of a table says."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: its stable name, where it is broken, and what that means."""

    severity: Severity
    rule: str
    subject: str
    message: str
