from pathlib import Path

import psutil

from gandiva_ray.runtime.memory import node_memory

MIB = 2**20


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_a_limit_it_is_the_machines(tmp_path: Path) -> None:
    write(tmp_path, memory__max="max\n", memory__current="5\n", memory__stat="inactive_file 0\n")
    memory = node_memory(tmp_path)
    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < memory.used_part < 1


def test_a_container_with_less_counts_what_cannot_be_dropped(tmp_path: Path) -> None:
    statistics = f"anon 1\ninactive_file {40 * MIB}\n"
    write(tmp_path, memory__max=f"{200 * MIB}\n", memory__current=f"{100 * MIB}\n", memory__stat=statistics)
    memory = node_memory(tmp_path)
    assert (memory.total_bytes, memory.free_bytes) == (200 * MIB, 140 * MIB)
    assert round(memory.used_part, 6) == 0.3


def test_the_older_layout_is_read_too(tmp_path: Path) -> None:
    write(
        tmp_path / "memory",
        memory__limit_in_bytes=f"{100 * MIB}\n",
        memory__usage_in_bytes=f"{90 * MIB}\n",
        memory__stat="total_inactive_file 0\n",
    )
    assert round(node_memory(tmp_path).used_part, 6) == 0.9


def test_a_limit_above_the_machines_memory_is_none(tmp_path: Path) -> None:
    write(tmp_path, memory__max=f"{2**62}\n", memory__current="5\n", memory__stat="inactive_file 0\n")
    assert node_memory(tmp_path).total_bytes == psutil.virtual_memory().total
