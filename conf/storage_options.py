"""Storage options: endpoints, keys and regions, under the names that Paimon's file systems use.

Storage options are set when a table is opened, and never stored in the table, so that readers do not learn the keys of
writers. Options of several storages may be set together; each applies to the URIs of its own scheme.
Source: Paimon 2.0 S3Loader (`s3.`, `s3a.` and `fs.s3a.` are the same), OSSFileIO, AzureFileIO, GSFileIO, HadoopUtils
(`hadoop.`), SecurityConfiguration (`security.kerberos.`);
pypaimon's S3Options (`fs.s3.`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, did_you_mean, parse_bool, parse_duration, parse_enum, parse_int, parse_text
from bucketline.conf.secrets import MaskedOptions


class GcsAuth(Enum):
    """Where the credentials for Google Cloud Storage come from: the environment, a file, or nowhere (anonymous
    access).
    """

    APPLICATION_DEFAULT = "application-default"
    UNAUTHENTICATED = "unauthenticated"
    KEYFILE = "service-account-json-keyfile"


S3_ENDPOINT = Option("s3.endpoint", parse_text, None, "address of the store, as http://localhost:9000")
S3_ACCESS_KEY = Option("s3.access-key", parse_text, None, "access key id; default: from the environment")
S3_SECRET_KEY = Option("s3.secret-key", parse_text, None, "secret access key; default: from the environment")
S3_SESSION_TOKEN = Option("s3.session.token", parse_text, None, "token of short-lived keys")
S3_REGION = Option("s3.region", parse_text, None, "region of the bucket; default: from the environment")
S3_PATH_STYLE = Option("s3.path.style.access", parse_bool, None, "whether the bucket is part of the path, not the host")
S3_SSL = Option("s3.connection.ssl.enabled", parse_bool, None, "whether an endpoint without a scheme is https")
S3_CONNECT_TIMEOUT: Option[int] = Option(
    "s3.connection.establish.timeout", parse_duration, None, "time to wait for a connection"
)
S3_ATTEMPTS: Option[int] = Option("s3.attempts.maximum", parse_int, None, "how often a request is tried")
S3_ROLE = Option("s3.assumed.role.arn", parse_text, None, "role to assume")
S3_ROLE_SESSION = Option(
    "s3.assumed.role.session.name", parse_text, None, "name of the session in which a role is assumed"
)
OSS_ENDPOINT = Option("fs.oss.endpoint", parse_text, None, "address of the store, as oss-cn-hangzhou.aliyuncs.com")
OSS_ACCESS_KEY = Option("fs.oss.accessKeyId", parse_text, None, "access key id")
OSS_SECRET_KEY = Option("fs.oss.accessKeySecret", parse_text, None, "the key")
OSS_SESSION_TOKEN = Option("fs.oss.securityToken", parse_text, None, "token of short-lived keys")
AZURE_ACCOUNT_KEY = "fs.azure.account.key."
AZURE_SAS_TOKEN = "fs.azure.sas.fixed.token."
GCS_PROJECT = Option("fs.gs.project.id", parse_text, None, "project of the buckets; requests for files do not need it")
GCS_ENDPOINT = Option("fs.gs.storage.root.url", parse_text, None, "address of the store")
GCS_KEYFILE = Option("fs.gs.auth.service.account.json.keyfile", parse_text, None, "file with a service account's key")
GCS_AUTH = Option(
    "fs.gs.auth.type",
    parse_enum(GcsAuth),
    GcsAuth.APPLICATION_DEFAULT,
    "application-default: credentials of the environment; service-account-json-keyfile: those of the file that "
    "`fs.gs.auth.service.account.json.keyfile` names; unauthenticated: none",
)
HADOOP_CONF = Option(
    "hadoop-conf-dir", parse_text, None, "folder with core-site.xml and hdfs-site.xml; default: from the environment"
)
KERBEROS_PRINCIPAL = Option(
    "security.kerberos.login.principal", parse_text, None, "the principal that logs in with Kerberos"
)
KERBEROS_KEYTAB = Option(
    "security.kerberos.login.keytab", parse_text, None, "file with the principal's key, on each machine of the job"
)
KERBEROS_CACHE = Option(
    "security.kerberos.login.use-ticket-cache",
    parse_bool,
    True,
    "whether the tickets of `kinit` are used where no keytab is given",
)
HADOOP = "hadoop."
CATALOG_LINK = "catalog."
"""The prefix of the storage options that a catalog adds for its tables. They link a table to its catalog
(`catalog_link.py`).
"""

STORAGE_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""The options above by key. Options that begin with `fs.azure` or `hadoop.` are not listed, because they may have any
name.
"""

