"""Decides which settings are secret, and masks secrets in texts.

The key of a setting tells whether it is secret. In a text, secrets are recognised by their form (user and password in
an address, a secret key with its value) and, if the job is known, by their values.
Source: Kafka's configurations of type PASSWORD, Spark's spark.redaction.regex, the options of Paimon's file systems and
catalogs.
"""

import logging
import re
from collections.abc import Iterable, Mapping

MASK = "***"

_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|pwd|secret|token|credential|private|signature|authorization"
    r"|sasl|ssl|jaas|keystore|truststore|keytab|kerberos|user[._-]?info|basic[._-]auth"
    r"|(?:access|account|api|encryption|shared)[._-]?key|(?:^|\.)dlf\.|\.sas\.|(?:^|[._-])sig$",
    re.IGNORECASE,
)
_OPEN_KEY = re.compile(
    r"(?:sasl\.mechanism|ssl\.(?:protocol|enabled|enabled\.protocols|endpoint\.identification\.algorithm)"
    r"|dlf\.(?:region|endpoint)|source\.token-provider)$",
    re.IGNORECASE,
)
"""Matches keys that look secret, but have names of protocols or locations as values."""

_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*)://([^\s'\"<>]*:(?!\d+(?:[/,\s]|$))[^\s'\"<>]*|[^\s/@'\"<>]+)@")
_CONTAINER_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes of addresses in which the part before `@` is the name of a container, not a user."""
_ORACLE = re.compile(r"(jdbc:oracle:\w+:)[^@\s'\"]+(?=@)", re.IGNORECASE)
_LOGIN = re.compile(r"(?<![\w./:@-])[\w.%+-]+:[^\s@/:,'\"]+@(?=[A-Za-z0-9\[])")
"""Matches a login before a host without a scheme, as in a list of servers."""
_WORDS = (
    r"password|passwd|passphrase|pwd|secret|token|credential|signature|authorization|sasl|jaas|keystore|truststore"
    r"|user[._-]?info|(?:access|account|api|encryption|shared)[._-]?key(?:[._-]?id)?|private[._-]?key|\bdlf\.|\bsig\b"
)
_VALUE = r"(\\\"[^\"\\]*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&'\"(){}\[\]]+)"
_ASSIGNED = re.compile(rf"(?<![\w/.-])([\w.-]*(?:{_WORDS})[\w.-]*)(\\?['\"`]?\s*=\s*){_VALUE}", re.IGNORECASE)
_TOLD = re.compile(rf"(?<![\w/.-])([\w.-]*(?:{_WORDS})[\w.-]*)(\\?['\"]\s*:\s*|:(?=[^\s/:])){_VALUE}", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_SIGNS = re.compile(r"[=@]|['\"]\s*:|:[^\s/:]")
"""Matches something that every text with a secret contains. A text without a match contains no secret."""
_HINT = re.compile(_WORDS, re.IGNORECASE)

_SHORTEST_KNOWN = 4
"""The smallest length of a known secret that is searched for in texts. Shorter secrets may be parts of ordinary
words.
"""
_NO_SECRETS = frozenset({"true", "false", "none", "null", MASK})


def is_secret_key(key: str) -> bool:
    """Returns True if the value of the setting with this key must not be shown."""
    return _SECRET_KEY.search(key) is not None and _OPEN_KEY.search(key) is None


def mask(key: str, value: str) -> str:
    """Returns the value of a setting for display: `***` if its key is secret, and otherwise the value with masked
    secrets.

    """
    return MASK if is_secret_key(key) and value else mask_text(value)


_looked_up: set[str] = set()
"""The secret values that replaced references of job files in this process."""


def keep_looked_up(value: str) -> None:
    """Remembers a value that replaced a reference. From now on, the value and each of its lines are masked in every
    text that this process shows.
    """
    parts = (value, value.strip(), *(line.strip() for line in value.splitlines()))
    _looked_up.update(p for p in parts if len(p) >= _SHORTEST_KNOWN and p.lower() not in _NO_SECRETS)


def mask_text(text: str, known: Iterable[str] = ()) -> str:
    """Returns the text with its secrets masked.

    `known` has secret values to mask, in addition to the values that replaced references in job files.
    """
    for secret in known:
        text = text.replace(secret, MASK)
    for secret in sorted(_looked_up, key=len, reverse=True) if _looked_up else ():
        text = text.replace(secret, MASK)
    if _SIGNS.search(text) is None:
        return text
    if "@" in text:
        text = _ADDRESS.sub(_masked_address, text)
        text = _ORACLE.sub(rf"\1{MASK}", text)
        text = _LOGIN.sub(f"{MASK}@", text)
    if _HINT.search(text) is None:
        return text
    text = _ASSIGNED.sub(_masked_value, text)
    return _TOLD.sub(_masked_value, text)


def secret_values(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the secret values among settings, to be passed to `mask_text`: whole values, and their lines and quoted
    parts, longest first.
    """
    secrets: set[str] = set()
    for key, value in settings.items():
        if is_secret_key(key):
            parts = [a or b for a, b in _QUOTED.findall(value)]
            secrets.update((value.strip(), *parts, *(line.strip() for line in value.splitlines())))
        for _, inside in _ADDRESS.findall(value):
            secrets.add(inside.partition(":")[2])
    kept = {f for f in secrets if len(f) >= _SHORTEST_KNOWN and f.lower() not in _NO_SECRETS}
    return tuple(sorted(kept, key=lambda f: (-len(f), f)))


def mask_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Returns the details of an error for display. If the detail `key` names a secret setting, the detail `value` is
    masked.
    """
    about = fields.get("key")
    is_secret = isinstance(about, str) and is_secret_key(about)
    return {name: _masked_field(name, value, is_secret) for name, value in fields.items()}


class MaskedOptions(dict[str, str]):
    """A mapping of settings by key. Printing it does not show secrets."""

    def __repr__(self) -> str:
        return repr({key: mask(key, value) for key, value in self.items()})

    __str__ = __repr__


class MaskingFilter(logging.Filter):
    """A filter for log handlers. In log messages, it masks the `known` secrets and texts that look like secrets."""

    def __init__(self, known: Iterable[str]) -> None:
        super().__init__()
        self._known = tuple(known)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask_text(record.getMessage(), self._known), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = mask_text(record.exc_text, self._known)
        return True


def _masked_field(name: str, value: object, is_secret: bool) -> object:
    if isinstance(value, str):
        return MASK if name == "value" and is_secret else mask_text(value)
    if isinstance(value, dict):
        return {k: mask(k, v) if isinstance(k, str) and isinstance(v, str) else v for k, v in value.items()}
    return value


def _masked_address(match: re.Match[str]) -> str:
    scheme, inside = match[1], match[2]
    if scheme.lower() in _CONTAINER_SCHEMES and ":" not in inside:
        return match[0]
    return f"{scheme}://{MASK}@"


def _masked_value(match: re.Match[str]) -> str:
    if not is_secret_key(match[1]):
        return match[0]
    quote = next((q for q in ('\\"', '"', "'") if match[3].startswith(q)), "")
    return f"{match[1]}{match[2]}{quote}{MASK}{quote}"
