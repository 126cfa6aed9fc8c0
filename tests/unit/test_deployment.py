"""The files of examples/deployment say the same, name what is there, and leave nothing to root."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bucketline.conf.resolve import read_settings_file
from bucketline.streaming.cli.commands import program

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "deployment"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
MANIFESTS: dict[str, Any] = {
    name: next(
        d for d in yaml.safe_load_all((FOLDER / "kubernetes" / f"{name}.yaml").read_text()) if "template" in d["spec"]
    )
    for name in ("job", "compactor")
}


def _pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = MANIFESTS[name]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", ["job", "compactor"])
def test_compose_file_and_manifests_start_the_same_command_with_the_same_secrets(name: str) -> None:
    service, (container,) = COMPOSE["services"][name], _pod(name)["containers"]
    assert service["command"] == container["args"] and service["image"] == container["image"]
    assert service["environment"] == {e["name"]: e["value"] for e in container["env"]}
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert {"/etc/bucketline", "/run/secrets"} <= mounted and service["secrets"] == ["store-password"]
    assert service["stop_grace_period"] == "5m" and _pod(name)["terminationGracePeriodSeconds"] == 300


@pytest.mark.parametrize("name", ["job", "compactor"])
def test_nothing_runs_as_root(name: str) -> None:
    user = re.findall(r"^USER (\d+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert user == ["10001"] and _pod(name)["securityContext"]["runAsUser"] == 10001
    (container,) = _pod(name)["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] and _pod(name)["securityContext"]["runAsNonRoot"]


def test_a_job_has_one_replica_that_is_never_beside_another() -> None:
    spec = MANIFESTS["job"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_ports_are_those_that_the_settings_open_and_prometheus_asks() -> None:
    settings = {k: s.text for k, s in read_settings_file(str(FOLDER / "orders.yaml")).items()}
    assert settings["options.metrics.prometheus.address"] == "0.0.0.0"
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]["dns_sd_configs"]
    ports = {s["names"][0]: s["port"] for s in scraped}
    assert ports == {"job": int(settings["options.metrics.prometheus.port"]), "compactor": 9102}
    for name, port in ports.items():
        (container,) = _pod(name)["containers"]
        assert container["ports"] == [{"name": "metrics", "containerPort": port}]
        assert MANIFESTS[name]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port)


def test_the_compactor_reaches_the_store_as_the_job_does() -> None:
    job = {k: s.text for k, s in read_settings_file(str(FOLDER / "orders.yaml")).items()}
    storage = {k: s.text for k, s in read_settings_file(str(FOLDER / "storage.yaml")).items()}
    assert storage == {k.removeprefix("storage."): v for k, v in job.items() if k.startswith("storage.")}


def test_the_settings_of_the_job_are_those_that_a_job_may_have() -> None:
    done = CliRunner().invoke(program, ["ingest", "--conf-file", str(FOLDER / "orders.yaml"), "--print-config"])
    assert done.exit_code == 0, done.stderr


def test_what_is_mounted_is_there() -> None:
    """Each file of this repository that the compose file gives to a container."""
    mounted = [v.split(":")[0] for s in COMPOSE["services"].values() for v in s.get("volumes", ()) if v[0] == "."]
    assert len(mounted) >= 6 and all((FOLDER / path).is_file() for path in mounted)
    assert "../../docs/monitoring/grafana.json" in mounted
