"""Gets short-lived access keys of AWS, from a role or a profile. New keys are requested before the old keys expire."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.storage_options import S3_ROLE, S3Settings
from bucketline.state.determinism import SYSTEM_CLOCK

KeySource = Callable[[], dict[str, Any]]
"""A function that returns access keys in the form that obstore takes."""

_PROFILE = "AWS_PROFILE"
_PROFILE_LIFE = timedelta(minutes=15)
"""How long keys of a profile are used before the profile is read again, because a profile does not say how long its
keys are valid.
"""


def key_source(settings: S3Settings) -> KeySource | None:
    """Returns a function that gets the access keys if a role or a profile is named; None if the options or the
    environment hold the keys.

    Raises OptionError if boto3, which requests the keys, is not installed, and for an unknown profile.
    """
    has_keys = settings.access_key is not None or "AWS_ACCESS_KEY_ID" in os.environ
    profile = None if has_keys else os.environ.get(_PROFILE)
    if settings.role is None and profile is None:
        return None
    try:
        import boto3  # noqa: PLC0415 - an optional engine, slow to load and needed here alone
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as boto3
    except ImportError as e:
        named = f"'{S3_ROLE.key}'" if settings.role is not None else f"the environment variable {_PROFILE}"
        raise OptionError(f"{named} needs the package boto3 to request the keys: install boto3", key=S3_ROLE.key) from e

    def session() -> Any:
        """Returns a new session, which reads the configuration files again, because the keys in them may have been
        replaced.
        """
        return boto3.Session(
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
            profile_name=profile,
        )

    try:
        session()
    except BotoCoreError as e:
        raise OptionError(
            f"there are no keys for the store: {e}; set {_PROFILE} to a profile that has keys", key=_PROFILE
        ) from e
    role = settings.role
    if role is None:
        return lambda: _of_profile(session())
    return lambda: _of_role(session(), role, settings.role_session or "bucketline")


def _of_profile(session: Any) -> dict[str, Any]:
    keys = session.get_credentials()
    if keys is None:
        raise OptionError(
            f"there are no keys for the store: the profile {session.profile_name!r} has no access keys; set {_PROFILE} "
            "to a profile that has keys",
            key=_PROFILE,
        )
    credentials = keys.get_frozen_credentials()
    return {
        "access_key_id": credentials.access_key,
        "secret_access_key": credentials.secret_key,
        "token": credentials.token,
        "expires_at": datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC) + _PROFILE_LIFE,
    }


def _of_role(session: Any, role: str, name: str) -> dict[str, Any]:
    credentials = session.client("sts").assume_role(RoleArn=role, RoleSessionName=name)["Credentials"]
    return {
        "access_key_id": credentials["AccessKeyId"],
        "secret_access_key": credentials["SecretAccessKey"],
        "token": credentials["SessionToken"],
        "expires_at": credentials["Expiration"].astimezone(UTC),
    }