_FAMILIES = (AZURE_ACCOUNT_KEY, AZURE_SAS_TOKEN, HADOOP)
_ACCEPTED = (*_FAMILIES, CATALOG_LINK)
_S3_PREFIXES = ("s3.", "s3a.", "fs.s3a.", "hadoop.fs.s3a.")
_OTHER_PREFIXES = {
    "azure.": "fs.azure.",
    "fs.wasb.": "fs.azure.",
    "hadoop.fs.azure.": "fs.azure.",
    "hadoop.fs.gs.": "fs.gs.",
    "hadoop.fs.oss.": "fs.oss.",
}
"""Other prefixes that Paimon accepts for these storages. The rest of the key is checked in the same way as after the
main prefix.
"""
_HDFS_READS = (
    "dfs.client.block.write.replace-datanode-on-failure.",
    "dfs.client.failover.",
    "dfs.client.socket-timeout",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
    "dfs.ha.namenodes",
    "dfs.namenode.rpc-address",
    "dfs.nameservices",
    "dfs.user.home.dir.prefix",
    "fs.defaultFS",
    "fs.viewfs.mounttable.",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
)
"""Prefixes of the Hadoop settings that hdfs-native 0.14 reads."""
_S3_SPELLINGS = {
    "access.key": "access-key",
    "secret.key": "secret-key",
    "session-token": "session.token",
    "endpoint.region": "region",
    "path-style-access": "path.style.access",
    "fs.s3.endpoint": "s3.endpoint",
    "fs.s3.region": "s3.region",
    "fs.s3.accessKeyId": "s3.access-key",
    "fs.s3.accessKeySecret": "s3.secret-key",
    "fs.s3.securityToken": "s3.session.token",
}
_TOGETHER = (
    (S3_ACCESS_KEY, S3_SECRET_KEY),
    (OSS_ACCESS_KEY, OSS_SECRET_KEY),
    (KERBEROS_PRINCIPAL, KERBEROS_KEYTAB),
)
_NEEDS = ((S3_SESSION_TOKEN, S3_ACCESS_KEY), (OSS_SESSION_TOKEN, OSS_ACCESS_KEY), (S3_ROLE_SESSION, S3_ROLE))
"""Options that have no effect unless another option is set too."""
_STORAGE_PREFIXES = tuple(
    [
        "s3.",
        "s3a.",
        "fs.",
        "oss.",
        "obs.",
        "cosn.",
        "gs.",
        "azure.",
        "dfs.",
        "hadoop.",
        "hadoop-",
        "dlf.",
        "jindo.",
        "security.",
        CATALOG_LINK,
    ]
)
_REMEDY = (
    "give it as a storage option: storage_options= in Python, 'storage:' in a job file, --storage or --storage-file on "
    "the command line"
)


@dataclass(frozen=True, slots=True, repr=False)
class S3Settings:
    """The settings of S3. A setting that is None comes from the environment.

    There is one attribute for each option of S3.
    """

    endpoint: str | None
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    region: str | None
    path_style: bool
    https: bool | None
    connect_timeout_ms: int | None
    attempts: int | None
    role: str | None
    role_session: str | None


def is_storage_key(key: str) -> bool:
    """Returns True if the name of an option has the form of a storage option, even if bucketline does not know the
    option.
    """
    return key.startswith(_STORAGE_PREFIXES)


def refuse_storage_keys(options: Mapping[str, str], where: str) -> None:
    """Raises OptionError for a storage option among options that are stored or shown. `where` is a phrase for the error
    that says where these options are.
    """
    for key in options:
        if is_storage_key(key):
            raise OptionError(
                f"'{key}' in {where} says how to reach a storage, which is never stored in a table; {_REMEDY}", key=key
            )


