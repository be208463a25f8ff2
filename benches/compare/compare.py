"""Times ffpa beside PyTorch's attention on one GPU, in one process, and writes a JSON file of the results.

usage: compare.py LIBRARY OUT.json [--dims 64,128,...] [--rounds 10] [--peers FOLDER]

With --peers, the folder holds the Python package ffpa_attn, and its Triton kernels take part.

Competitors take turns, in alternating order, so that heat and clocks meet all of them alike; the result is the median of
the per-round ratios. "sustained" is some launches back to back, "burst" one launch after a pause. Inputs are random, and
every competitor's output is checked against f32 attention in the same run.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ffpa import Ffpa


def sdpa(backend, q, k, v):
    def run(causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def ffpa_triton(q, k, v):
    """The original's Triton kernels (ffpa_attn 0.2.4)."""
    os.environ.setdefault("FFPA_TRITON_ALLOW_SMALL_D", "1")
    from ffpa_attn import TritonBackend, ffpa_attn_func

    backend = TritonBackend(forward=True, backward=False)
    return lambda causal: ffpa_attn_func(q, k, v, is_causal=causal, forward_backend=backend)


def exact(q, k, v, causal):
    """f32 attention of single heads, and its log-sum-exp."""
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    return scores.softmax(-1) @ v.float(), torch.logsumexp(scores, -1)


def in_turn(names, number):
    """The competitors' order in a round: forwards and backwards alternate."""
    return list(names) if number % 2 == 0 else list(names)[::-1]


def milliseconds(run, causal, launches):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(launches):
        run(causal)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / launches


