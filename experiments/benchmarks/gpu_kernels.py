"""How many kernels does a compiled training step launch on an H100? Counted on a machine without a GPU.

    python experiments/benchmarks/gpu_kernels.py OUT.json --label NAME [--scale mini --scale small] [--objective rtd]

`workbench.training.steps.Steps` compiles one step in bf16, as with `--compile`. Its tensors have shapes and no values
(FakeTensorMode), and torch's compiler is given the properties of an H100, so that it writes the code that it would
write there. The code is counted and never run. Printed and added to OUT.json for each scale, forward and backward:

triton      launches of kernels that the compiler wrote, and the bytes that they read and write
products    calls of cuBLAS for matrix products
attention   calls of fused attention (FlashAttention, which torch is assumed to choose)
others      calls of other operators, such as a sort, each of which launches several kernels

The optimizer's update is not compiled, and not counted. Bytes are the compiler's estimate: each kernel reads and writes
each of its buffers once. What the compiler decides by a measurement on the GPU is not decided here: products are not
padded, and no kernel is tuned. Needs a CPU build of torch, `triton` (`pip install triton`), and g++ for the twenty
lines by which a CPU build has a GPU's name.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

# A CPU build of torch computes shapes of CUDA tensors, and has no streams for their gradients. These take no time and
# have no order; both functions at the end replace functions of libtorch, which must be loaded after them.
PRETENCE = """
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
using c10::Device, c10::Stream;
namespace {
const Device gpu(c10::DeviceType::CUDA, 0);
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  Device getDevice() const override { return gpu; }
  Device exchangeDevice(Device) const override { return gpu; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, gpu); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, gpu); }
  void record(void**, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
} guard;
struct Hooks : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
} hooks;
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);
}
namespace at::accelerator {
TORCH_API std::optional<c10::DeviceType> getAccelerator(bool) { return c10::DeviceType::CUDA; }
}
namespace at::detail {
const at::CUDAHooksInterface& getCUDAHooks() { return hooks; }
}
"""
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=80 * 2**30, warp_size=32,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
    shared_memory_per_multiprocessor=228 * 2**10, shared_memory_per_block=48 * 2**10,
    shared_memory_per_block_optin=227 * 2**10, L2_cache_size=50 * 2**20, gcnArchName="",
)  # fmt: skip
KINDS = ("triton", "products", "attention", "others")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def load_pretence() -> None:
    """Let a CPU build of torch, which must not be imported yet, take gradients of CUDA tensors without values."""
    assert "torch" not in sys.modules, "torch is loaded before the functions that replace its own"
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("gpu_kernels.py needs torch")
    torch_folder = Path(found.origin).parent
    if list((torch_folder / "lib").glob("libc10_cuda*")):
        sys.exit("gpu_kernels.py needs a CPU build of torch; it was not written for a CUDA build")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "pretence.cpp", Path(folder) / "pretence.so"
        source.write_text(PRETENCE)
        include, lib = torch_folder / "include", torch_folder / "lib"
        command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
        subprocess.run([*command, f"-L{lib}", "-lc10"], check=True)
        ctypes.CDLL(str(lib / "libc10.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def pretend() -> list[Any]:
    """Let torch and triton take this machine for one with an H100; return what must be kept for as long."""
    import torch
    import triton
    from torch._subclasses.fake_tensor import FakeTensorMode
    from triton.backends.compiler import GPUTarget

    cuda: Any = torch.cuda
    cuda.is_available, cuda.device_count, cuda.current_device = lambda: True, lambda: 1, lambda: 0
    cuda.get_device_properties, cuda.get_device_capability = (
        lambda *_, **_k: H100,
        lambda *_, **_k: (H100.major, H100.minor),
    )
    cuda.is_bf16_supported = lambda **_: True
    cuda.get_rng_state, cuda.set_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8), lambda *_: None
    cuda._exchange_device, cuda._lazy_init = lambda _: 0, lambda: None
    cuda._maybe_exchange_device = lambda _: 0  # a function of its own, since the compiler lists these by identity
    FakeTensorMode.avoid_device_init = True  # type: ignore[assignment, method-assign]
    target = GPUTarget("cuda", 10 * H100.major + H100.minor, H100.warp_size)
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0))

    def attention(query: Any, key: Any, value: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
                  scale: float | None = None, enable_gqa: bool = False) -> Any:  # fmt: skip
        assert mask is None and not enable_gqa, "FlashAttention has no masks"
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout, causal, scale=scale)[0]

    # The compiler computes constants on the device, which are in main memory here.
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", lambda size, dtype=None, **_: torch.empty(size, dtype=dtype), "CUDA")
    library.impl("empty_strided", lambda size, by, dtype=None, **_: torch.empty_strided(size, by, dtype=dtype), "CUDA")
    library.impl("scaled_dot_product_attention", attention, "AutogradCUDA")
    return [library]


class Counts:
    """Counts launches and bytes of compiled code. It replaces the compiler's last step, which would load the code."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.parts: dict[str, dict[str, Any]] = {}

    def inner_compile(self, graph: Any, inputs: Any, **how: Any) -> Any:
        """Count the code for a graph of operators; return a function that computes the shapes of its outputs."""
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.graph import GraphLowering

        class Lowered(Exception):
            pass

        def count(lowered: Any) -> None:
            code = lowered.codegen()[0].value
            self.parts["backward" if how.get("is_backward") else "forward"] = counted(lowered, code)
            raise Lowered

        try:
            with mock.patch.object(GraphLowering, "compile_to_module", count):
                compile_fx_inner(graph, inputs, **how)
        except Exception as error:
            if not any(isinstance(each, Lowered) for each in (error, error.__cause__, error.__context__)):
                raise

        def shapes(given: Any) -> Any:
            with self.mode:
                return graph(*given)

        shapes._boxed_call = True  # type: ignore[attr-defined]
        return shapes


