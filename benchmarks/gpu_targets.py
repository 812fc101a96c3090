"""The GPUs that programs are compiled for without having one, as XLA describes them.

Source: openxla/xla, `xla/backends/gpu/target_config/specs/` (h100_sxm and a100_sxm_80).
"""

from __future__ import annotations

from typing import NamedTuple

SHARED = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_memory_per_core}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {fpus_per_core}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bytes_per_second}
  l2_cache_size: {l2_bytes}
  clock_rate_ghz: {clock_ghz}
  device_memory_size: {memory_bytes}
  shared_memory_per_block_optin: {shared_memory_optin}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{name}"
"""


class Target(NamedTuple):
    """A GPU: its name, and its description as text of XLA's `GpuTargetConfigProto`."""

    name: str
    description: str


def _target(name: str, **numbers: float) -> Target:
    return Target(name, SHARED.format(name=name, **numbers))


TARGETS = {
    "sm_90": _target(
        "NVIDIA H100 80GB HBM3",
        major=9,
        minor=0,
        cores=132,
        fpus_per_core=128,
        clock_ghz=1.98,
        shared_memory_per_core=233_472,
        shared_memory_optin=232_448,
        l2_bytes=52_428_800,
        bytes_per_second=3_352_320_000_000,
        memory_bytes=84_942_979_072,
    ),
    "sm_80": _target(
        "NVIDIA A100-SXM4-80GB",
        major=8,
        minor=0,
        cores=108,
        fpus_per_core=64,
        clock_ghz=1.41,
        shared_memory_per_core=167_936,
        shared_memory_optin=166_912,
        l2_bytes=41_943_040,
        bytes_per_second=2_039_040_000_000,
        memory_bytes=85_100_068_864,
    ),
}
