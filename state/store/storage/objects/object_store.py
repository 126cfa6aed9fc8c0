"""Finds the bucket or container that a URI names, and makes the clients for it.

Clients are made once in a process for each bucket and its settings, because they hold connections and short-lived keys.
Each bucket has two clients. One client repeats failed requests. The other client sends each request once, because a
process that publishes must know the outcome of its request.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cache, lru_cache
from ipaddress import ip_address
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bucketline.conf.errors import OptionError
from bucketline.conf.storage_options import (
    AZURE_ACCOUNT_KEY,
    AZURE_SAS_TOKEN,
    S3_ACCESS_KEY,
    S3_ROLE,
    S3Settings,
    azure_secret,
    gcs_settings,
    oss_settings,
    s3_settings,
)
from bucketline.state.store.storage.forks import refuse_after_fork
from bucketline.state.store.storage.objects.aws_keys import key_source
from bucketline.state.store.storage.objects.object_errors import (
    SETTINGS_ERRORS,
    STORE_ERRORS,
    object_errors,
    says_keys_have_ended,
)
from bucketline.state.store.storage.remembered import RememberedFor
from bucketline.state.store.storage.requests import RequestCounter, RequestKind

try:
    from obstore import store as obstore_stores
except ImportError:
    obstore_stores = None

T = TypeVar("T")

MOST_CLIENTS = 32
"""The largest number of buckets (with their settings) whose clients a process keeps. One bucket can count several
times, if a catalog lends keys for it and replaces them.
"""

_TIMEOUT = timedelta(minutes=10)
_SILENCE = timedelta(seconds=60)
_PUBLISH_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=10)
_RETRY_TIME = timedelta(minutes=2)
_ATTEMPTS = 10


class StoreKind(Enum):
    """The kinds of object stores, by their protocol."""

    S3 = "S3"
    OSS = "OSS"
    GCS = "GCS"
    AZURE = "Azure"


_KINDS = {
    "s3": StoreKind.S3,
    "s3a": StoreKind.S3,
    "s3n": StoreKind.S3,
    "oss": StoreKind.OSS,
    "gs": StoreKind.GCS,
    "gcs": StoreKind.GCS,
    "abfs": StoreKind.AZURE,
    "abfss": StoreKind.AZURE,
    "az": StoreKind.AZURE,
}
OBJECT_SCHEMES = frozenset(_KINDS)


@dataclass(frozen=True, slots=True, repr=False)
class StoreAddress:
    """A bucket and the storage options for it. `host` is only for Azure: the host in `abfs://container@host/path`."""

    kind: StoreKind
    bucket: str
    host: str
    options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"StoreAddress({self.kind.value}, {self.bucket!r})"


@dataclass(frozen=True, slots=True, repr=False)
class ClientPair:
    """Two clients: one repeats failed requests, the other sends each request once."""

    patient: Any
    once: Any


@dataclass(slots=True, repr=False)
class StoreClients:
    """The clients of one bucket in this process, the requests that were sent to it, and what is known about the store.

    `renew` makes clients with new keys; None if the keys are in the options. `takes_suffix` says whether the store can
    send the last bytes of an object without knowing its size. `refuses_second` says whether the store refuses to create
    an object under a name that exists; None until this was tried.
    """

    pair: ClientPair
    renew: Callable[[], ClientPair] | None
    takes_suffix: bool
    counter: RequestCounter
    remembered: RememberedFor
    lock: Lock = field(default_factory=Lock)
    refuses_second: bool | None = None
    _renewing: Lock = field(default_factory=Lock)

    def ask(self, kind: RequestKind, path: str, send: Callable[[Any], T]) -> T:
        """Sends a request about a path through the client that repeats failed requests, and returns the answer. Raises
        StorageError.
        """
        with object_errors(path):
            return self.answer(kind, lambda pair: send(pair.patient))

    def answer(self, kind: RequestKind, send: Callable[[ClientPair], T]) -> T:
        """Sends a request, and returns the answer. If the store says that the keys have expired, it has not carried out
        the request, so the request is sent again with new keys. Raises the errors of the client.
        """
        pair = self.pair
        self.counter.add(kind)
        try:
            return send(pair)
        except STORE_ERRORS as e:
            if self.renew is None or not says_keys_have_ended(e):
                raise
        pair = self._renewed(pair, self.renew)
        self.counter.add(kind)
        return send(pair)

    def _renewed(self, ended: ClientPair, renew: Callable[[], ClientPair]) -> ClientPair:
        with self._renewing:
            if self.pair is ended:
                self.pair = renew()
            return self.pair


def address_of(uri: str, storage: Mapping[str, str]) -> tuple[StoreAddress, str]:
    """Returns the bucket that a URI names, and the key that follows the bucket, without slashes at the ends of the key.

    Raises OptionError for a URI without a bucket, and if obstore is not installed.
    """
    parts = urlsplit(uri.partition("?")[0].partition("#")[0])
    scheme = uri.partition(":")[0]
    kind = _KINDS[scheme]
    place, _, key = uri.partition("://")[2].partition("/")
    bucket, _, host = place.partition("@") if kind is StoreKind.AZURE else (place, "", "")
    if not bucket or not parts.netloc:
        raise OptionError(f"{uri} names no bucket; write it as {scheme}://bucket/warehouse/shop.db/t", uri=uri)
    if obstore_stores is None:
        raise OptionError(
            f"{uri}: tables on {kind.value} need the package obstore: install bucketline[stores]",
            uri=uri,
            scheme=scheme,
        )
    return StoreAddress(kind, bucket, host, tuple(sorted(storage.items()))), key.strip("/")


@lru_cache(maxsize=MOST_CLIENTS)
def clients_of(address: StoreAddress) -> StoreClients:
    """Returns the clients of a bucket. A process gets the same clients again, as long as it uses no more than
    `MOST_CLIENTS` buckets. Raises OptionError for settings from which no client can be made.
    """
    counter = _counter_of(address.kind, address.bucket, address.host)
    return StoreClients(
        _pair(address),
        (lambda: _pair(address)) if _has_keys_of_others(address) else None,
        takes_suffix=address.kind is not StoreKind.AZURE,
        counter=counter,
        remembered=RememberedFor(address),
    )


def _pair(address: StoreAddress) -> ClientPair:
    options = dict(address.options)
    try:
        make = _MAKERS[address.kind](address, options)
        attempts = _attempts(address, options)
        patient = make(
            {"timeout": _TIMEOUT, "read_timeout": _SILENCE}, {"max_retries": attempts - 1, "retry_timeout": _RETRY_TIME}
        )
        once = make({"timeout": _PUBLISH_TIMEOUT}, {"max_retries": 0})
    except SETTINGS_ERRORS as e:
        reason = str(e).partition("\n")[0]
        raise OptionError(f"{address.kind.value} bucket {address.bucket!r} cannot be opened: {reason}") from e
    return ClientPair(patient, once)


def _has_keys_of_others(address: StoreAddress) -> bool:
    """Returns True if the keys come from another service, which gives new keys when the keys expire."""
    named = {key for key, _ in address.options}
    return address.kind is StoreKind.S3 and (S3_ACCESS_KEY.key not in named or S3_ROLE.key in named)


@cache
def _counter_of(kind: StoreKind, bucket: str, host: str) -> RequestCounter:
    """Returns the counter of requests for a bucket. Requests with different access keys are counted together, because a
    catalog lends new access keys while a batch runs.
    """
    return RequestCounter()


refuse_after_fork(lambda: clients_of.cache_info().currsize > 0)

Make = Callable[[dict[str, Any], dict[str, Any]], Any]
"""A function that makes a client from the options of the HTTP client and the options for repeated requests."""


def _attempts(address: StoreAddress, options: Mapping[str, str]) -> int:
    attempts = s3_settings(options).attempts if address.kind is StoreKind.S3 else None
    return _ATTEMPTS if attempts is None else attempts


def _s3(address: StoreAddress, options: Mapping[str, str]) -> Make:
    return _s3_client(address.bucket, s3_settings(options), {})


def _oss(address: StoreAddress, options: Mapping[str, str]) -> Make:
    """Returns a function that makes a client for OSS. OSS uses S3's protocol under a host of the bucket's own, but has
    no request that deletes several objects.
    """
    return _s3_client(address.bucket, oss_settings(options), {"disable_bulk_delete": True})


def _s3_client(bucket: str, settings: S3Settings, more: Mapping[str, Any]) -> Make:
    endpoint = endpoint_of(settings)
    virtual = is_virtual(settings)
    if endpoint is not None and virtual:
        scheme, _, host = endpoint.partition("://")
        endpoint = f"{scheme}://{bucket}.{host}"
    config = {
        "endpoint": endpoint,
        "access_key_id": settings.access_key,
        "secret_access_key": settings.secret_key,
        "session_token": settings.session_token,
        "region": settings.region,
        "virtual_hosted_style_request": virtual or None,
        **more,
    }
    config_values = {key: value for key, value in config.items() if value is not None}
    named = endpoint or endpoint_of_environment()
    client = {"allow_http": named.startswith("http://"), "connect_timeout": _CONNECT_TIMEOUT}
    if settings.connect_timeout_ms is not None:
        client["connect_timeout"] = timedelta(milliseconds=settings.connect_timeout_ms)
    source = key_source(settings)

    def make(http: dict[str, Any], retry: dict[str, Any]) -> Any:
        return obstore_stores.S3Store(
            bucket,
            config=config_values,
            client_options={**client, **http},
            retry_config=retry,
            credential_provider=source,
        )

    return make


def endpoint_of(settings: S3Settings) -> str | None:
    """Returns the address of the store, with its scheme and without the bucket; None if the environment holds the
    address.
    """
    endpoint = settings.endpoint
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{'http' if settings.https is False else 'https'}://{endpoint}"
    return None if endpoint is None else endpoint.rstrip("/")


def is_virtual(settings: S3Settings) -> bool:
    """Returns True if the bucket is the first part of the host name in the endpoint."""
    endpoint = endpoint_of(settings)
    return endpoint is not None and not settings.path_style and not _is_number(endpoint)


def endpoint_of_environment() -> str:
    """Returns the address of the store from the environment; empty if it is the address of AWS."""
    return next((os.environ[name] for name in _ENDPOINTS if name in os.environ), "")


def _is_number(endpoint: str) -> bool:
    """Returns True if the host is an IP address. The name of a bucket cannot stand before an IP address."""
    try:
        ip_address(urlsplit(endpoint).hostname or "")
    except ValueError:
        return False
    return True


_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _gcs(address: StoreAddress, options: Mapping[str, str]) -> Make:
    settings = gcs_settings(options)
    config = {
        "base_url": settings.endpoint,
        "service_account": settings.keyfile,
        "skip_signature": True if settings.anonymous else None,
    }
    config_values = {key: value for key, value in config.items() if value is not None}
    client = {"allow_http": (settings.endpoint or "").startswith("http://"), "connect_timeout": _CONNECT_TIMEOUT}

    def make(http: dict[str, Any], retry: dict[str, Any]) -> Any:
        return obstore_stores.GCSStore(
            address.bucket, config=config_values, client_options={**client, **http}, retry_config=retry
        )

    return make


def _azure(address: StoreAddress, options: Mapping[str, str]) -> Make:
    """Returns a function that makes a client for a container. The account is named by the URI's host, or, if the URI
    has no host, by the environment.
    """
    account, _, _ = address.host.partition(".")
    config: dict[str, Any] = {}
    if account:
        config["account_name"] = account
        config["account_key"] = azure_secret(options, AZURE_ACCOUNT_KEY, account)
        config["sas_key"] = azure_secret(options, AZURE_SAS_TOKEN, account)
    config_values = {key: value for key, value in config.items() if value is not None}
    named = os.environ.get("AZURE_STORAGE_ENDPOINT", os.environ.get("AZURE_ENDPOINT", ""))
    is_emulator = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true"
    client = {"allow_http": named.startswith("http://") or is_emulator, "connect_timeout": _CONNECT_TIMEOUT}

    def make(http: dict[str, Any], retry: dict[str, Any]) -> Any:
        return obstore_stores.AzureStore(
            address.bucket, config=config_values, client_options={**client, **http}, retry_config=retry
        )

    return make


_MAKERS: Mapping[StoreKind, Callable[[StoreAddress, Mapping[str, str]], Make]] = {
    StoreKind.S3: _s3,
    StoreKind.OSS: _oss,
    StoreKind.GCS: _gcs,
    StoreKind.AZURE: _azure,
}
