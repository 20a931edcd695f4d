"""The C interface of ovir through ctypes.

    with CompiledModel(library_path, "model.xml", threads=2) as model:
        outputs = model.infer({"input": array})   # {name: array}

Consecutive `infer` calls use one request, so states are kept until
`reset_state`. Every failing call raises `OvirError` with ovir's text.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np

ELEMENT_TYPES = {
    "boolean": np.bool_,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
"""NumPy types by the element type names of ovir."""

LIBRARY_NAMES = ("libovir_capi.so", "libovir_capi.dylib", "ovir_capi.dll")


class OvirError(RuntimeError):
    """A call failed; the text is ovir's."""


class CompiledModel:
    """A model read, compiled and with one request."""

    def __init__(
        self,
        library: Path,
        model: Path,
        weights: Path | None = None,
        threads: int = 0,
        properties: dict[str, object] | None = None,
    ):
        self._library = _load(library)
        self._model = self._compiled = self._request = None
        self._kept: list[np.ndarray] = []
        bin_path = os.fsencode(weights) if weights else None
        try:
            self._model = self._pointer(self._library.ovir_read_model(os.fsencode(model), bin_path))
            self._compiled = self._pointer(self._compile(threads, properties or {}))
            self._request = self._pointer(self._library.ovir_create_request(self._compiled))
        except OvirError:
            self.close()
            raise

    def _compile(self, threads: int, properties: dict[str, object]) -> int | None:
        if not properties:
            return self._library.ovir_compile_model(self._model, threads)
        texts = [str(text).encode() for pair in properties.items() for text in pair]
        array = (c_char_p * len(texts))(*texts)
        return self._library.ovir_compile_model_with_properties(self._model, threads, array, len(properties))

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free request, compiled model and model, in this order."""
        for name in ("request", "compiled", "model"):
            pointer = getattr(self, f"_{name}")
            if pointer:
                getattr(self._library, f"ovir_{name}_free")(pointer)
            setattr(self, f"_{name}", None)

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Give the inputs of the next inference, by tensor name, friendly name or index."""
        self._kept = [np.ascontiguousarray(v).reshape(np.shape(v)) for v in inputs.values()]
        for name, array in zip(inputs, self._kept):
            shape = (c_size_t * max(array.ndim, 1))(*array.shape)
            data = array.ctypes.data_as(c_void_p)
            code = self._library.ovir_set_input(
                self._request, name.encode(), _element_type(array).encode(), shape, array.ndim, data, array.nbytes
            )
            self._check(code)

    def run(self) -> None:
        """Infer with the inputs set."""
        self._check(self._library.ovir_infer(self._request))

    def outputs(self) -> dict[str, np.ndarray]:
        """Copies of the outputs, by name."""
        result = {}
        for index in range(self._library.ovir_output_count(self._request)):
            name = self._library.ovir_output_name(self._request, index).decode()
            result[name] = self._output(index)
        return result

    def infer(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.set_inputs(inputs)
        self.run()
        return self.outputs()

    def reset_state(self) -> None:
        self._check(self._library.ovir_reset_state(self._request))

    def _output(self, index: int) -> np.ndarray:
        kind, shape, data = c_char_p(), POINTER(c_size_t)(), c_void_p()
        rank, size = c_size_t(), c_size_t()
        code = self._library.ovir_output(
            self._request, index, byref(kind), byref(shape), byref(rank), byref(data), byref(size)
        )
        self._check(code)
        dtype = np.dtype(ELEMENT_TYPES[kind.value.decode()])
        dims = [shape[i] for i in range(rank.value)]
        if not size.value:
            return np.zeros(dims, dtype)
        raw = (ctypes.c_char * size.value).from_address(data.value)
        return np.frombuffer(bytes(raw), dtype).reshape(dims)

    def _pointer(self, value):
        if not value:
            raise OvirError(self._last_error())
        return value

    def _check(self, code: int) -> None:
        if code:
            raise OvirError(self._last_error())

    def _last_error(self) -> str:
        text = self._library.ovir_last_error()
        return text.decode(errors="replace") if text else "no error text"


def find_library(given: Path | None, target: Path) -> Path | None:
    """The library: the one given, else one of the release or debug build."""
    if given:
        return given if given.exists() else None
    for profile in ("release", "debug"):
        for name in LIBRARY_NAMES:
            if (target / profile / name).exists():
                return target / profile / name
    return None


def _element_type(array: np.ndarray) -> str:
    for name, dtype in ELEMENT_TYPES.items():
        if array.dtype == dtype:
            return name
    raise OvirError(f"no element type for {array.dtype}")


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(os.fspath(path))
    signatures = {
        "ovir_last_error": (c_char_p, []),
        "ovir_read_model": (c_void_p, [c_char_p, c_char_p]),
        "ovir_compile_model": (c_void_p, [c_void_p, c_size_t]),
        "ovir_compile_model_with_properties": (c_void_p, [c_void_p, c_size_t, POINTER(c_char_p), c_size_t]),
        "ovir_create_request": (c_void_p, [c_void_p]),
        "ovir_set_input": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_size_t), c_size_t, c_void_p, c_size_t]),
        "ovir_infer": (c_int, [c_void_p]),
        "ovir_output_count": (c_size_t, [c_void_p]),
        "ovir_output_name": (c_char_p, [c_void_p, c_size_t]),
        "ovir_output": (
            c_int,
            [
                c_void_p,
                c_size_t,
                POINTER(c_char_p),
                POINTER(POINTER(c_size_t)),
                POINTER(c_size_t),
                POINTER(c_void_p),
                POINTER(c_size_t),
            ],
        ),
        "ovir_reset_state": (c_int, [c_void_p]),
        "ovir_request_free": (None, [c_void_p]),
        "ovir_compiled_free": (None, [c_void_p]),
        "ovir_model_free": (None, [c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name, None)
        if function is None:
            continue  # An older library; what asks for it fails.
        function.restype, function.argtypes = result, arguments
    return library
