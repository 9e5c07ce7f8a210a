"""The work-pool templates, resolved by the very classes the Docker and Kubernetes workers resolve them with."""

import asyncio
import json
from pathlib import Path

import pytest

POOLS = Path(__file__).parents[2] / "deployments" / "pools"
pytestmark = pytest.mark.usefixtures("prefect_server")  # resolving asks the server for variables and blocks


def template(name: str) -> dict:
    return json.loads((POOLS / f"{name}.json").read_text())


def resolved(name: str, values: dict):
    kind = name.removesuffix("-gpu")
    worker = getattr(pytest.importorskip(f"prefect_{kind}.worker"), f"{kind.capitalize()}Worker")
    configuration = worker.job_configuration
    return asyncio.run(configuration.from_template_and_values(template(name), values))


@pytest.mark.parametrize("name", ["docker", "docker-gpu", "kubernetes", "kubernetes-gpu"])
def test_every_placeholder_is_a_variable_and_every_variable_is_used(name):
    text = json.dumps(template(name)["job_configuration"])
    for variable in template(name)["variables"]["properties"]:
        assert "{{ " + variable + " }}" in text
    assert text.count("{{") >= len(template(name)["variables"]["properties"])


def test_docker_asks_for_every_gpu_only_in_the_gpu_pool():
    requests = resolved("docker-gpu", {}).container_create_kwargs["device_requests"]
    assert requests == [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}]
    assert "device_requests" not in resolved("docker", {}).container_create_kwargs


def test_kubernetes_asks_for_so_many_gpus_and_mounts_the_data():
    job = resolved("kubernetes-gpu", {"gpus": 2, "data_claim": "corpus"}).job_manifest
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "corpus"
    plain = resolved("kubernetes", {}).job_manifest["spec"]["template"]["spec"]["containers"][0]
    assert "nvidia.com/gpu" not in plain["resources"]["limits"]


def test_a_value_of_the_wrong_kind_is_refused():
    with pytest.raises(Exception, match="gpus|memory|mem_limit|valid"):
        resolved("docker", {"mem_limit": {"not": "a string"}})
