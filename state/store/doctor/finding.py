"""The findings of `doctor`."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: the rule's stable name, the file or folder that it is about, and a message that says what is
    wrong.
    """

    severity: Severity
    rule: str
    subject: str
    message: str
