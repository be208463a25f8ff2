"""ffpa's raw calls on torch tensors: the C functions of libffpa_cabi (cabi.rs)."""

import ctypes

import torch

U32, U64 = ctypes.c_uint32, ctypes.c_uint64
INPUTS = {torch.float16: 0, torch.bfloat16: 1, torch.float8_e4m3fn: 2}
NATIVE, E4M3, INT8, NVFP4 = range(4)


class Tensor(ctypes.Structure):
    _fields_ = [("address", U64), ("shape", U64 * 4), ("strides", U64 * 3)]

    @classmethod
    def of(cls, tensor):
        return cls(tensor.data_ptr(), (U64 * 4)(*tensor.shape), (U64 * 3)(*tensor.stride()[:3]))


class Mask(ctypes.Structure):
    _fields_ = [("address", U64), ("element", U64), ("shape", U64 * 4), ("strides", U64 * 4)]

    @classmethod
    def of(cls, mask):
        element = {torch.bool: 0, torch.float16: 1, torch.bfloat16: 2, torch.float32: 3}[mask.dtype]
        return cls(mask.data_ptr(), element, (U64 * 4)(*mask.shape), (U64 * 4)(*mask.stride()))


class Scales(ctypes.Structure):
    _fields_ = [("address", U64), ("strides", U64 * 3), ("rows", U64)]

    @classmethod
    def of(cls, scales, rows):
        """Of a tensor `[batch, heads, blocks]` of blocks of so many rows."""
        return cls(scales.data_ptr(), (U64 * 3)(*scales.stride()), rows)


class Call(ctypes.Structure):
    _fields_ = [
        ("tensors", Tensor * 4),
        ("scales", Scales * 3),
        ("mask", ctypes.POINTER(Mask)),
        ("lse", U64),
        ("workspace", U64),
        ("stream", ctypes.c_void_p),
        ("input", U32),
        ("output", U32),
        ("causal", U32),
        ("precision", U32),
    ]


class Ffpa:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ffpa_open.restype = ctypes.c_void_p
        self.library.ffpa_last.restype = ctypes.c_char_p
        self.library.ffpa_workspace.restype = ctypes.c_int64
        self.engine = ctypes.c_void_p(self.library.ffpa_open(0))
        if not self.engine:
            raise RuntimeError(self.last())

    def last(self):
        return self.library.ffpa_last().decode()

    def call(self, q, k, v, out, lse=None, mask=None, precision=NATIVE, scales=(), causal=False):
        """The arguments of a call; `scales` are those of q, k and v."""
        call = Call()
        call.tensors = (Tensor * 4)(*[Tensor.of(t) for t in (q, k, v, out)])
        call.scales = (Scales * 3)(*scales)
        call.lse = lse.data_ptr() if lse is not None else 0
        if mask is not None:
            call.mask = ctypes.pointer(Mask.of(mask))
        call.input, call.output, call.causal, call.precision = INPUTS[q.dtype], INPUTS[out.dtype], causal, precision
        return call

    def workspace(self, call):
        """Bytes that a call wants."""
        size = self.library.ffpa_workspace(self.engine, ctypes.byref(call))
        if size < 0:
            raise RuntimeError(self.last())
        return size

    def start(self, call):
        """Starts a call on torch's stream."""
        call.stream = torch.cuda.current_stream().cuda_stream
        if self.library.ffpa_forward(self.engine, ctypes.byref(call)):
            raise RuntimeError(self.last())

    def bind(self, q, k, v, out, lse, mask=None, precision=NATIVE):
        """A function that starts the call, with all of its arguments made beforehand."""
        call = self.call(q, k, v, out, lse, mask, precision)

        def run(causal):
            call.causal = causal
            self.start(call)
            return out

        return run
