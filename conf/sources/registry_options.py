"""Options of the schema registry that has the schemas of Avro records: `source.registry` of a job."""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, did_you_mean, parse_count, parse_given_duration, parse_given_text

REGISTRY = "source.registry."
_WEB = ("http://", "https://")

URL = Option(REGISTRY + "url", parse_given_text, None, "address of the schema registry; several with commas between")
USERNAME = Option(REGISTRY + "username", parse_given_text, None, "the user who logs in to the registry")
PASSWORD = Option(REGISTRY + "password", parse_given_text, None, "the password of that user")
TOKEN = Option(REGISTRY + "token", parse_given_text, None, "a bearer token, instead of a user and a password")
CA_LOCATION = Option(REGISTRY + "ssl.ca.location", parse_given_text, None, "file with the certificates to trust (PEM)")
CERTIFICATE = Option(REGISTRY + "ssl.certificate.location", parse_given_text, None, "the client's certificate (PEM)")
KEY = Option(REGISTRY + "ssl.key.location", parse_given_text, None, "the key of that certificate (PEM)")
KEY_PASSWORD = Option(REGISTRY + "ssl.key.password", parse_given_text, None, "the password of that key")
PROXY = Option(REGISTRY + "proxy", parse_given_text, None, "address of a proxy to reach the registry through")
TIMEOUT = Option(REGISTRY + "timeout", parse_given_duration, 10_000, "longest wait for one answer of the registry")
RETRIES = Option(REGISTRY + "retries", parse_count, 3, "how often a failed request is sent again at once")
WAIT = Option(
    REGISTRY + "wait", parse_given_duration, 120_000, "how long a batch waits for a registry that does not answer"
)

REGISTRY_OPTIONS: Mapping[str, Option[str] | Option[int]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}


@dataclass(frozen=True, slots=True, repr=False)
class RegistryOptions:
    """How to reach a schema registry. Durations are in milliseconds. The object contains secrets, and its values are
    never shown.

    There is one attribute for each option of the registry.
    """

    url: str
    username: str | None = None
    password: str | None = None
    token: str | None = None
    ca_location: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    proxy: str | None = None
    timeout_ms: int = 10_000
    retries: int = 3
    wait_ms: int = 120_000


def registry_options(texts: Mapping[str, str]) -> RegistryOptions | None:
    """Returns the options of the schema registry that the settings of a job contain; None if the job sets none of them.

    Raises OptionError for an unknown option, a value that cannot be parsed, and options that contradict each other.
    """
    given = [key for key in texts if key.startswith(REGISTRY)]
    if not given:
        return None
    for key in given:
        if key not in REGISTRY_OPTIONS:
            known = ", ".join(name.removeprefix(REGISTRY) for name in REGISTRY_OPTIONS)
            raise OptionError(
                f"unknown option '{key}'{did_you_mean(key, REGISTRY_OPTIONS)}; known are {known}", key=key
            )
    url = URL.get(texts)
    for one in url.split(","):
        if not one.strip().startswith(_WEB):
            raise OptionError(f"'{URL.key}' must be an http or https address", key=URL.key)
    _check_pair(texts, USERNAME, PASSWORD)
    _check_pair(texts, CERTIFICATE, KEY)
    if ":" in (USERNAME.find(texts) or ""):
        raise OptionError(
            f"'{USERNAME.key}' must not have a colon, because a colon ends the user name when it is sent",
            key=USERNAME.key,
        )
    if TOKEN.is_set(texts) and USERNAME.is_set(texts):
        raise OptionError(
            f"'{TOKEN.key}' and '{USERNAME.key}' are two ways to log in: remove one of them", key=TOKEN.key
        )
    return RegistryOptions(
        url=",".join(one.strip() for one in url.split(",")),
        username=USERNAME.find(texts),
        password=PASSWORD.find(texts),
        token=TOKEN.find(texts),
        ca_location=CA_LOCATION.find(texts),
        certificate=CERTIFICATE.find(texts),
        key=KEY.find(texts),
        key_password=KEY_PASSWORD.find(texts),
        proxy=PROXY.find(texts),
        timeout_ms=TIMEOUT.get(texts),
        retries=RETRIES.get(texts),
        wait_ms=WAIT.get(texts),
    )


def _check_pair(texts: Mapping[str, str], one: Option[str], other: Option[str]) -> None:
    for given, missing in ((one, other), (other, one)):
        if given.is_set(texts) and not missing.is_set(texts):
            raise OptionError(f"'{given.key}' needs '{missing.key}', which is not set", key=missing.key)
