"""What raw calls promise beside their results: that they can be captured in a graph, use no workspace but the caller's if there is
one, write nothing beside their output, and do not meet on two streams.

usage: contract.py LIBRARY
"""

import argparse
import math

import torch

from ffpa import E4M3, INT8, NATIVE, Ffpa, Scales

# Bytes around a workspace that nobody may touch.
GUARD = 4096


def attention(q, k, v, causal):
    """In f32, causal masks aligned to the bottom right."""
    k, v = (t.float().repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    scores = q.float() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        rows, keys = scores.shape[-2:]
        hidden = torch.ones(rows, keys, dtype=torch.bool, device=q.device).triu(keys - rows + 1)
        scores.masked_fill_(hidden, -math.inf)
    return scores.softmax(-1) @ v


def error(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


class Case:
    """A call on tensors of its own, its exact result, and how far from that it may be."""

    def __init__(self, ffpa, name, sizes, precision=NATIVE, eight_bits=False, causal=False):
        batch, q_heads, kv_heads, rows, keys, d = sizes
        self.ffpa, self.name, self.causal = ffpa, name, causal
        self.tensors = [torch.empty(batch, h, n, d, device="cuda", dtype=torch.bfloat16) for h, n in ((q_heads, rows), (kv_heads, keys), (kv_heads, keys))]
        self.out = torch.empty_like(self.tensors[0])
        self.lse = torch.empty(batch, q_heads, rows, device="cuda")
        self.limit = 5e-3 if precision == NATIVE and not eight_bits else 0.08
        self.scales, self.eight_bits = [], eight_bits
        if eight_bits:
            # A scale for each 64 rows.
            self.scales = [torch.empty(batch, t.shape[1], -(-t.shape[2] // 64), device="cuda") for t in self.tensors]
            self.codes = [torch.empty_like(t, dtype=torch.float8_e4m3fn) for t in self.tensors]
        given = self.codes if eight_bits else self.tensors
        self.call = ffpa.call(*given, self.out, self.lse, precision=precision, scales=[Scales.of(s, 64) for s in self.scales], causal=causal)
        self.draw()

    def draw(self):
        """Other inputs in the same places."""
        for i, tensor in enumerate(self.tensors):
            tensor.normal_()
            if self.eight_bits:
                scales = self.scales[i]
                for block in range(scales.shape[2]):
                    rows = tensor[:, :, 64 * block : 64 * block + 64]
                    scales[:, :, block] = rows.abs().amax((2, 3)).float() / 448
                    self.codes[i][:, :, 64 * block : 64 * block + 64] = (rows / scales[:, :, block, None, None]).to(torch.float8_e4m3fn)
        self.exact = attention(*self.tensors, self.causal)

    def start(self):
        self.ffpa.start(self.call)

    def check(self, what):
        off = error(self.out, self.exact)
        assert off < self.limit, (self.name, what, off)
        return off


def captured(case):
    """On a stream on which the call has run before: the engine keeps a workspace for each."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        case.start()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        case.start()
    case.draw()
    case.out.fill_(math.nan)
    graph.replay()
    torch.cuda.synchronize()
    return case.check("captured in a graph")


def own_workspace(case):
    """In a workspace of exactly as many bytes as it wants, from bytes of all kinds; the same result, bit by bit."""
    case.start()
    torch.cuda.synchronize()
    want, want_lse = case.out.clone(), case.lse.clone()
    size = case.ffpa.workspace(case.call)
    block = torch.randint(0, 256, (size + 2 * GUARD,), device="cuda", dtype=torch.uint8)
    before = block.clone()
    case.call.workspace = block.data_ptr() + GUARD
    case.out.fill_(math.nan)
    case.start()
    torch.cuda.synchronize()
    case.call.workspace = 0
    assert torch.equal(case.out, want) and torch.equal(case.lse, want_lse), (case.name, "own workspace")
    assert torch.equal(block[:GUARD], before[:GUARD]) and torch.equal(block[-GUARD:], before[-GUARD:]), (case.name, "guard bytes")
    return size


def on_two_streams(one, other, rounds=20):
    """Results of calls that overlap are those of calls one by one."""
    want = []
    for case in (one, other):
        case.start()
        torch.cuda.synchronize()
        want.append(case.out.clone())
        case.out.fill_(math.nan)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(rounds):
        for case, stream in zip((one, other), streams):
            with torch.cuda.stream(stream):
                case.start()
    torch.cuda.synchronize()
    for case, result in zip((one, other), want):
        assert torch.equal(case.out, result), (case.name, "on two streams")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("library")
    ffpa = Ffpa(arguments.parse_args().library)
    torch.manual_seed(0)
    make = lambda *a, **b: Case(ffpa, *a, **b)
    cases = [
        make("native", (2, 4, 4, 300, 300, 128), causal=True),
        make("native, divided keys", (1, 8, 1, 1, 20000, 128)),
        make("fp8", (2, 4, 2, 300, 1000, 128), precision=E4M3),
        make("fp8, causal", (1, 4, 4, 1000, 1000, 64), precision=E4M3, causal=True),
        make("fp8, one query row", (1, 8, 1, 1, 20000, 128), precision=E4M3, causal=True),
        make("int8", (1, 4, 1, 777, 1500, 192), precision=INT8),
        make("e4m3 tensors", (2, 4, 2, 500, 900, 128), eight_bits=True),
        make("e4m3 tensors, causal", (1, 8, 2, 300, 700, 64), eight_bits=True, causal=True),
        make("e4m3 tensors, divided keys", (1, 8, 1, 1, 20000, 64), eight_bits=True),
    ]
    for case in cases:
        case.start()
        torch.cuda.synchronize()
        kernel, off = ffpa.last(), case.check("alone")
        print(f"{case.name:28} error {off:.2e}, captured {captured(case):.2e}, workspace {own_workspace(case)} bytes, {kernel}", flush=True)
    for one, other in zip(cases, cases[1:]):
        on_two_streams(one, other)
    print("on two streams: the same results")


if __name__ == "__main__":
    main()