def counted(lowered: Any, code: str) -> dict[str, Any]:
    """Return the launches of Triton kernels in the code, and the calls and bytes of all kinds in its graph."""
    from torch._inductor.ir import MultiOutput
    from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode

    kernels = re.findall(r"^\s+(triton_\w+)\.run\(", code, re.MULTILINE)
    sums = re.findall(r"= workspace_\d+\[.*\.sum\(dim=0\)", code)  # which add up what one of the kernels left in parts
    calls, moved, others = Counter(triton=len(kernels), others=len(sums)), Counter[str](), Counter(sum=len(sums))
    for node in lowered.scheduler.nodes:
        if isinstance(node, NopKernelSchedulerNode) or isinstance(node.node, MultiOutput):
            continue
        if not isinstance(node, ExternKernelSchedulerNode):
            moved["triton"] += node.get_read_write_buffers_sizes()
            continue
        name = str(node.node.op_overload or node.node.python_kernel_name).split(".")[1]  # of aten.mm.default, for one
        kind = "products" if name in PRODUCTS else "attention" if "_attention" in name else "others"
        calls[kind] += 1
        moved[kind] += node.get_read_write_buffers_sizes()
        others += Counter([name] if kind == "others" else [])
    return {"calls": calls, "bytes": moved, "others": +others}


def step(scale: str, objective: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Return the launches and bytes of one compiled step of an objective."""
    import torch
    from torch._inductor import compile_fx as inductor
    from torch._inductor import config
    from torch._subclasses.fake_tensor import FakeTensorMode

    from workbench import objectives
    from workbench.spec.host import Host
    from workbench.spec.presets import resolve
    from workbench.tensors import Batch
    from workbench.training.loop import build
    from workbench.training.optimizer import make_optimizer
    from workbench.training.steps import Steps

    spec = objectives.with_options(resolve(scale, {"budget.steps": 100} | keys).replace(objective=objective))
    model, mode, device = build(spec).train(), FakeTensorMode(), torch.device("cuda", 0)
    counts, rows, length = Counts(mode), spec.batch.size, spec.data.length
    count = functools.partial(inductor.compile_fx, inner_compile=counts.inner_compile)
    torch._dynamo.reset()
    with (
        warnings.catch_warnings(), mode, torch.autograd.set_multithreading_enabled(False),
        mock.patch.object(inductor, "compile_fx", count), config.patch(fx_graph_cache=False, shape_padding=False),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        drop_values(model, device)
        batch = Batch(*(torch.empty(shape, dtype=torch.int64, device=device) for shape in ((rows, length), (rows,))))
        host, autocast = Host(device="cuda", compile=True), torch.autocast("cuda", torch.bfloat16)
        corpus: Any = None  # the batch is given
        steps = Steps(spec, corpus, host, device, autocast, model, make_optimizer(model, spec.optim))
        with autocast:
            loss = steps.forward(batch)
        loss.total.backward()
    return {"scale": scale, "objective": objective, "rows": rows, "length": length, **counts.parts}


def drop_values(model: Any, device: Any) -> None:
    """Replace the weights and buffers of a model by tensors of the active FakeTensorMode on a device."""
    import torch
    from torch import nn

    replaced: dict[int, tuple[Any, Any]] = {}  # by the id of a tensor: the tensor itself, and its replacement
    for part in model.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in replaced:
                    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                    weight = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
                    replaced[id(tensor)] = tensor, weight
                tensors[name] = replaced[id(tensor)][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="a JSON file, to which the counts are added")
    parser.add_argument("--label", required=True, help="what is counted, such as the name of a change")
    parser.add_argument("--scale", action="append")
    parser.add_argument("--objective", default="rtd")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, in JSON")
    chosen = parser.parse_args()
    load_pretence()
    kept = pretend()
    from record import here

    from workbench.cli.terminal import table

    keys = {key: json.loads(value) for key, _, value in (each.partition("=") for each in chosen.set)}
    rows = [step(scale, chosen.objective, keys) for scale in chosen.scale or ["mini", "small"]]
    results = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    facts = here() | {"triton": importlib.metadata.version("triton")}
    results.append({"label": chosen.label, **facts, "rows": rows})
    chosen.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table([line(row) for row in rows]))
    del kept


def line(row: dict[str, Any]) -> dict[str, Any]:
    """Return the sums of a step over its forward and backward pass, for a table; bytes in GB."""
    calls, moved = (Counter(row["forward"][of]) + Counter(row["backward"][of]) for of in ("calls", "bytes"))
    shown = {"scale": row["scale"], **{kind: calls[kind] for kind in KINDS}, "together": calls.total()}
    return {**shown, "GB of triton": f"{moved['triton'] / 1e9:.2f}", "GB of all": f"{moved.total() / 1e9:.2f}"}


if __name__ == "__main__":
    main()