def measure(ffpa, d, causal, n, heads, rounds, peers):
    q, k, v = (torch.randn(1, heads, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(1, heads, n, device="cuda")
    competitors = {"ffpa": ffpa.bind(q, k, v, out, lse)}
    if d <= 256:
        competitors["sdpa_flash"] = sdpa(SDPBackend.FLASH_ATTENTION, q, k, v)
        competitors["sdpa_cudnn"] = sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v)
    else:
        competitors["sdpa_efficient"] = sdpa(SDPBackend.EFFICIENT_ATTENTION, q, k, v)
    if peers:
        competitors["ffpa_triton"] = ffpa_triton(q, k, v)
    flops = 4 * heads * n * n * d * (0.5 if causal else 1)
    case = {"d": d, "causal": causal, "n": n, "heads": heads, "batch": 1, "dtype": "bf16", "competitors": {}}
    checked = (0, heads - 1)
    truth = {h: exact(q[0, h], k[0, h], v[0, h], causal) for h in checked}
    for name, run in competitors.items():
        out.fill_(math.nan)
        lse.fill_(math.nan)
        result = run(causal)
        torch.cuda.synchronize()
        error = max(((result[0, h].float() - o).norm() / o.norm()).item() for h, (o, _) in truth.items())
        nan = int(result.isnan().sum())
        assert nan == 0 and error < 5e-3, (name, d, causal, nan, error)
        entry = {"relative_error": error}
        if name == "ffpa":
            case["kernel"] = ffpa.last()
            entry["lse_error"] = max((lse[0, h] - l).abs().max().item() for h, (_, l) in truth.items())
            assert entry["lse_error"] < 1e-4
            again = result.clone()
            run(causal)
            torch.cuda.synchronize()
            assert torch.equal(out, again), "a second run gave other bits"
        case["competitors"][name] = entry
    del truth
    times = {mode: {name: [] for name in competitors} for mode in ("sustained", "burst")}
    for name, run in competitors.items():
        milliseconds(run, causal, 3)
    for mode, launches in (("sustained", None), ("burst", 1)):
        for r in range(rounds):
            for name in in_turn(competitors, r):
                if mode == "burst":
                    time.sleep(0.05)
                count = launches or max(3, int(40 / milliseconds(competitors[name], causal, 1)))
                times[mode][name].append(milliseconds(competitors[name], causal, count))
    for mode, by_name in times.items():
        for name, values in by_name.items():
            case["competitors"][name][mode] = {
                "tflops": flops / statistics.median(values) / 1e9,
                "ffpa_ratio": statistics.median(t / f for t, f in zip(values, by_name["ffpa"])),
            }
    return case


def measure_decode(ffpa, d, rounds, batch=8, heads=32, kv_heads=8, n=32768):
    """One query row over many keys: bytes of K and V a second, beside a copy's bytes read and written."""
    q = torch.randn(batch, heads, 1, d, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out, lse = torch.empty_like(q), torch.empty(batch, heads, 1, device="cuda")
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    run = ffpa.bind(q, k, v, out, lse)
    run(True)
    torch.cuda.synchronize()
    kernel, errors = ffpa.last(), []
    for b, h in ((0, 0), (batch - 1, heads - 1)):
        kv_head = h * kv_heads // heads
        truth, truth_lse = exact(q[b, h], k[b, kv_head], v[b, kv_head], False)
        errors.append(((out[b, h].float() - truth).norm() / truth.norm()).item())
        assert abs(lse[b, h, 0] - truth_lse[0]) < 1e-4
    assert max(errors) < 8e-3, errors
    competitors = {"ffpa": (run, 2 * k.nbytes), "copy": (lambda causal: target.copy_(source), 2 * source.nbytes)}
    if d <= 256:
        def flash(causal):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        competitors["sdpa_flash"] = (flash, 2 * k.nbytes)
    rates = {name: [] for name in competitors}
    for r in range(rounds + 1):
        for name in in_turn(competitors, r):
            call, size = competitors[name]
            rates[name].append(size / milliseconds(call, True, 10) / 1e6)
    ratio = statistics.median(a / b for a, b in zip(rates["ffpa"][1:], rates["copy"][1:]))
    case = {"d": d, "batch": batch, "heads": heads, "kv_heads": kv_heads, "n": n, "dtype": "bf16", "kernel": kernel}
    return case | {"gigabytes_per_second": {name: statistics.median(x[1:]) for name, x in rates.items()}, "ratio_to_copy": ratio}


def measure_masked(ffpa, d, rounds, n=4096, heads=16):
    """A boolean mask of all rows and keys beside PyTorch's memory-efficient attention."""
    q, k, v = (torch.randn(1, heads, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    mask = torch.rand(1, 1, n, n, device="cuda") < 0.7
    out = torch.empty_like(q)
    run = ffpa.bind(q, k, v, out, None, mask)

    def efficient(causal):
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    run(False)
    torch.cuda.synchronize()
    kernel = ffpa.last()
    scores = (q[0, 0].float() @ k[0, 0].float().T / math.sqrt(d)).masked_fill(~mask[0, 0], -math.inf)
    truth = scores.softmax(-1) @ v[0, 0].float()
    error = ((out[0, 0].float() - truth).norm() / truth.norm()).item()
    assert error < 5e-3, error
    competitors = {"ffpa": run, "sdpa_efficient": efficient}
    times = {name: [] for name in competitors}
    for r in range(rounds + 1):
        for name in in_turn(competitors, r):
            times[name].append(milliseconds(competitors[name], False, 5))
    ratio = statistics.median(b / a for a, b in zip(times["ffpa"][1:], times["sdpa_efficient"][1:]))
    return {"d": d, "heads": heads, "n": n, "dtype": "bf16", "kernel": kernel, "milliseconds": {k: statistics.median(t[1:]) for k, t in times.items()}, "ratio": ratio}


def measure_quantized(ffpa, d, rounds, n=8192, heads=32):
    """Calls in eight and four bits beside one in bf16, what they lose, and the bandwidth of the kernels that quantise, beside a copy's."""
    q, k, v = (torch.randn(1, heads, n, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(1, heads, n, device="cuda")
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    competitors = {name: ffpa.bind(q, k, v, out, lse, precision=p) for p, name in enumerate(("bf16", "e4m3", "int8", "nvfp4")) if d <= 256 or name != "nvfp4"}
    truth, truth_lse = exact(q[0, 0], k[0, 0], v[0, 0], False)
    case = {"d": d, "heads": heads, "n": n, "competitors": {}}
    times = {name: [] for name in competitors}
    for name, run in competitors.items():
        out.fill_(math.nan)
        run(False)
        torch.cuda.synchronize()
        error = ((out[0, 0].float() - truth).norm() / truth.norm()).item()
        worst = ((out[0, 0].float() - truth).norm(dim=1) / truth.norm(dim=1)).max().item()
        assert error < (0.25 if name == "nvfp4" else 0.08) and not out.isnan().any(), (name, d, error)
        case["competitors"][name] = {"kernel": ffpa.last(), "relative_error": error, "worst_row": worst, "lse_error": (lse[0, 0] - truth_lse).abs().max().item()}
    for r in range(rounds + 1):
        for name in in_turn(competitors, r):
            times[name].append(milliseconds(competitors[name], False, 5))
    for name, values in times.items():
        case["competitors"][name]["tflops"] = 4 * heads * n * n * d / statistics.median(values[1:]) / 1e9
    rate = 2 * source.nbytes / statistics.median(milliseconds(lambda causal: target.copy_(source), False, 5) for _ in range(rounds)) / 1e6
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(rounds):
            competitors["e4m3"](False)
        torch.cuda.synchronize()
    spent = {"statistics": [], "quantize": []}
    for event in profile.events():
        for stage in spent:
            if event.name.startswith(stage):
                spent[stage].append(event.device_time)
    # K and V are read by both kernels, Q by the second, which writes half of all.
    moved = {"statistics": 2 * k.nbytes, "quantize": 4.5 * k.nbytes}
    case["quantising"] = {"copy": rate} | {stage: moved[stage] / statistics.median(t) / 1e3 for stage, t in spent.items() if t}
    return case


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("library")
    arguments.add_argument("out")
    arguments.add_argument("--dims", default="64,128,192,256,320,512,640,768,1024")
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--decode", default="64,128,256,512,1024")
    arguments.add_argument("--masked", default="64,128,256,512")
    arguments.add_argument("--quantized", default="64,128,192,224")
    arguments.add_argument("--peers")
    a = arguments.parse_args()
    if a.peers:
        sys.path.append(a.peers)
    torch.manual_seed(0)
    ffpa = Ffpa(a.library)
    query = "name,driver_version,clocks.sm,power.draw,temperature.gpu"
    smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
    result = {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "driver": smi.stdout.strip().split(", ")[1] if smi.returncode == 0 else "unknown",
        "torch": torch.__version__,
        "library_sha256": hashlib.sha256(pathlib.Path(a.library).read_bytes()).hexdigest(),
        "cases": [],
        "decode": [],
        "masked": [],
        "quantized": [],
    }
    dims = lambda text: [int(d) for d in text.split(",") if d]
    for d in dims(a.decode):
        case = measure_decode(ffpa, d, a.rounds, n=32768 if d <= 512 else 16384)
        result["decode"].append(case)
        rates = "  ".join(f"{name} {rate:.0f} GB/s" for name, rate in case["gigabytes_per_second"].items())
        print(f"decode D={d}: {rates}  {case['ratio_to_copy']:.3f} of copy  {case['kernel']}", flush=True)
    for d in dims(a.masked):
        case = measure_masked(ffpa, d, a.rounds)
        result["masked"].append(case)
        print(f"masked D={d}: x{case['ratio']:.2f} of sdpa_efficient  {case['kernel']}", flush=True)
    for d in dims(a.quantized):
        case = measure_quantized(ffpa, d, a.rounds)
        result["quantized"].append(case)
        line = "  ".join(f"{name} {c['tflops']:.0f} TFLOPS error {c['relative_error']:.2e} worst row {c['worst_row']:.2e} {c['kernel']}" for name, c in case["competitors"].items())
        rates = "  ".join(f"{name} {rate:.0f} GB/s" for name, rate in case["quantising"].items())
        print(f"quantised D={d}: {line}  {rates}", flush=True)
    for d in dims(a.dims):
        for causal in (False, True):
            case = measure(ffpa, d, causal, 8192, 32 if d <= 256 else 16, a.rounds, a.peers is not None)
            result["cases"].append(case)
            line = "  ".join(
                f"{name} {entry['sustained']['tflops']:.0f}/{entry['burst']['tflops']:.0f} (x{entry['sustained']['ffpa_ratio']:.3f})"
                for name, entry in case["competitors"].items()
            )
            print(f"D={d} causal={causal}: {line}  error {case['competitors']['ffpa']['relative_error']:.2e}", flush=True)
    smi = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
    result["state_after"] = smi.stdout.strip()
    pathlib.Path(a.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