def check_storage_options(storage_options: Mapping[str, str] | None) -> MaskedOptions:
    """Checks storage options, and returns them with their main names, which `STORAGE_OPTIONS` lists. Printing the
    result does not show secrets.

    Raises OptionError for an unknown option (the message names the most similar known option), an option that is set
    twice, and a value that cannot be parsed.
    """
    options: dict[str, str] = {}
    for key, text in (storage_options or {}).items():
        name = _named(key)
        if name not in STORAGE_OPTIONS and not (name.startswith(_ACCEPTED) and name not in _ACCEPTED):
            known = (*STORAGE_OPTIONS, *_FAMILIES)
            raise OptionError(
                f"unknown storage option '{key}'{did_you_mean(key, known)}; known are {', '.join(known)}", key=key
            )
        if options.get(name, text) != text:
            raise OptionError(
                f"storage option '{name}' is set twice, the second time as '{key}'; remove one of the two", key=key
            )
        options[name] = text
    for option in STORAGE_OPTIONS.values():
        option.find(options)
    for one, other in _TOGETHER:
        if (one.key in options) != (other.key in options):
            missing = other if one.key in options else one
            raise OptionError(
                f"'{one.key}' and '{other.key}' must be set together, but '{missing.key}' is not set", key=missing.key
            )
    for dependent, needed in _NEEDS:
        if dependent.key in options and needed.key not in options:
            raise OptionError(f"'{dependent.key}' needs '{needed.key}', which is not set", key=needed.key)
    _check_scheme(options)
    if (GCS_KEYFILE.key in options) != (GCS_AUTH.get(options) is GcsAuth.KEYFILE):
        raise OptionError(
            f"'{GCS_KEYFILE.key}' and '{GCS_AUTH.key}' = service-account-json-keyfile must be set together",
            key=GCS_KEYFILE.key,
        )
    if KERBEROS_KEYTAB.key not in options and not KERBEROS_CACHE.get(options):
        raise OptionError(
            f"'{KERBEROS_CACHE.key}' = false needs '{KERBEROS_KEYTAB.key}': without it there is no way to log in",
            key=KERBEROS_CACHE.key,
        )
    attempts = S3_ATTEMPTS.find(options)
    if attempts is not None and attempts < 1:
        raise OptionError(f"option '{S3_ATTEMPTS.key}' must be at least 1", key=S3_ATTEMPTS.key)
    return MaskedOptions(options)


def _check_scheme(options: Mapping[str, str]) -> None:
    """Raises OptionError if `s3.connection.ssl.enabled` contradicts the endpoint's scheme, or is false although no
    endpoint is set.
    """
    https, endpoint = S3_SSL.find(options), S3_ENDPOINT.find(options)
    if endpoint is None and https is False:
        raise OptionError(f"'{S3_SSL.key}' = false needs '{S3_ENDPOINT.key}', which is not set", key=S3_SSL.key)
    scheme, has_scheme, _ = (endpoint or "").partition("://")
    if https is not None and has_scheme and https != (scheme.lower() == "https"):
        raise OptionError(
            f"'{S3_SSL.key}' = {str(https).lower()} contradicts '{S3_ENDPOINT.key}', which is {scheme}; change one of "
            "the two",
            key=S3_SSL.key,
        )


