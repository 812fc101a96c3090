"""Compiles a program for a GPU that is not there, by the CUDA plugin of JAX.

    python -m kytolly.benchmarks.gpu_compiler --program FILE --gpu sm_90

The program is StableHLO, as `gpu_dump` and `competitors.jax_dump` write it. The optimized HLO goes
to FILE.sm_90.hlo. The plugin's library is loaded directly: its Python package would look for a
driver first. Matrix products are not tuned, because that would take a GPU.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kytolly.benchmarks.gpu_targets import TARGETS
from kytolly.benchmarks.program import Program, Result, refuse, require, run_program
from kytolly.config.fields import setting

if TYPE_CHECKING:
    from jaxlib.mlir import ir

INSTALL = 'pip install "kytolly[gpu-compile]"'
PLUGIN = "jax_plugins.xla_cuda12"
NEEDS = ("jax", "jaxlib", PLUGIN, "nvidia.cuda_nvcc")
SAME_VERSION = ("jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompilerSettings:
    """One program to compile."""

    program: str = setting("", "file with StableHLO")
    gpu: str = setting("sm_90", "compute capability of the GPU")
    devices: int = setting(1, "GPUs that run it together")


def why_unusable() -> str:
    """Why nothing can be compiled for a GPU here, or nothing."""
    for name in NEEDS:
        if not is_installed(name):
            return f"the extra gpu-compile is not installed ({name} is missing): {INSTALL}"
    versions = {name: metadata.version(name) for name in SAME_VERSION}
    if len(set(versions.values())) > 1:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        words = " ".join(f"{name}=={versions['jaxlib']}" for name in SAME_VERSION[1:])
        return f"{found}: expected one version of all three: pip install {words}"
    return ""


def is_installed(name: str) -> bool:
    """True if a module can be found; its parents are namespaces and import nothing."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def package_folder(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name)
    return Path(next(iter(spec.submodule_search_locations)))


def drop_copies(module: ir.Module) -> None:
    """Take TensorFlow's `mhlo.copy` out, which the plugin's compiler refuses."""
    copies: list[Any] = []

    def visit(operation: Any) -> None:
        for region in operation.regions:
            for block in region.blocks:
                for child in block.operations:
                    if child.operation.name == "mhlo.copy":
                        copies.append(child.operation)
                    visit(child.operation)

    visit(module.operation)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


def run(settings: CompilerSettings) -> Result:
    """Compile, and write the optimized HLO beside the program."""
    if settings.gpu not in TARGETS:
        refuse(f"--gpu is {settings.gpu!r}, expected one of {', '.join(TARGETS)}.")
    if reason := why_unusable():
        refuse(reason)
    target = TARGETS[settings.gpu]
    nvcc = package_folder("nvidia.cuda_nvcc")
    os.environ["XLA_FLAGS"] = f"--xla_gpu_cuda_data_dir={nvcc} --xla_gpu_autotune_level=0"
    require("jax")
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir

    library = package_folder(PLUGIN) / "xla_cuda_plugin.so"
    api = xla_client.load_pjrt_plugin_dynamically("cuda", str(library))
    xla_client.initialize_pjrt_plugin("cuda")
    topology = xla_client.make_c_api_device_topology(
        api, settings.gpu, target_config=target.description, topology=f"1x1x{settings.devices}"
    )
    devices = tuple(topology._make_compile_only_devices())
    begin = time.perf_counter()
    with mlir.make_ir_context():
        module = ir.Module.parse(Path(settings.program).read_bytes())
        drop_copies(module)
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = len(devices), 1
        places = np.array([[device.id] for device in devices])
        options.device_assignment = xla_client.DeviceAssignment.create(places)
        program = devices[0].client.compile(
            module, executable_devices=xla_client.DeviceList(devices), compile_options=options
        )
    seconds = time.perf_counter() - begin
    file = f"{settings.program}.{settings.gpu}.hlo"
    Path(file).write_text(program.hlo_modules()[0].to_string())
    memory = program.get_compiled_memory_stats()
    return {
        "hlo": file,
        "gpu": target.name,
        "compiler": f"jaxlib {metadata.version('jaxlib')}",
        "compile_seconds": seconds,
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
    }


PROGRAM = Program(run, (CompilerSettings,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
