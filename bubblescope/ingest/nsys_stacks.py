"""Where CUDA calls were made: the call chains of an Nsight Systems export."""

from __future__ import annotations

import re

import numpy as np

from bubblescope.capture.frames import is_framework
from bubblescope.ingest.nsys_strings import Strings
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Frames
from bubblescope.timeline.tables import Int

TABLE = "CUDA_CALLCHAINS"

# A Python frame has its file, and maybe its line, in the symbol or in the module.
_PYTHON = re.compile(r"([^\s\"'()\[\]<>]*\.py)(?:(?::|\(| line )([0-9]{1,9})\)?)?(?![\w.])")
_LIBRARY = re.compile(
    r"(^|[/\\])(lib(cuda|cudart|cublas|cublasLt|cudnn|cufft|cusparse|cusolver|curand|nccl|nvrtc"
    r"|cupti|torch|torch_\w+|c10|c10_\w+|caffe2\w*|ToolsInjection\w*|InterceptorInjection\w*"
    r"|c|m|dl|pthread|rt|stdc\+\+|gcc_s|gomp|python3?[\d.]*)([-_.]\w*)*\.(so|dll)[\d.]*"
    r"|python[\d.]*|ld-linux[^/]*)$|^\[?(kernel|vdso|Max depth)|\.ko$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+$|^\[|^$")
_OWN, _NATIVE, _FRAMEWORK, _NO = range(4)


def frames(database: Database, strings: Strings, chain: Int) -> tuple[Int, Frames]:
    """Each call's place: a row of the table of frames, -1 where nothing of it is known.

    That is the innermost Python frame outside the frameworks; else the innermost function of a
    module that is neither CUDA's, nor a framework's, nor the system's; else the innermost Python
    frame. Only Python frames have lines, and only where the export has them.

    Args:
        database: The export.
        strings: Its strings.
        chain: The chain of each call, NULL or 0 for none.
    """
    nowhere = np.full(len(chain), -1, np.int64)
    used = np.unique(chain[(chain != NULL) & (chain > 0)])
    if not len(used) or TABLE not in database:
        return nowhere, Frames.empty()
    ids, depth, symbol, module, unresolved = database.integers(
        TABLE, "id", "stackDepth", "symbol", "module", "unresolved"
    )
    mine = np.flatnonzero(np.isin(ids, used))
    pairs, code = np.unique(np.stack([symbol, module], axis=1)[mine], axis=0, return_inverse=True)
    symbols = strings.column(pairs[:, 0]).to_list() if len(pairs) else []
    modules = strings.column(pairs[:, 1]).to_list() if len(pairs) else []
    sites = [_site(*named) for named in zip(symbols, modules, strict=True)]
    kind = np.fromiter((k for k, _ in sites), np.int64, len(sites))[code.reshape(-1)]
    kind[(unresolved[mine] == 1) & (kind == _NATIVE)] = _NO
    order = np.lexsort((depth[mine], kind, ids[mine]))
    order = order[kind[order] != _NO]
    known, first = np.unique(ids[mine][order], return_index=True)
    place = code.reshape(-1)[order[first]]
    rows, of_chain = np.unique(place, return_inverse=True)
    result = nowhere
    if len(known):
        at = np.minimum(np.searchsorted(known, chain), len(known) - 1)
        result = np.where(known[at] == chain, of_chain.reshape(-1)[at], -1)
    files = [sites[row][1] for row in rows.tolist()]
    return result, Frames.build(
        len(files),
        file=[file for file, _, _ in files],
        line=[line for _, line, _ in files],
        function=[function for _, _, function in files],
    )


def _site(symbol: str, module: str) -> tuple[int, tuple[str, int, str]]:
    """What kind of frame it is, and its file, line (-1: not recorded) and function."""
    for text, other in ((symbol, ""), (module, symbol)):
        found = _PYTHON.search(text)
        if found:
            line = found[2] or _line_of(other)
            rest = other or (text[: found.start()] + text[found.end() :])
            function = re.sub(r"^[\s:,()\[\]]+|[\s:,()\[\]]+$", "", re.sub(r":[0-9]+$", "", rest))
            kind = _FRAMEWORK if is_framework(found[1]) else _OWN
            return kind, (found[1], int(line) if line else -1, function)
    own = not _ADDRESS.search(symbol) and not _LIBRARY.search(module)
    return (_NATIVE if own else _NO), (module, -1, symbol)


def _line_of(symbol: str) -> str:
    """The line where a symbol ends in it: "step:12"."""
    found = re.search(r":([0-9]{1,9})$", symbol)
    return found[1] if found else ""
