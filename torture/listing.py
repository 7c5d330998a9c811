"""All knocks, in the order in which they are tried."""

from __future__ import annotations

from torture import damage, datafiles, flood, fuzz, lying, modelfiles, outputs, places, properties, serving, soak
from torture.kills import kill
from torture.knocks import Knock


def known_knocks() -> list[Knock]:
    """Every knock."""
    return [
        kill,
        places.disk_full,
        places.read_only,
        places.two_processes,
        places.clock,
        damage.cut,
        damage.flip,
        damage.newer,
        outputs.output,
        outputs.page,
        flood.flood,
        modelfiles.gguf_prefix,
        modelfiles.gguf_flip,
        modelfiles.safetensors_prefix,
        modelfiles.safetensors_flip,
        datafiles.data_files,
        datafiles.parquet_bomb,
        properties.properties,
        fuzz.fuzz,
        lying.engine_lies,
        serving.upstream_faults,
        serving.clients,
        soak.streams,
    ]
