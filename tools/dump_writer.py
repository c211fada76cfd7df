"""Writes a dump that dsv3-verify reads (--format dsv3), with numpy alone: <case>/<op> in one safetensors file.

    dump = DumpWriter()
    dump.add("p7", "layer.0.attn.q_a", array)         # numpy array, one row a token
    dump.add_bf16("p7", "layer.0.output", codes)      # BF16 codes as uint16, for example tensor.view(torch.uint16).numpy()
    dump.write("mine.safetensors")

`dsv3-verify list-required dsv3` lists the names and shapes; docs/contracts.md says what each value is.
"""

import json
import struct

import numpy

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8"}


class DumpWriter:
    def __init__(self):
        self._tensors = {}

    def add(self, case, op, array):
        array = numpy.asarray(array)
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{case}/{op}: dtype {array.dtype}, expected one of {', '.join(DTYPES)}")
        self._add(case, op, array, DTYPES[array.dtype.name])

    def add_bf16(self, case, op, codes):
        self._add(case, op, numpy.asarray(codes, dtype=numpy.uint16), "BF16")

    def _add(self, case, op, array, dtype):
        name = f"{case}/{op}"
        if name in self._tensors:
            raise ValueError(f"{name} is there already")
        little_endian = array.astype(array.dtype.newbyteorder("<"))
        self._tensors[name] = (dtype, list(array.shape), little_endian.tobytes())

    def write(self, path):
        header, offset = {}, 0
        for name, (dtype, shape, data) in self._tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in self._tensors.values():
                file.write(data)
