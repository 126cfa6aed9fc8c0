"""Finds uploads in parts that were begun but not completed. The uploads of killed processes cost money, and no listing
of objects shows them. The uploads are listed and cancelled through boto3, because obstore can do neither. Only S3 and
compatible stores keep such uploads for ever.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bucketline.conf.storage_options import oss_settings, s3_settings
from bucketline.state.errors import StorageError
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.objects.aws_keys import key_source
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.objects.object_store import (
    StoreKind,
    endpoint_of,
    endpoint_of_environment,
    is_virtual,
)
from bucketline.state.store.storage.wrapped_io import bare

_LOG = logging.getLogger(__name__)

_CONNECT_SECONDS = 10
_TRIES = 5
_SIGN = "?uploadId="
_WITHOUT_BOTO3 = (
    "uploads in parts that killed processes have left in %s cannot be listed without the package boto3: install boto3"
)


def unended_uploads(io: object, directory: str) -> list[FileInfo]:
    """Returns the uploads below a folder that were not completed; an empty list for storage that has no such uploads.

    The path of an upload is the path of the file that it would have made, followed by `?uploadId=` and its id. The time
    of an upload is the time at which it began. The size of an upload is unknown and stated as 0. A warning is logged if
    the uploads cannot be listed because boto3 is missing or the keys do not allow it.
    """
    store = bare(io)
    if not isinstance(store, ObjectIO) or store.address.kind not in (StoreKind.S3, StoreKind.OSS):
        return []
    bucket, _, prefix = directory.partition("/")
    try:
        with _errors(directory):
            pages = _client(store).get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{prefix}/")
            uploads = [upload for page in pages for upload in page.get("Uploads", ())]
    except ImportError:
        _LOG.warning(_WITHOUT_BOTO3, directory)
        return []
    except StorageError as e:
        _LOG.warning("uploads in parts that killed processes have left cannot be listed: %s", e.message)
        return []
    return [
        FileInfo(f"{bucket}/{u['Key']}{_SIGN}{u['UploadId']}", 0, int(u["Initiated"].timestamp() * 1000))
        for u in uploads
    ]


def end_upload(io: object, upload: FileInfo) -> None:
    """Cancels one of the uploads that `unended_uploads` has returned, and removes its parts. It is no error if the
    upload has already ended. Raises StorageError.
    """
    store = bare(io)
    assert isinstance(store, ObjectIO)
    path, _, upload_id = upload.path.partition(_SIGN)
    bucket, _, key = path.partition("/")
    with _errors(path):
        client = _client(store)
        with suppress(client.exceptions.NoSuchUpload):
            client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)


def _client(store: ObjectIO) -> Any:
    import boto3  # noqa: PLC0415 - an optional engine, slow to load and needed here alone
    from botocore.config import Config  # noqa: PLC0415 - as boto3

    address, options = store.address, dict(store.address.options)
    settings = oss_settings(options) if address.kind is StoreKind.OSS else s3_settings(options)
    source = key_source(settings)
    lent = {} if source is None else source()
    session = boto3.Session(
        aws_access_key_id=lent.get("access_key_id", settings.access_key),
        aws_secret_access_key=lent.get("secret_access_key", settings.secret_key),
        aws_session_token=lent.get("token", settings.session_token),
        region_name=settings.region,
    )
    endpoint = endpoint_of(settings) or endpoint_of_environment()
    style = "virtual" if is_virtual(settings) else "path" if endpoint else "auto"
    config = Config(s3={"addressing_style": style}, connect_timeout=_CONNECT_SECONDS, retries={"max_attempts": _TRIES})
    return session.client("s3", endpoint_url=endpoint or None, config=config)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as boto3

    try:
        yield
    except (BotoCoreError, ClientError) as e:
        raise StorageError(f"{path}: {e}", path=path, retryable=False, missing=False) from e
