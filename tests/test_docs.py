"""What the documents hand to the user works as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

DOCS = Path(__file__).parent.parent / "docs"


def test_the_cluster_is_one_that_ray_can_start() -> None:
    import ray.autoscaler

    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text())
    config: dict[str, Any] = yaml.safe_load((DOCS / "cluster.yaml").read_text())
    jsonschema.validate(config, schema)
    assert config["head_node_type"] in config["available_node_types"]
    assert config["max_workers"] >= max(kind["max_workers"] for kind in config["available_node_types"].values())