def known_storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the storage options of bucketline that are among `options`, with their main names.

    Other options are left out, because the server of a REST catalog also sends options for other clients, for example
    Hadoop settings.
    """
    by_name = {_named(key): text for key, text in options.items()}
    return {
        key: text
        for key, text in by_name.items()
        if key in STORAGE_OPTIONS or (key.startswith(_FAMILIES) and not _is_for_others(key))
    }


def s3_settings(options: Mapping[str, str]) -> S3Settings:
    """Returns the settings of S3 from checked storage options."""
    endpoint = S3_ENDPOINT.find(options)
    return S3Settings(
        endpoint=endpoint,
        access_key=S3_ACCESS_KEY.find(options),
        secret_key=S3_SECRET_KEY.find(options),
        session_token=S3_SESSION_TOKEN.find(options),
        region=S3_REGION.find(options),
        path_style=S3_PATH_STYLE.find(options) or False,
        https=S3_SSL.find(options),
        connect_timeout_ms=S3_CONNECT_TIMEOUT.find(options),
        attempts=S3_ATTEMPTS.find(options),
        role=S3_ROLE.find(options),
        role_session=S3_ROLE_SESSION.find(options),
    )


def oss_settings(options: Mapping[str, str]) -> S3Settings:
    """Returns the settings of Alibaba's OSS from checked storage options. OSS uses the protocol of S3.

    The region is the first part of the endpoint's host. Raises OptionError if the endpoint or the keys are missing.
    """
    for needed in (OSS_ENDPOINT, OSS_ACCESS_KEY):
        if needed.key not in options:
            raise OptionError(f"a path on OSS needs the storage option '{needed.key}'", key=needed.key)
    endpoint = OSS_ENDPOINT.find(options) or ""
    return S3Settings(
        endpoint=endpoint,
        access_key=OSS_ACCESS_KEY.find(options),
        secret_key=OSS_SECRET_KEY.find(options),
        session_token=OSS_SESSION_TOKEN.find(options),
        region=endpoint.rpartition("://")[2].partition(".")[0].removesuffix("-internal"),
        path_style=False,
        https=None,
        connect_timeout_ms=None,
        attempts=None,
        role=None,
        role_session=None,
    )


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """The settings of Google Cloud Storage. A setting that is None comes from the environment."""

    endpoint: str | None
    keyfile: str | None
    anonymous: bool


def gcs_settings(options: Mapping[str, str]) -> GcsSettings:
    """Returns the settings of Google Cloud Storage from checked storage options."""
    anonymous = GCS_AUTH.get(options) is GcsAuth.UNAUTHENTICATED
    return GcsSettings(GCS_ENDPOINT.find(options), GCS_KEYFILE.find(options), anonymous)


def azure_secret(options: Mapping[str, str], family: str, account: str) -> str | None:
    """Returns the secret of an Azure account, such as an account key; None if it is not set. `family` is the beginning
    of the option's key, for example `fs.azure.account.key.`. The key goes on with the account's address in any of
    Azure's services, such as `shop.dfs.core.windows.net`.
    """
    for key, text in options.items():
        name = key.removeprefix(family) if key.startswith(family) else ""
        if name.partition(".")[0] == account:
            return text.strip()
    return None


@dataclass(frozen=True, slots=True, repr=False)
class HdfsSettings:
    """The settings of HDFS: Hadoop's own settings, the folder with Hadoop's configuration files, and who logs in. A
    setting that is None comes from the environment.
    """

    hadoop: tuple[tuple[str, str], ...]
    folder: str | None
    principal: str | None
    keytab: str | None


def hdfs_settings(options: Mapping[str, str]) -> HdfsSettings:
    """Returns the settings of HDFS from checked storage options. An option `hadoop.NAME` sets Hadoop's setting NAME.

    Raises OptionError for a Hadoop setting that has no effect on the client.
    """
    hadoop = sorted((key.removeprefix(HADOOP), text) for key, text in options.items() if key.startswith(HADOOP))
    for name, _ in hadoop:
        key = HADOOP + name
        if _is_for_others(key):
            twice = f"write '{HADOOP}{key}', because the first '{HADOOP}' is no part of the name, or "
            raise OptionError(
                f"'{key}' has no effect: the client of HDFS reads no '{name}', only settings that begin with "
                f"{', '.join(_HDFS_READS)}; {'' if _is_for_others(HADOOP + key) else twice}remove it",
                key=key,
            )
    return HdfsSettings(
        tuple(hadoop), HADOOP_CONF.find(options), KERBEROS_PRINCIPAL.find(options), KERBEROS_KEYTAB.find(options)
    )


def _is_for_others(key: str) -> bool:
    """Returns True if a key is a Hadoop setting that only other clients read, and not the HDFS client."""
    return key.startswith(HADOOP) and not key.removeprefix(HADOOP).startswith(_HDFS_READS)


def _named(key: str) -> str:
    """Returns the main name of an option. `key` may be any of the option's names."""
    if key in _S3_SPELLINGS:
        return _S3_SPELLINGS[key]
    for prefix in _S3_PREFIXES:
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            return "s3." + _S3_SPELLINGS.get(name, name)
    for prefix, name in _OTHER_PREFIXES.items():
        if key.startswith(prefix):
            return name + key.removeprefix(prefix)
    return key
